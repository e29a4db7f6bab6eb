"""Encoded columns are decoded where rows come in, and every edge carries them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from snapshot_engine.api import Count, Environment, Sum
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.parquet_files import ParquetSource
from snapshot_engine.graph.problems import PlanError
from snapshot_engine.operators.fitting import decode_batch, decoded_schema, fit_batch
from snapshot_engine.testing import Outcome, run_pipeline

WORDS = pa.array(["a", "b", None, "a"])
ENCODED = WORDS.dictionary_encode()
VIEWS = WORDS.cast(pa.string_view())
OFFSETS = [0, 1, 1, 3, 4]


@pytest.mark.parametrize(
    "column",
    [
        ENCODED,
        pc.run_end_encode(pa.array([1, 1, 2, None])),
        pa.StructArray.from_arrays([ENCODED, pa.array([1, 2, 3, 4])], ["word", "n"]),
        pa.ListArray.from_arrays(OFFSETS, ENCODED),
        pa.LargeListArray.from_arrays(OFFSETS, ENCODED),
        pa.MapArray.from_arrays(OFFSETS, pa.array([1, 2, 3, 4]), ENCODED),
        VIEWS,
        WORDS.cast(pa.binary()).cast(pa.binary_view()),
        pa.StructArray.from_arrays([pa.ListArray.from_arrays(OFFSETS, VIEWS)], ["words"]),
        pa.MapArray.from_arrays(OFFSETS, pa.array([1, 2, 3, 4]), VIEWS),
    ],
    ids=[
        "dictionary",
        "run ends",
        "in a struct",
        "in a list",
        "in a large list",
        "in a map",
        "views",
        "views of bytes",
        "views in a list in a struct",
        "views in a map",
    ],
)
def test_encoded_columns_become_plain_ones_of_the_same_values(column: pa.Array) -> None:
    batch = pa.RecordBatch.from_arrays([column, pa.array([1, 2, 3, 4])], names=["c", "n"]).slice(1)
    schema = decoded_schema(batch.schema)
    assert "dictionary" not in str(schema)
    assert "run_end" not in str(schema)
    assert "view" not in str(schema)
    for decoded in (decode_batch(batch, schema), fit_batch(batch, schema, "op")):
        assert decoded.schema == schema
        assert decoded.to_pylist() == batch.to_pylist()
        assert pa.ipc.read_record_batch(decoded.serialize(), schema).equals(decoded)
        assert decoded.take(pa.array([2, 0])).to_pylist() == [decoded.to_pylist()[2], decoded.to_pylist()[0]]


def test_a_schema_without_encoded_columns_is_left_as_it_is() -> None:
    schema = pa.schema([("a", pa.list_(pa.struct([("b", pa.string())])))], metadata={"k": "v"})
    assert decoded_schema(schema) is schema


def test_two_columns_of_one_name_are_refused_while_planning(tmp_path: Path) -> None:
    doubled = pa.table([[1], [2]], names=["a", "a"])

    def pipeline(env: Environment) -> None:
        env.from_collection(doubled, uid="source")
        env.from_collection(pa.table({"b": [1]}), uid="one").map_in_arrow(lambda batch: batch, schema=doubled.schema)

    with pytest.raises(PlanError) as caught:
        run_pipeline(pipeline, storage=tmp_path / "ck")
    assert str(caught.value).count("the schema has column 'a' twice") == 2


@pytest.mark.parametrize("step", ["rebalance", "aggregate", "reduce"])
def test_encoded_columns_cross_edges(tmp_path: Path, step: str) -> None:
    for number in range(3):
        words = pa.array([f"x{number}", "y", None] * 3).dictionary_encode()
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(pa.table({"word": words, "n": range(9)}), tmp_path / "in" / f"{number}.parquet")
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        rows: Any = env.from_source(ParquetSource(tmp_path / "in"), uid="words")
        match step:
            case "rebalance":
                rows = rows.rebalance().map_in_arrow(lambda batch: batch)
            case "aggregate":
                rows = rows.key_by("word").aggregate(rows=Count(), n=Sum("n"))
            case "reduce":
                rows = rows.key_by("word").reduce(lambda a, b: a._replace(n=a.n + b.n))
        rows.sink_to(sink, uid="out")

    assert run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2).outcome is Outcome.FINISHED
    found = sink.read_committed()
    if step == "rebalance":
        assert sum(row["n"] for row in found) == 3 * 36
    else:
        totals = {row["word"]: row["n"] for row in sorted(found, key=lambda row: row["n"])}
        assert totals == {"x0": 9, "x1": 9, "x2": 9, "y": 36, None: 45}
