from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import cloudpickle

from snapshot_engine.operators.fitting import BatchMismatchError
from snapshot_engine.operators.function_context import UnkeyedStateError
from snapshot_engine.operators.functions import Function
from snapshot_engine.operators.records import Records
from snapshot_engine.operators.stateless import (
    ArrowBatchOperator,
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    PandasBatchOperator,
)
from snapshot_engine.operators.stream_type import HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.state.descriptors import ValueState

SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.int64())])
ROWS = StreamType(SCHEMA, EventTime("at"))
HIDDEN = StreamType(
    pa.schema([("name", pa.string()), (HIDDEN_TIME, pa.int64())]),
    EventTime(HIDDEN_TIME),
)
PLAIN = StreamType(RECORDS.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))
BATCH = pa.record_batch({"id": [1, 2, 3, 4], "at": [10, 20, 30, 40]}, schema=SCHEMA)


def test_map_keeps_event_times_in_a_hidden_column_where_the_output_has_none(bench: Any) -> None:
    operator = MapOperator(lambda row: {"name": f"n{row.id}"}, ROWS, HIDDEN)
    out = bench.open(operator, HIDDEN)
    operator.process(0, BATCH)
    assert [row.name for row in out.records()] == ["n1", "n2", "n3", "n4"]
    assert out.times() == [10, 20, 30, 40]


def test_map_may_change_the_event_time_where_it_is_a_column(bench: Any) -> None:
    operator = MapOperator(lambda row: (row.id, row.at + 5), ROWS, ROWS)
    out = bench.open(operator, ROWS)
    operator.process(0, BATCH)
    assert out.times() == [15, 25, 35, 45]


def test_records_pass_from_function_to_function_with_their_times(bench: Any) -> None:
    last = FilterOperator(lambda value: value[0] != 2, PLAIN)
    out = bench.open(last, PLAIN)
    for data in chained(bench, MapOperator(lambda row: (row.id, "x"), ROWS, PLAIN), BATCH):
        last.process(0, data)
    assert out.records() == [(1, "x"), (3, "x"), (4, "x")]
    assert out.times() == [10, 30, 40]


def chained(bench: Any, operator: Any, batch: pa.RecordBatch) -> list[Any]:
    out = bench.open(operator)
    operator.process(0, batch)
    return list(out.data)


def test_filter_hands_on_the_rows_of_the_batch_without_converting_them(bench: Any) -> None:
    first = FilterOperator(lambda row: row.id > 1, ROWS)
    second = FilterOperator(lambda row: row.id < 4, ROWS)
    out = bench.open(second, ROWS)
    for data in chained(bench, first, BATCH):
        second.process(0, data)
    assert out.records() == [(2, 20), (3, 30)]
    assert out.data[0].source[0] is BATCH


def test_filter_that_keeps_nothing_puts_nothing_out(bench: Any) -> None:
    operator = FilterOperator(lambda row: row.id > 9, ROWS)
    out = bench.open(operator, ROWS)
    operator.process(0, BATCH)
    assert out.data == []


def test_flat_map_takes_lists_generators_and_none(bench: Any) -> None:
    def split(row: Any) -> Any:
        if row.id == 1:
            return None
        if row.id == 2:
            return ["a", "b"]
        return (letter for letter in "cd"[: row.id - 2])

    operator = FlatMapOperator(split, ROWS, PLAIN)
    out = bench.open(operator, PLAIN)
    operator.process(0, BATCH)
    assert out.records() == ["a", "b", "c", "c", "d"]
    assert out.times() == [20, 20, 30, 40, 40]


def broken(row: Any) -> Any:
    return 1 / (row.id - 3)


def broken_later(row: Any) -> Iterator[float]:
    yield 1 / (row.id - 3)


@pytest.mark.parametrize(
    ("operator", "line"),
    [
        (MapOperator(broken, ROWS, PLAIN), "return 1 / (row.id - 3)"),
        (FilterOperator(broken, ROWS), "return 1 / (row.id - 3)"),
        (FlatMapOperator(broken_later, ROWS, PLAIN), "yield 1 / (row.id - 3)"),
    ],
)
def test_an_exception_shows_the_operator_the_record_and_the_users_own_line(
    bench: Any, operator: Any, line: str
) -> None:
    bench.open(operator)
    with pytest.raises(UserFunctionError) as caught:
        operator.process(0, BATCH)
    text = str(caught.value)
    assert "operator 'the operator'" in text
    assert "ZeroDivisionError: division by zero" in text
    assert "Row(id=3, at=30)" in text
    assert line in text
    assert "snapshot_engine" not in text
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def first_of_none(row: Any) -> Any:
    return next(iter(())) if row.id == 3 else row


@pytest.mark.parametrize("operator", [MapOperator(first_of_none, ROWS, PLAIN), FilterOperator(first_of_none, ROWS)])
def test_a_stop_iteration_is_an_error_like_any_other_and_loses_no_rows_in_silence(bench: Any, operator: Any) -> None:
    out = bench.open(operator)
    with pytest.raises(UserFunctionError, match=r"raised StopIteration\n  on the record: Row\(id=3, at=30\)"):
        operator.process(0, BATCH)
    assert out.data == []


def test_a_long_record_is_cut_in_messages(bench: Any) -> None:
    operator = MapOperator(lambda value: value.missing, StreamType(RECORDS), StreamType(RECORDS))
    bench.open(operator)
    with pytest.raises(UserFunctionError) as caught:
        operator.process(0, Records(["x" * 100_000]))
    assert "(100002 characters)" in str(caught.value)
    assert len(str(caught.value)) < 2_000


class Counting(Function):
    def open(self, context: Any) -> None:
        self.prefix = f"{context.name}/{context.subtask}"
        self.closed = False

    def __call__(self, row: Any) -> str:
        return f"{self.prefix}:{row.id}"

    def close(self) -> None:
        self.closed = True


def test_a_function_object_is_opened_in_its_subtask_and_closed(bench: Any) -> None:
    operator = cloudpickle.loads(cloudpickle.dumps(MapOperator(Counting(), ROWS, PLAIN)))
    out = bench.open(operator, PLAIN, subtask=1, parallelism=2)
    operator.process(0, BATCH.slice(0, 1))
    operator.close()
    assert out.records() == ["the operator/1:1"]
    assert operator.fn.closed


def test_state_without_keys_is_refused_with_advice(bench: Any) -> None:
    class Stateful(Function):
        def open(self, context: Any) -> None:
            context.state(ValueState("n", int))

    with pytest.raises(UnkeyedStateError, match=r"asked for state 'n'.*key_by"):
        bench.open(MapOperator(Stateful(), ROWS, PLAIN))


@pytest.mark.parametrize(("kind", "empty"), [(ArrowBatchOperator, "slice(0, 0)"), (PandasBatchOperator, "head(0)")])
def test_a_forgotten_return_is_not_taken_for_no_rows(bench: Any, kind: Any, empty: str) -> None:
    operator = kind(lambda batch: None, ROWS, ROWS)
    bench.open(operator, ROWS)
    with pytest.raises(UserFunctionError, match="it returned None: return a ") as caught:
        operator.process(0, BATCH)
    assert empty in str(caught.value)


def test_an_arrow_function_may_return_one_batch_several_or_none(bench: Any) -> None:
    operator = ArrowBatchOperator(
        lambda batch: [batch.slice(0, 1), batch.slice(3)] if batch.num_rows > 1 else [], ROWS, ROWS
    )
    out = bench.open(operator, ROWS)
    operator.process(0, BATCH)
    operator.process(0, BATCH.slice(0, 1))
    assert out.records() == [(1, 10), (4, 40)]


def test_an_arrow_functions_result_is_brought_to_the_planned_schema(bench: Any) -> None:
    operator = ArrowBatchOperator(
        lambda batch: pa.record_batch({"at": batch["at"], "id": pa.array([1, 2, 3, 4], pa.int8())}), ROWS, ROWS
    )
    out = bench.open(operator, ROWS)
    operator.process(0, BATCH)
    assert out.data[0].schema == SCHEMA


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (pa.record_batch({"id": [1]}), "it has no column 'at'"),
        (pa.record_batch({"id": [1], "at": [1], "x": [1]}), "column 'x' is not declared"),
        (pa.record_batch({"id": ["x"], "at": [1]}), "column 'id' is string and cannot become int64"),
        (pa.record_batch({"id": [1.5], "at": [1]}), "column 'id' is double and cannot become int64"),
        ([5], "it is a int"),
    ],
)
def test_a_batch_that_does_not_fit_is_told_with_both_schemas(bench: Any, result: Any, reason: str) -> None:
    operator = ArrowBatchOperator(lambda batch: result, ROWS, ROWS)
    bench.open(operator, ROWS)
    with pytest.raises(BatchMismatchError) as caught:
        operator.process(0, BATCH)
    assert "operator 'the operator'" in str(caught.value)
    assert reason in str(caught.value)
    assert "id: int64, at: int64" in str(caught.value)


def test_a_pandas_function_is_given_frames(bench: Any) -> None:
    def double(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(id=frame.id * 2)[frame.id != 2]

    operator = PandasBatchOperator(double, ROWS, ROWS)
    out = bench.open(operator, ROWS)
    operator.process(0, BATCH)
    assert out.records() == [(2, 10), (6, 30), (8, 40)]


def test_large_integers_beside_nulls_pass_a_pandas_function_unchanged(bench: Any) -> None:
    """As floats, which is what pandas makes of such a column unless it is told otherwise, they would change."""
    large = 2**53 + 1
    operator = PandasBatchOperator(lambda frame: frame.assign(id=frame.id + 1), ROWS, ROWS)
    out = bench.open(operator, ROWS)
    operator.process(0, pa.record_batch({"id": [large, None], "at": [10, 20]}, schema=SCHEMA))
    assert out.records() == [(large + 1, 10), (None, 20)]


def test_an_exception_in_a_batch_function_shows_the_users_line(bench: Any) -> None:
    def fail(batch: Any) -> Any:
        raise KeyError("town")

    operator = ArrowBatchOperator(fail, ROWS, ROWS)
    bench.open(operator, ROWS)
    with pytest.raises(UserFunctionError, match=r"(?s)the Arrow function of operator.*KeyError.*raise KeyError"):
        operator.process(0, BATCH)


@pytest.mark.parametrize("nested", [False, True])
def test_a_pandas_function_may_hand_maps_on(bench: Any, nested: bool) -> None:
    type_ = pa.map_(pa.string(), pa.int64())
    values: list[Any] = [[("a", 1)], None, []]
    if nested:
        type_, values = pa.list_(type_), [values, None, []]
    with_maps = StreamType(pa.schema([("id", pa.int64()), ("of", type_)]))
    only_maps = StreamType(pa.schema([("of", type_)]))
    batch = pa.record_batch([pa.array([1, 2, 3]), pa.array(values, type_)], schema=with_maps.schema)
    for type_of_stream, columns in ((with_maps, ["id", "of"]), (only_maps, ["of"])):
        operator = PandasBatchOperator(lambda frame: [frame, frame[:0]], type_of_stream, type_of_stream)
        collected = bench.open(operator, type_of_stream)
        operator.process(0, batch.select(columns))
        assert pa.Table.from_batches(collected.data).to_pylist() == batch.select(columns).to_pylist()
