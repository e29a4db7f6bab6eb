"""Windows against a model that keeps every value, with barriers, crashes and rescaling anywhere in between."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.kernels.arrow_views import UnsupportedType
from snapshot_engine.operators.aggregates import Aggregate, Avg, Count, CountDistinct, Max, Min, Sum
from snapshot_engine.operators.stream_type import EventTime, StreamType
from snapshot_engine.operators.window_aggregate import WindowAggregateOperator, output_type
from snapshot_engine.operators.windows import SlidingWindow, TumblingWindow
from snapshot_engine.protocol.elements import MIN_WATERMARK

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("shard", pa.int32()),
        pa.field("time", pa.int64()),
        pa.field("price", pa.int64()),
        pa.field("weight", pa.float64()),
        pa.field("seen", pa.timestamp("us")),
    ]
)
INPUT = StreamType(SCHEMA, EventTime("time"))

AGGREGATES: dict[str, Aggregate] = {
    "rows": Count(),
    "total": Sum("price"),
    "mean": Avg("price"),
    "least": Min("price"),
    "heaviest": Max("weight"),
    "last": Max("seen"),
    "weights": Sum("weight"),
    "prices": CountDistinct("price"),
}


def aggregate(rows: list[Row]) -> tuple[Any, ...]:
    def present(name: str) -> list[Any]:
        return [row[name] for row in rows if row[name] is not None]

    prices, weights, seen = present("price"), present("weight"), present("seen")
    return (
        len(rows),
        sum(prices) if prices else None,
        sum(prices) / len(prices) if prices else None,
        min(prices, default=None),
        max(weights, default=None),
        max(seen, default=None),
        sum(weights) if weights else None,
        len(set(prices)),
    )


class WindowModel:
    def __init__(self, keys: tuple[str, ...], window: TumblingWindow | SlidingWindow, lateness: int) -> None:
        self.keys = keys
        self.size = window.size_ms
        self.slide = window.slide_ms if isinstance(window, SlidingWindow) else window.size_ms
        self.offset = window.offset_ms
        self.lateness = lateness
        self.now = MIN_WATERMARK
        self.windows: dict[tuple[int, tuple[Any, ...]], list[Row]] = {}

    def starts(self, time: int) -> list[int]:
        last = (time - self.offset) // self.slide * self.slide + self.offset
        return [start for start in range(last, time - self.size, -self.slide) if start <= time < start + self.size]

    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
        changed, late = {}, []
        for row in rows:
            starts = self.starts(row["time"])
            open_ = [start for start in starts if start + self.size - 1 + self.lateness > self.now]
            if starts and not open_:
                late.append(tuple(row[name] for name in SCHEMA.names))
            for start in open_:
                where = (start, tuple(row[key] for key in self.keys))
                self.windows.setdefault(where, []).append(row)
                if start + self.size - 1 <= self.now:
                    changed[where] = None
        return [self.result(*where) for where in changed], late

    def watermark(self, timestamp: int) -> list[Any]:
        fired = [where for where in self.windows if self.now < where[0] + self.size - 1 <= timestamp]
        self.now = max(self.now, timestamp)
        return [self.result(*where) for where in fired]

    def result(self, start: int, key: tuple[Any, ...]) -> tuple[Any, ...]:
        epoch = dt.datetime(1970, 1, 1)
        times = (epoch + dt.timedelta(milliseconds=start), epoch + dt.timedelta(milliseconds=start + self.size))
        return (*key, *times, *aggregate(self.windows[start, key]))


def rows_between(first: int, last: int) -> st.SearchStrategy[list[Row]]:
    row = st.fixed_dictionaries(
        {
            "key": st.sampled_from([None, "", "a", "bb", "a key of more than sixteen bytes", "ü"]),
            "shard": st.sampled_from([None, 0, 1, -5]),
            "time": st.integers(first, last),
            "price": st.sampled_from([None, 0, 1, 7, -(2**40)]),
            "weight": st.sampled_from([None, 0.5, 2.0, -1.25]),
            "seen": st.sampled_from([None, dt.datetime(2020, 1, 1), dt.datetime(2024, 6, 1)]),
        }
    )
    return st.lists(row, min_size=1, max_size=8)


def drive(fleet: Any, data: st.DataObject, steps: int = 25) -> None:
    """Random steps, with event time going forward and rows around it, some of them late."""
    now = 0
    for _ in range(data.draw(st.integers(1, steps), label="steps")):
        step = data.draw(st.sampled_from(["rows", "rows", "rows", "watermark", "barrier", "finish", "abort", "crash"]))
        if step == "rows":
            fleet.process(data.draw(rows_between(now - 40, now + 40)))
        elif step == "watermark":
            now += data.draw(st.integers(0, 30))
            fleet.watermark(now)
        elif step == "barrier":
            fleet.snapshot()
        elif step == "crash":
            fleet.crash(data.draw(st.sampled_from([1, 2, 3])), doubled=data.draw(st.booleans()))
        elif fleet.pending:
            number = data.draw(st.sampled_from(sorted(fleet.pending)))
            if data.draw(st.booleans(), label="written"):
                fleet.write(number)
            fleet.finish(number) if step == "finish" else fleet.abort(number)
    fleet.end()


def make(keys: tuple[str, ...], window: TumblingWindow | SlidingWindow, lateness: int) -> WindowAggregateOperator:
    return WindowAggregateOperator(
        keys=keys,
        window=window,
        aggregates=AGGREGATES,
        input=INPUT,
        output=output_type(keys, AGGREGATES, INPUT),
        allowed_lateness_ms=lateness,
        late_tag="late",
    )


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("lateness", [0, 15])
@pytest.mark.parametrize(
    ("keys", "window"),
    [
        (("key",), TumblingWindow(10)),
        (("shard",), TumblingWindow(10, offset_ms=3)),
        (("shard", "price"), TumblingWindow(7)),
        (("key", "shard"), SlidingWindow(20, 10)),
        (("shard",), SlidingWindow(15, 10, offset_ms=-4)),
        (("key",), SlidingWindow(5, 12)),
    ],
)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_windows_survive_anything(
    fleet: Any, keys: tuple[str, ...], window: Any, lateness: int, incremental: bool, data: st.DataObject
) -> None:
    model = WindowModel(keys, window, lateness)
    drive(fleet(lambda: make(keys, window, lateness), [keys], [SCHEMA], model, incremental=incremental), data)


def times_type(aggregates: Mapping[str, Aggregate]) -> StreamType:
    return output_type(("key",), aggregates, INPUT)


def test_the_output_has_keys_then_the_window_then_the_aggregates() -> None:
    type_ = times_type(AGGREGATES)
    assert type_.event_time == EventTime("window_end", -1)
    assert [f"{field.name}: {field.type}" for field in type_.schema] == [
        "key: string",
        "window_start: timestamp[ms]",
        "window_end: timestamp[ms]",
        "rows: int64",
        "total: int64",
        "mean: double",
        "least: int64",
        "heaviest: double",
        "last: timestamp[us]",
        "weights: double",
        "prices: int64",
    ]


def test_a_sum_over_strings_is_refused_by_name() -> None:
    with pytest.raises(
        UnsupportedType, match=r"total=Sum\(column='key'\): column 'key' is string, but must be a number"
    ):
        times_type({"total": Sum("key")})


@pytest.mark.parametrize("rows", [1, 70_000, 140_000])
def test_large_windows_go_out_in_batches_of_bounded_size(fleet: Any, rows: int) -> None:
    aggregates: dict[str, Aggregate] = {"rows": Count()}
    input = StreamType(pa.schema([("shard", pa.int64()), ("time", pa.int64())]), EventTime("time"))
    operator = WindowAggregateOperator(
        keys=("shard",),
        window=TumblingWindow(10),
        aggregates=aggregates,
        input=input,
        output=output_type(("shard",), aggregates, input),
    )
    running = fleet(lambda: operator, [("shard",)], [input.schema], NoModel(), parallelism=1)
    running.operators[0].process(0, pa.record_batch({"shard": range(rows), "time": [5] * rows}, schema=input.schema))
    running.watermark(9)
    assert len(running.rows) == rows
    assert running.outputs[0].largest <= 65_536


class NoModel:
    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
        return [], []

    def watermark(self, timestamp: int) -> list[Any]:
        return []


def test_rows_without_a_late_output_are_counted(fleet: Any) -> None:
    operator = WindowAggregateOperator(
        keys=("key",),
        window=TumblingWindow(10),
        aggregates={"rows": Count()},
        input=INPUT,
        output=times_type({"rows": Count()}),
    )
    running = fleet(lambda: operator, [("key",)], [SCHEMA], NoModel(), parallelism=1)
    running.watermark(98)
    running.process([{"key": "a", "time": 50}, {"key": "a", "time": 95}, {"key": "b", "time": 89}])
    assert running.operators[0].late_rows == 2
