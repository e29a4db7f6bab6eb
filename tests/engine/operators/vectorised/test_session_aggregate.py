"""Sessions against a model that looks at one row after the other, with barriers, crashes and rescaling in between."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.kernels.arrow_views import UnsupportedType
from snapshot_engine.operators.aggregates import Aggregate, Avg, Count, CountDistinct, Max, Min, Sum
from snapshot_engine.operators.session_aggregate import SessionAggregateOperator, output_type
from snapshot_engine.operators.stream_type import EventTime, StreamType
from snapshot_engine.operators.windows import SessionWindow
from snapshot_engine.protocol.elements import MIN_WATERMARK

Row = dict[str, Any]

SCHEMA = pa.schema(
    [("key", pa.string()), ("time", pa.timestamp("ms")), ("price", pa.uint64()), ("weight", pa.float32())]
)
INPUT = StreamType(SCHEMA, EventTime("time"))
GAP = 10

AGGREGATES: dict[str, Aggregate] = {
    "rows": Count(),
    "least": Min("price"),
    "most": Max("price"),
    "mean": Avg("weight"),
    "lightest": Min("weight"),
}


def epoch(milliseconds: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=milliseconds)


def milliseconds(time: dt.datetime) -> int:
    return round((time - dt.datetime(1970, 1, 1)).total_seconds() * 1000)


class SessionModel:
    def __init__(self, lateness: int) -> None:
        self.lateness = lateness
        self.now = MIN_WATERMARK
        self.sessions: dict[Any, list[list[Row]]] = {}

    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
        touched, late = [], []
        for row in rows:
            time = milliseconds(row["time"])
            sessions = self.sessions.setdefault(row["key"], [])
            joined = [s for s in sessions if first(s) < time + GAP and time < end(s)]
            if not joined and time + GAP - 1 + self.lateness <= self.now:
                late.append(tuple(row[name] for name in SCHEMA.names))
                continue
            merged = [*(each for session in joined for each in session), row]
            self.sessions[row["key"]] = [*(s for s in sessions if not any(s is j for j in joined)), merged]
            touched.append(row["key"])
        again = [
            self.result(key, session)
            for key in dict.fromkeys(touched)
            for session in self.sessions[key]
            if end(session) - 1 <= self.now and any(row in session for row in rows if row["key"] == key)
        ]
        return again, late

    def watermark(self, timestamp: int) -> list[Any]:
        fired = []
        for key, sessions in self.sessions.items():
            fired += [self.result(key, s) for s in sessions if self.now < end(s) - 1 <= timestamp]
        self.now = max(self.now, timestamp)
        self.sessions = {
            key: [s for s in sessions if end(s) - 1 + self.lateness > self.now]
            for key, sessions in self.sessions.items()
        }
        return fired

    def result(self, key: Any, session: list[Row]) -> tuple[Any, ...]:
        prices = [row["price"] for row in session if row["price"] is not None]
        weights = [row["weight"] for row in session if row["weight"] is not None]
        return (
            key,
            epoch(first(session)),
            epoch(end(session)),
            len(session),
            min(prices, default=None),
            max(prices, default=None),
            sum(weights) / len(weights) if weights else None,
            min(weights, default=None),
        )


def first(session: list[Row]) -> int:
    return min(milliseconds(row["time"]) for row in session)


def end(session: list[Row]) -> int:
    return max(milliseconds(row["time"]) for row in session) + GAP


def rows_between(earliest: int, latest: int) -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "key": st.sampled_from([None, "", "a", "b", "a key of more than sixteen bytes"]),
            "time": st.integers(earliest, latest).map(epoch),
            "price": st.sampled_from([None, 0, 1, 2**63, 2**64 - 1]),
            "weight": st.sampled_from([None, 0.5, -2.0]),
        }
    )
    return st.lists(row, min_size=1, max_size=8, unique_by=lambda row: (row["key"], row["time"]))


def make(lateness: int) -> SessionAggregateOperator:
    return SessionAggregateOperator(
        keys=("key",),
        window=SessionWindow(GAP),
        aggregates=AGGREGATES,
        input=INPUT,
        output=output_type(("key",), AGGREGATES, INPUT),
        allowed_lateness_ms=lateness,
        late_tag="late",
    )


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("lateness", [0, 25])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_sessions_survive_anything(fleet: Any, lateness: int, incremental: bool, data: st.DataObject) -> None:
    running = fleet(lambda: make(lateness), [("key",)], [SCHEMA], SessionModel(lateness), incremental=incremental)
    now = 0
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        step = data.draw(st.sampled_from(["rows", "rows", "rows", "watermark", "barrier", "finish", "abort", "crash"]))
        if step == "rows":
            running.process(data.draw(rows_between(now - 40, now + 40)))
        elif step == "watermark":
            now += data.draw(st.integers(0, 30))
            running.watermark(now)
        elif step == "barrier":
            running.snapshot()
        elif step == "crash":
            running.crash(data.draw(st.sampled_from([1, 2, 3])), doubled=data.draw(st.booleans()))
        elif running.pending:
            number = data.draw(st.sampled_from(sorted(running.pending)))
            if data.draw(st.booleans(), label="written"):
                running.write(number)
            running.finish(number) if step == "finish" else running.abort(number)
    running.end()


def test_late_rows_are_counted(fleet: Any) -> None:
    running = fleet(lambda: make(0), [("key",)], [SCHEMA], SessionModel(0), parallelism=1)
    running.watermark(1000)
    running.process([{"key": "a", "time": epoch(time), "price": 1, "weight": 1.0} for time in (1, 500, 2000)])
    assert running.operators[0].late_rows == 2


def test_keys_without_sessions_are_forgotten(fleet: Any) -> None:
    class Ignored:
        def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
            return [], []

        def watermark(self, timestamp: int) -> list[Any]:
            return []

    running = fleet(lambda: make(0), [("key",)], [SCHEMA], Ignored(), parallelism=1)
    operator = running.operators[0]
    seen = 0
    for round_ in range(30):
        names = [f"key {number}" for number in range(seen, seen + 2000)]
        seen += 1900  # some of the keys go on in the next round
        times = np.full(len(names), round_ * 100, np.int64).view("datetime64[ms]")
        columns = [names, times, np.ones(len(names), np.uint64), np.ones(len(names), np.float32)]
        operator.process(0, pa.record_batch([pa.array(column) for column in columns], schema=SCHEMA))
        running.watermark(round_ * 100 + 50)
        assert operator.state_size()[0] == 0
    assert len(running.rows) == 30 * 2000
    assert operator._sessions._keys.size < 25_000


def test_distinct_counts_are_refused() -> None:
    with pytest.raises(UnsupportedType, match="distinct values of 'price' cannot be counted in session windows"):
        output_type(("key",), {"prices": CountDistinct("price")}, INPUT)


def test_a_gap_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="the gap must be at least one millisecond"):
        SessionAggregateOperator(
            keys=("key",),
            window=SessionWindow(0),
            aggregates={"total": Sum("price")},
            input=INPUT,
            output=output_type(("key",), {"total": Sum("price")}, INPUT),
        )
