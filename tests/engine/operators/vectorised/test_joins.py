"""Joins against nested loops, with barriers, crashes and rescaling anywhere in between."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.operators import interval_join, keyed_join, window_join
from snapshot_engine.operators.interval_join import IntervalJoinOperator
from snapshot_engine.operators.keyed_join import KeyedJoinOperator
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime, StreamType
from snapshot_engine.operators.window_join import WindowJoinOperator
from snapshot_engine.operators.windows import SessionWindow, SlidingWindow, TumblingWindow
from snapshot_engine.protocol.elements import MIN_WATERMARK

Row = dict[str, Any]

ORDERS = StreamType(
    pa.schema([("time", pa.int64()), ("customer", pa.string()), ("region", pa.int32()), ("price", pa.float64())]),
    EventTime("time"),
)
CUSTOMERS = StreamType(
    pa.schema([("name", pa.string()), ("area", pa.int32()), ("price", pa.int64()), ("time", pa.int64())]),
    EventTime("time"),
)
LEFT_KEYS, RIGHT_KEYS = ("customer", "region"), ("name", "area")


def left_key(row: Row) -> tuple[Any, ...]:
    return row["customer"], row["region"]


def right_key(row: Row) -> tuple[Any, ...]:
    return row["name"], row["area"]


def pairs(left: list[Row], right: list[Row], how: str) -> list[tuple[Any, ...]]:
    """(key, left time, left price, right price, right time)"""
    found: list[tuple[Any, ...]] = []
    matched_right: set[int] = set()
    for a in left:
        partners = [n for n, b in enumerate(right) if left_key(a) == right_key(b) and None not in left_key(a)]
        matched_right.update(partners)
        found += [(*left_key(a), a["time"], a["price"], right[n]["price"], right[n]["time"]) for n in partners]
        if not partners and how in ("left", "outer"):
            found.append((*left_key(a), a["time"], a["price"], None, None))
    if how in ("right", "outer"):
        alone = [b for n, b in enumerate(right) if n not in matched_right]
        found += [(*right_key(b), None, None, b["price"], b["time"]) for b in alone]
    return found


class WindowJoinModel:
    def __init__(self, window: TumblingWindow | SlidingWindow, how: str) -> None:
        self.size = window.size_ms
        self.slide = window.slide_ms if isinstance(window, SlidingWindow) else window.size_ms
        self.how = how
        self.now = MIN_WATERMARK
        self.windows: dict[int, tuple[list[Row], list[Row]]] = {}

    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
        for row in rows:
            last = row["time"] // self.slide * self.slide
            for start in range(last, row["time"] - self.size, -self.slide):
                if start + self.size - 1 > self.now:
                    self.windows.setdefault(start, ([], []))[port].append(row)
        return [], []

    def watermark(self, timestamp: int) -> list[Any]:
        fired = []
        for start in [start for start in self.windows if start + self.size - 1 <= timestamp]:
            times = [dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=t) for t in (start, start + self.size)]
            left, right = self.windows.pop(start)
            fired += [(*pair[:2], *times, *pair[2:]) for pair in pairs(left, right, self.how)]
        self.now = max(self.now, timestamp)
        return fired


class KeyedJoinModel:
    def __init__(self) -> None:
        self.rows: tuple[list[Row], list[Row]] = ([], [])

    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
        new = (rows, self.rows[1]) if port == 0 else (self.rows[0], rows)
        found = pairs(*new, "inner")
        self.rows[port].extend(rows)
        return found, []

    def watermark(self, timestamp: int) -> list[Any]:
        return []


class IntervalJoinModel:
    """Keeps every row for ever: what the operator forgets must not be missed."""

    def __init__(self, before: int, after: int) -> None:
        self.before, self.after = before, after
        self.now = MIN_WATERMARK
        self.rows: tuple[list[Row], list[Row]] = ([], [])

    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
        in_time = [row for row in rows if row["time"] > self.now]
        new = (in_time, self.rows[1]) if port == 0 else (self.rows[0], in_time)
        self.rows[port].extend(in_time)
        near = [pair for pair in pairs(*new, "inner") if -self.before <= pair[5] - pair[2] <= self.after]
        return [(*pair, max(pair[2], pair[5])) for pair in near], []

    def watermark(self, timestamp: int) -> list[Any]:
        self.now = max(self.now, timestamp)
        return []


def rows_at(port: int, now: int) -> st.SearchStrategy[list[Row]]:
    names = ("customer", "region") if port == 0 else ("name", "area")
    row = st.fixed_dictionaries(
        {
            names[0]: st.sampled_from([None, "a", "bb", "a name of more than sixteen bytes"]),
            names[1]: st.sampled_from([None, 1, 2]),
            "time": st.integers(now - 15, now + 30),
            "price": st.sampled_from([None, 1, 2, 3]),
        }
    )
    return st.lists(row, min_size=1, max_size=6)


def drive(running: Any, data: st.DataObject) -> None:
    now = 0
    steps = ["rows", "rows", "rows", "rows", "watermark", "barrier", "finish", "abort", "crash"]
    for _ in range(data.draw(st.integers(1, 25), label="steps")):
        step = data.draw(st.sampled_from(steps))
        if step == "rows":
            port = data.draw(st.sampled_from([0, 1]))
            running.process(data.draw(rows_at(port, now)), port)
        elif step == "watermark":
            now += data.draw(st.integers(0, 20))
            running.watermark(now)
        elif step == "barrier":
            running.snapshot()
        elif step == "crash":
            running.crash(data.draw(st.sampled_from([1, 2, 3])), doubled=data.draw(st.booleans()))
        elif running.pending:
            number = data.draw(st.sampled_from(sorted(running.pending)))
            running.finish(number) if step == "finish" else running.abort(number)
    running.end()


def make_window_join(window: Any, how: Any) -> WindowJoinOperator:
    output = window_join.output_type(LEFT_KEYS, RIGHT_KEYS, how, ORDERS, CUSTOMERS)
    return WindowJoinOperator(
        left_keys=LEFT_KEYS,
        right_keys=RIGHT_KEYS,
        window=window,
        how=how,
        left=ORDERS,
        right=CUSTOMERS,
        output=output,
    )


def make_keyed_join() -> KeyedJoinOperator:
    output = keyed_join.output_type(LEFT_KEYS, RIGHT_KEYS, ORDERS, CUSTOMERS)
    return KeyedJoinOperator(left_keys=LEFT_KEYS, right_keys=RIGHT_KEYS, left=ORDERS, right=CUSTOMERS, output=output)


def make_interval_join(before: int, after: int) -> IntervalJoinOperator:
    output = interval_join.output_type(LEFT_KEYS, RIGHT_KEYS, ORDERS, CUSTOMERS)
    return IntervalJoinOperator(
        left_keys=LEFT_KEYS,
        right_keys=RIGHT_KEYS,
        before_ms=before,
        after_ms=after,
        left=ORDERS,
        right=CUSTOMERS,
        output=output,
    )


@pytest.mark.parametrize("window", [TumblingWindow(10), SlidingWindow(20, 10)])
@pytest.mark.parametrize(
    ("how", "incremental"), [("inner", True), ("inner", False), ("left", True), ("right", True), ("outer", True)]
)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_window_joins_survive_anything(
    fleet: Any, window: Any, how: str, incremental: bool, data: st.DataObject
) -> None:
    schemas = [ORDERS.schema, CUSTOMERS.schema]
    model = WindowJoinModel(window, how)
    make = lambda: make_window_join(window, how)  # noqa: E731
    drive(fleet(make, [LEFT_KEYS, RIGHT_KEYS], schemas, model, incremental=incremental), data)


@pytest.mark.parametrize("incremental", [False, True])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_keyed_joins_survive_anything(fleet: Any, incremental: bool, data: st.DataObject) -> None:
    schemas = [ORDERS.schema, CUSTOMERS.schema]
    keys = [LEFT_KEYS, RIGHT_KEYS]
    drive(fleet(make_keyed_join, keys, schemas, KeyedJoinModel(), incremental=incremental), data)


@pytest.mark.parametrize(("before", "after"), [(0, 0), (0, 20), (5, 0), (7, 12)])
@pytest.mark.parametrize("incremental", [False, True])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_interval_joins_survive_anything(
    fleet: Any, before: int, after: int, incremental: bool, data: st.DataObject
) -> None:
    schemas = [ORDERS.schema, CUSTOMERS.schema]
    make = lambda: make_interval_join(before, after)  # noqa: E731
    model = IntervalJoinModel(before, after)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interval_join, "_FEWEST_SWEPT", data.draw(st.sampled_from([1, 5, 1000])))
        drive(fleet(make, [LEFT_KEYS, RIGHT_KEYS], schemas, model, incremental=incremental), data)


def test_an_interval_join_forgets_rows_that_nothing_can_meet_any_more(fleet: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(interval_join, "_FEWEST_SWEPT", 1)
    model = IntervalJoinModel(0, 20)
    running = fleet(
        lambda: make_interval_join(0, 20),
        [LEFT_KEYS, RIGHT_KEYS],
        [ORDERS.schema, CUSTOMERS.schema],
        model,
        parallelism=1,
    )
    for now in range(0, 1000, 10):
        running.process([{"customer": f"c{now}", "region": 1, "time": now + 1, "price": 1}], 0)
        running.process([{"name": f"c{now}", "area": 1, "time": now + 5, "price": 1}], 1)
        running.watermark(now)
    assert running.operators[0].state_size()[0] < 20
    running.end()


@pytest.mark.parametrize(
    "make", [lambda: make_window_join(TumblingWindow(10), "inner"), lambda: make_interval_join(0, 20)]
)
def test_late_rows_are_counted(fleet: Any, make: Any) -> None:
    model = IntervalJoinModel(0, 20)
    running = fleet(make, [LEFT_KEYS, RIGHT_KEYS], [ORDERS.schema, CUSTOMERS.schema], model, parallelism=1)
    running.watermark(49)
    running.process([{"customer": "a", "region": 1, "time": time, "price": 1} for time in (1, 40, 60)], 0)
    running.process([{"name": "a", "area": 1, "time": 2, "price": 1}], 1)
    assert running.operators[0].late_rows == 3


@pytest.mark.parametrize("incremental", [False, True])
@pytest.mark.parametrize("make", [make_keyed_join, lambda: make_interval_join(0, 20)], ids=["keyed", "interval"])
def test_joins_keep_nothing_of_checkpoints_that_are_over(fleet: Any, make: Any, incremental: bool) -> None:
    schemas = [ORDERS.schema, CUSTOMERS.schema]
    model = KeyedJoinModel() if make is make_keyed_join else IntervalJoinModel(0, 20)
    running = fleet(make, [LEFT_KEYS, RIGHT_KEYS], schemas, model, incremental=incremental, parallelism=1)
    for number in range(1, 51):
        running.process([{"customer": "a", "region": 1, "time": 1, "price": 1}], 0)
        running.snapshot()
        running.finish(number)
    assert len(running.operators[0]._sizes) <= 10


def test_the_output_has_keys_window_and_both_sides_columns() -> None:
    type_ = window_join.output_type(LEFT_KEYS, RIGHT_KEYS, "inner", ORDERS, CUSTOMERS)
    assert type_.schema.names == [
        "customer",
        "region",
        "window_start",
        "window_end",
        "time",
        "price",
        "price_right",
        "time_right",
    ]
    assert type_.event_time == EventTime("window_end", -1)
    keyed = keyed_join.output_type(LEFT_KEYS, RIGHT_KEYS, ORDERS, CUSTOMERS)
    assert keyed.schema.names == ["customer", "region", "time", "price", "price_right", "time_right"]


def test_hidden_columns_do_not_come_out() -> None:
    timed = StreamType(CUSTOMERS.schema.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))
    type_ = window_join.output_type(LEFT_KEYS, RIGHT_KEYS, "inner", ORDERS, timed)
    assert HIDDEN_TIME not in type_.schema.names


def test_two_columns_of_one_name_are_refused() -> None:
    clash = StreamType(ORDERS.schema.append(pa.field("price_right", pa.int64())), ORDERS.event_time)
    with pytest.raises(ValueError, match="two columns 'price_right': rename 'price' of the right stream"):
        keyed_join.output_type(LEFT_KEYS, RIGHT_KEYS, clash, CUSTOMERS)


def test_sessions_are_refused() -> None:
    with pytest.raises(ValueError, match="a join needs tumbling or sliding windows"):
        make_window_join(SessionWindow(10), "inner")


def test_a_key_with_very_many_partners_goes_out_in_bounded_batches(fleet: Any) -> None:
    class Ignored:
        def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]:
            return [], []

        def watermark(self, timestamp: int) -> list[Any]:
            return []

    schemas = [ORDERS.schema, CUSTOMERS.schema]
    running = fleet(make_keyed_join, [LEFT_KEYS, RIGHT_KEYS], schemas, Ignored(), parallelism=1)
    operator = running.operators[0]
    many = 70_000
    times = np.arange(many)
    orders = pa.record_batch(
        [times, pa.array(["a"] * many), pa.array([1] * many, pa.int32()), times * 1.0], ORDERS.schema
    )
    customers = [{"name": "a", "area": 1, "price": price, "time": 0} for price in (1, 2)]
    for start in range(0, many, 7000):
        operator.process(0, orders.slice(start, 7000))
    operator.process(1, pa.RecordBatch.from_pylist(customers, CUSTOMERS.schema))
    found = running.outputs[0].rows
    assert len(found) == len(set(found)) == 2 * many
    assert running.outputs[0].largest <= 65_536
    assert operator.state_size()[0] == many + 2
