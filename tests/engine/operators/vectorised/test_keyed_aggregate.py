"""Running totals against a model that keeps every value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.operators.aggregates import Aggregate, Count, CountDistinct, Max, Sum
from snapshot_engine.operators.keyed_aggregate import KeyedAggregateOperator, output_type
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
