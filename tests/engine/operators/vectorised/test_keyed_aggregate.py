"""Running totals against a model that keeps every value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.operators.aggregate_columns import SumTooLarge
from snapshot_engine.operators.aggregates import Aggregate, Avg, Count, CountDistinct, Max, Sum
from snapshot_engine.operators.keyed_aggregate import KeyedAggregateOperator, output_type
from snapshot_engine.operators.operator import OperatorContext
from snapshot_engine.operators.stream_type import StreamType

Row = dict[str, Any]

SCHEMA = pa.schema([("key", pa.int64()), ("price", pa.int16()), ("word", pa.dictionary(pa.int32(), pa.string()))])
INPUT = StreamType(SCHEMA)
AGGREGATES: dict[str, Aggregate] = {
    "rows": Count(),
    "total": Sum("price"),
    "most": Max("price"),
    "words": CountDistinct("word"),
}


class TotalsModel:
    def __init__(self) -> None:
        self.rows: dict[Any, list[Row]] = {}

    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
        for row in rows:
            self.rows.setdefault(row["key"], []).append(row)
        return [self.result(key) for key in dict.fromkeys(row["key"] for row in rows)], []

    def watermark(self, timestamp: int) -> list[Any]:
        return []

    def result(self, key: Any) -> tuple[Any, ...]:
        rows = self.rows[key]
        prices = [row["price"] for row in rows if row["price"] is not None]
        words = {row["word"] for row in rows if row["word"] is not None}
        return key, len(rows), sum(prices) if prices else None, max(prices, default=None), len(words)


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.one_of(st.none(), st.integers(-3, 3), st.just(2**62)),
            "price": st.one_of(st.none(), st.integers(-5, 5)),
            "word": st.sampled_from([None, "x", "yy", ""]),
        }
    ),
    min_size=1,
    max_size=8,
)


def make() -> KeyedAggregateOperator:
    return KeyedAggregateOperator(
        keys=("key",), aggregates=AGGREGATES, input=INPUT, output=output_type(("key",), AGGREGATES, INPUT)
    )


@pytest.mark.parametrize("incremental", [False, True])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_totals_survive_anything(fleet: Any, incremental: bool, data: st.DataObject) -> None:
    running = fleet(make, [("key",)], [SCHEMA], TotalsModel(), incremental=incremental)
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        step = data.draw(st.sampled_from(["rows", "rows", "rows", "barrier", "finish", "abort", "crash"]))
        if step == "rows":
            running.process(data.draw(ROWS))
        elif step == "barrier":
            running.snapshot()
        elif step == "crash":
            running.crash(data.draw(st.sampled_from([1, 2, 3])), doubled=data.draw(st.booleans()))
        elif running.pending:
            number = data.draw(st.sampled_from(sorted(running.pending)))
            running.finish(number) if step == "finish" else running.abort(number)
    running.end()


def test_from_two_subtasks_to_three_to_one(fleet: Any) -> None:
    running = fleet(make, [("key",)], [SCHEMA], TotalsModel(), parallelism=2, key_groups=8)
    for parallelism in (3, 1, 2):
        for start in range(0, 60, 20):
            running.process([{"key": key, "price": key % 7, "word": str(key % 3)} for key in range(start, start + 30)])
        running.snapshot()
        running.finish(max(running.pending))
        running.process([{"key": 5, "price": 1, "word": "lost by the crash"}])
        running.crash(parallelism)
    running.process([{"key": key, "price": 1, "word": "last"} for key in range(90)])
    running.end()


def test_watermarks_go_through(fleet: Any) -> None:
    running = fleet(make, [("key",)], [SCHEMA], TotalsModel(), parallelism=1)
    running.watermark(17)
    assert running.outputs[0].watermarks == [17]


# Integers that 64 bits do not hold when they are summed


def _totals(type_: pa.DataType, aggregates: dict[str, Aggregate]) -> Any:
    input = StreamType(pa.schema([("key", pa.int64()), ("v", type_)]))
    return KeyedAggregateOperator(
        keys=("key",), aggregates=aggregates, input=input, output=output_type(("key",), aggregates, input)
    )


def _opened(running: Any) -> Any:
    running.output = _Rows()
    running.open(
        OperatorContext(
            uid="op",
            name="the totals",
            subtask=0,
            parallelism=1,
            key_groups=8,
            attempt=(1, 1),
            restored=[],
            rescaled=False,
            reader=None,  # type: ignore[arg-type]
            clock=lambda: 0,
        )
    )
    return running


class _Rows:
    def __init__(self) -> None:
        self.last: dict[str, Any] = {}

    def emit(self, batch: pa.RecordBatch) -> None:
        self.last = batch.to_pylist()[-1]


def _fed(running: Any, type_: pa.DataType, *batches: list[int]) -> dict[str, Any]:
    for values in batches:
        schema = pa.schema([("key", pa.int64()), ("v", type_)])
        running.process(0, pa.RecordBatch.from_pydict({"key": [1] * len(values), "v": values}, schema))
    last: dict[str, Any] = running.output.last
    return last


BIG = 1_700_000_000_000_000_000


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64()])
def test_an_average_of_large_integers_is_right(type_: pa.DataType) -> None:
    running = _opened(_totals(type_, {"mean": Avg("v")}))
    assert _fed(running, type_, [BIG] * 8, [BIG] * 50)["mean"] == pytest.approx(float(BIG), rel=1e-15)


def test_an_average_of_large_negative_integers_is_right_also_on_the_way_back() -> None:
    running = _opened(_totals(pa.int64(), {"mean": Avg("v")}))
    assert _fed(running, pa.int64(), [-BIG] * 8)["mean"] == pytest.approx(-float(BIG), rel=1e-15)
    assert _fed(running, pa.int64(), [BIG] * 8)["mean"] == 0.0


@pytest.mark.parametrize("aggregates", [{"s": Sum("v")}, {"s": Sum("v"), "a": Avg("v")}])
@pytest.mark.parametrize(("type_", "value"), [(pa.int64(), BIG), (pa.int64(), -BIG), (pa.uint64(), 3 * BIG)])
def test_a_sum_that_is_too_large_is_an_error_with_the_operator(
    type_: pa.DataType, value: int, aggregates: dict[str, Aggregate]
) -> None:
    running = _opened(_totals(type_, aggregates))
    with pytest.raises(SumTooLarge, match=r"operator 'the totals': Sum\('v'\) has become too large"):
        _fed(running, type_, [value] * 8)


def test_sums_of_uint64_are_uint64() -> None:
    running = _opened(_totals(pa.uint64(), {"s": Sum("v"), "a": Avg("v"), "m": Max("v")}))
    assert running._output_schema.field("s").type == pa.uint64()
    found = _fed(running, pa.uint64(), [2**63 + 2**20], [7])
    assert (found["s"], found["m"]) == (2**63 + 2**20 + 7, 2**63 + 2**20)
    assert found["a"] == pytest.approx(2.0**62)


def test_merged_accumulators_carry_and_overflow_as_added_ones_do() -> None:
    for type_, value in ((pa.int64(), BIG), (pa.int64(), -BIG), (pa.uint64(), 6 * BIG)):
        running = _totals(type_, {"a": Avg("v")})
        columns = running._layout.columns
        matrix = np.tile(columns.initial, (4, 1))
        batch = pa.RecordBatch.from_pydict({"v": pa.array([value] * 12, type_)})
        columns.accumulate(batch, np.repeat(np.arange(4, dtype=np.int32), 3), matrix)
        columns.merge(matrix, np.array([1, 2, 3], np.int32), matrix, np.zeros(3, np.int32))
        assert columns.results(matrix)[0][0].as_py() == pytest.approx(float(value), rel=1e-15)
        summed = _totals(type_, {"s": Sum("v")})._layout.columns
        halves = np.tile(summed.initial, (4, 1))
        summed.accumulate(batch.slice(0, 4), np.arange(4, dtype=np.int32), halves)
        with pytest.raises(SumTooLarge):
            for _ in range(3):
                summed.merge(halves, np.array([1, 2, 3], np.int32), halves, np.array([0, 1, 2], np.int32))


@pytest.mark.parametrize("other", [Sum("v"), Count()], ids=str)
def test_an_average_that_has_carried_does_not_become_a_sum(other: Aggregate) -> None:
    averages = _totals(pa.int64(), {"x": Avg("v")})._layout.columns
    matrix = np.tile(averages.initial, (1, 1))
    averages.accumulate(pa.RecordBatch.from_pydict({"v": [BIG] * 12}), np.zeros(12, np.int32), matrix)
    written = pa.RecordBatch.from_arrays(averages.stored(matrix), names=averages.stored_names)
    columns = _totals(pa.int64(), {"x": other})._layout.columns
    if isinstance(other, Count):
        assert columns.results(columns.restored(written))[0].to_pylist() == [12]
    else:
        with pytest.raises(SumTooLarge, match=r"Sum\('v'\) has become too large"):
            columns.restored(written)


def test_state_of_earlier_versions_has_no_carries_and_is_restored() -> None:
    running = _totals(pa.int64(), {"mean": Avg("v")})
    columns = running._layout.columns
    assert "carry(v)" not in running._layout.describe()
    written = {"acc.rows": [2], "acc.nulls(v)": [0], "acc.sum(v)": [BIG * 2]}
    matrix = columns.restored(pa.RecordBatch.from_pydict(written))
    assert columns.results(matrix)[0].to_pylist() == [float(BIG)]
    one = pa.RecordBatch.from_pydict({"v": pa.array([BIG] * 6, pa.int64())})
    columns.accumulate(one, np.zeros(6, np.int32), matrix)  # what was restored counts for what is too large
    assert columns.results(matrix)[0].to_pylist() == [pytest.approx(float(BIG), rel=1e-15)]
