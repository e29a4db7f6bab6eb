"""Console, discard, DataFrames, and those that fail on purpose."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.console import ConsoleSink
from snapshot_engine.connectors.dataframe import DataFrameSource, arrow_schema
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.failing import DeliberateFailure, FailingSink, FailingSource
from snapshot_engine.connectors.generated_columns import Sequence64
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.protocols import MaterialisedSource, WriterContext

Batch = Callable[..., pa.RecordBatch]
Context = Callable[..., WriterContext]


def test_the_console_shows_rows_at_once(capsys: pytest.CaptureFixture[str], context: Context, batch: Batch) -> None:
    writer = ConsoleSink(prefix="> ").open(context())
    writer.write(batch(1, 2))
    assert capsys.readouterr().out == '> {"n": 1}\n> {"n": 2}\n'
    assert not ConsoleSink().exactly_once
    assert writer.prepare(1) == []


def test_discarded_rows_are_counted_once_whatever_is_committed_again(context: Context, batch: Batch) -> None:
    sink = DiscardSink()
    writer = sink.open(context())
    writer.write(batch(1, 2))
    first = writer.prepare(1)
    writer.write(batch(3))
    second = writer.prepare(2)
    assert writer.prepare(3) == []
    other = sink.open(context(subtask=1))
    other.write(batch(4))
    sink.commit([*second, *first, *other.prepare(1)])
    sink.commit(first)
    assert sink.rows == 4


# A Spark DataFrame, or what looks like one


class FakeDataFrame:
    """Has what the source asks of a DataFrame, and cannot be pickled."""

    def __init__(self, table: pa.Table, spark_schema: dict[str, Any]) -> None:
        self.table = table
        self.spark_schema = spark_schema
        self.written = 0

    schema = property(lambda self: self)
    write = property(lambda self: self)

    def json(self) -> str:
        return json.dumps(self.spark_schema)

    def mode(self, mode: str) -> FakeDataFrame:
        assert mode == "overwrite"
        return self

    def parquet(self, folder: str) -> None:
        self.written += 1
        Path(folder).mkdir(parents=True, exist_ok=True)
        pq.write_table(self.table.slice(0, 3), Path(folder) / "part-00000.snappy.parquet")
        pq.write_table(self.table.slice(3), Path(folder) / "part-00001.snappy.parquet")
        (Path(folder) / "_SUCCESS").touch()

    def __reduce__(self) -> Any:
        raise TypeError("a DataFrame cannot leave the driver")


LONGS = {"type": "struct", "fields": [{"name": "n", "type": "long", "nullable": True, "metadata": {}}]}


def _dataframe() -> FakeDataFrame:
    return FakeDataFrame(pa.table({"n": range(5)}), LONGS)


def test_a_dataframe_is_written_once_and_read_as_files(tmp_path: Path, reading: Any) -> None:
    source = DataFrameSource(_dataframe())
    assert isinstance(source, MaterialisedSource)
    source.materialise(str(tmp_path / "staged"), restored=False)
    shipped = pickle.loads(pickle.dumps(source))
    assert reading.source(shipped) == [{"n": n} for n in range(5)]
    for split in shipped.splits(1):
        reading.every_position(shipped, split, 2)


def test_a_restored_job_reads_the_rows_of_its_first_start(tmp_path: Path, reading: Any) -> None:
    first = DataFrameSource(_dataframe())
    first.materialise(str(tmp_path), restored=False)
    changed = FakeDataFrame(pa.table({"n": [99]}), LONGS)
    again = DataFrameSource(changed)
    again.materialise(str(tmp_path), restored=True)
    assert changed.written == 0
    assert reading.source(again) == [{"n": n} for n in range(5)]
    with pytest.raises(FileNotFoundError, match="no longer there; start the job without the checkpoint"):
        DataFrameSource(changed).materialise(str(tmp_path / "gone"), restored=True)


def test_a_dataframe_that_was_not_written_cannot_be_shipped() -> None:
    with pytest.raises(RuntimeError, match=r"DataFrameSource\(n\) has not been materialised"):
        pickle.dumps(DataFrameSource(_dataframe()))
    with pytest.raises(TypeError, match="expected a Spark DataFrame, got list"):
        DataFrameSource([1])


def test_spark_types_become_arrow_types() -> None:
    def field(type: Any) -> pa.DataType:
        fields = [{"name": "x", "type": type, "nullable": False, "metadata": {}}]
        return arrow_schema({"type": "struct", "fields": fields}).field("x").type

    assert field("integer") == pa.int32()
    assert field("decimal(10,2)") == pa.decimal128(10, 2)
    assert field("timestamp") == pa.timestamp("us", "UTC")
    assert field("varchar(5)") == pa.string()
    assert pa.types.is_list(field({"type": "array", "elementType": "string", "containsNull": True}))
    assert field(LONGS) == pa.struct([pa.field("n", pa.int64())])
    assert field({"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": False}).item_type == (
        pa.date32()
    )
    with pytest.raises(TypeError, match="column 'x' has the Spark type interval"):
        field("interval")


# Those that fail


def test_a_source_fails_at_the_given_record_as_often_as_told(reading: Any) -> None:
    source = FailingSource(GeneratorSource({"n": Sequence64()}, count=20, splits=1), at_record=7, times=2)
    (split,) = source.splits(1)
    for failure in (1, 2):
        reader = source.open(split, None)
        seen = [reader.read(5), reader.read(5)]
        assert [batch.num_rows for batch in seen if batch is not None] == [5, 2]
        with pytest.raises(DeliberateFailure, match=rf"row 7 of split 0000-of-0001 \(failure {failure} of 2\)"):
            reader.read(5)
    restored = pickle.loads(pickle.dumps(source))
    assert [row["n"] for row in reading.all(restored.open(split, reader.position()))] == list(range(7, 20))
    reading.every_position(restored, split, 4)


def test_a_source_can_fail_when_it_is_opened() -> None:
    source = FailingSource(GeneratorSource({"n": Sequence64()}, count=5, splits=1), at_record=0)
    with pytest.raises(DeliberateFailure, match="opening split"):
        source.open("0000-of-0001", None)
    batch = source.open("0000-of-0001", None).read(10)
    assert batch is not None
    assert batch.num_rows == 5


def test_a_sink_fails_in_prepare_and_on_both_sides_of_a_commit(context: Context, batch: Batch) -> None:
    collected = CollectSink()
    sink = FailingSink(collected, prepares=1, commits=2)
    writer = sink.open(context())
    writer.write(batch(1))
    with pytest.raises(DeliberateFailure, match="preparing checkpoint 1"):
        writer.prepare(1)
    writer = sink.open(context(attempt=2))
    writer.write(batch(2))
    prepared = writer.prepare(2)
    for visible in ([], [{"n": 2}]):
        with pytest.raises(DeliberateFailure):
            pickle.loads(pickle.dumps(sink)).commit(prepared)
        assert collected.read_committed() == visible
    sink.commit(prepared)
    assert collected.read_committed() == [{"n": 2}]
    assert (sink.prepare_fuse.blown, sink.commit_fuse.blown) == (1, 2)
