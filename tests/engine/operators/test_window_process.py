from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.functions import AggregateFunction, ProcessWindowFunction
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.operators.window_process import WindowProcessOperator
from snapshot_engine.operators.windows import SessionWindow, SlidingWindow, TumblingWindow, WindowShape
from snapshot_engine.protocol.elements import MAX_WATERMARK
from snapshot_engine.state.changed_state import RecordStateChanged
from snapshot_engine.state.packing import pack

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
ROWS = StreamType(SCHEMA, EventTime("at"))
REDUCED = StreamType(SCHEMA.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))
PLAIN = StreamType(RECORDS.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))


KEYED = StreamType(PLAIN.schema.append(pa.field(HIDDEN_KEY, pa.binary())), EventTime(HIDDEN_TIME))


def plain(*values: tuple[Any, int]) -> pa.RecordBatch:
    """Plain values with their times, all of one key."""
    packed, times = [pack(value) for value, _ in values], [time for _, time in values]
    return pa.RecordBatch.from_arrays([packed, times, [pack("a")] * len(values)], schema=KEYED.schema)


def rows(*values: tuple[str, int, int]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


class Mean(AggregateFunction):
    """An accumulator that is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, record: Any, accumulator: list[int]) -> list[int]:
        accumulator[0] += record.n
        accumulator[1] += 1
        return accumulator

    def merge(self, left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0], left[1] + right[1]]

    def get_result(self, accumulator: list[int]) -> Any:
        return {"mean": accumulator[0] / accumulator[1], "count": accumulator[1]}


class Listing(ProcessWindowFunction):
    def process(self, key: Any, context: Any, records: Any) -> Any:
        yield key, context.window.start, context.window.end, [record.n for record in records]


def opened(bench: Any, kind: Any, function: Any, window: WindowShape, output: Any = PLAIN, **kwargs: Any) -> Any:
    options = {name: kwargs.pop(name) for name in ("allowed_lateness_ms", "late_tag") if name in kwargs}
    operator = WindowProcessOperator(kind, function, ("user",), window, ROWS, output, **options)
    return operator, bench.open(operator, output, **kwargs)


def test_a_window_s_result_goes_out_when_the_watermark_has_passed_its_last_millisecond(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), TumblingWindow(10))
    operator.process(0, rows(("ann", 1, 0), ("bob", 2, 9), ("ann", 3, 9), ("ann", 4, 10)))
    operator.on_watermark(8)
    assert out.records() == []
    operator.on_watermark(9)
    assert out.records() == [("ann", 0, 10, [1, 3]), ("bob", 0, 10, [2])]
    assert out.times() == [9, 9]
    assert out.events == [8, "data", 9]
    operator.on_watermark(MAX_WATERMARK)
    assert out.records()[2:] == [("ann", 10, 20, [4])]


def test_windows_may_be_shifted_and_lie_before_the_epoch(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), TumblingWindow(10, offset_ms=3))
    operator.process(0, rows(("a", 1, -8), ("a", 2, 2), ("a", 3, 3)))
    operator.on_watermark(MAX_WATERMARK)
    assert out.records() == [("a", -17, -7, [1]), ("a", -7, 3, [2]), ("a", 3, 13, [3])]


def test_a_record_lies_in_every_sliding_window_that_covers_it(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), SlidingWindow(10, 4))
    operator.process(0, rows(("a", 1, 9)))
    operator.on_watermark(MAX_WATERMARK)
    assert out.records() == [("a", 0, 10, [1]), ("a", 4, 14, [1]), ("a", 8, 18, [1])]


def test_a_reduced_window_is_a_row(bench: Any) -> None:
    operator, out = opened(bench, "reduce", lambda a, b: (a.user, a.n + b.n, a.at), TumblingWindow(10), REDUCED)
    operator.process(0, rows(("a", 1, 0), ("a", 2, 1), ("a", 3, 2), ("b", 4, 2)))
    operator.on_watermark(100)
    assert out.records() == [("a", 6, 0), ("b", 4, 2)]
    assert out.times() == [9, 9]


def reduced_plain(bench: Any, function: Any, window: WindowShape, **options: Any) -> Any:
    operator = WindowProcessOperator("reduce", function, (HIDDEN_KEY,), window, KEYED, PLAIN, **options)
    return operator, bench.open(operator, PLAIN)


def added_in_place(old: Any, new: Any) -> Any:
    old["n"] += new["n"]
    return old


def test_a_function_that_changes_its_values_in_place_changes_them_in_one_sliding_window_only(bench: Any) -> None:
    operator, out = reduced_plain(bench, added_in_place, SlidingWindow(10, 5))
    operator.process(0, plain(({"n": 1}, 6), ({"n": 1}, 7)))
    operator.on_watermark(100)
    assert out.records() == [{"n": 2}, {"n": 2}]


def test_the_newest_record_is_each_sliding_window_s_own(bench: Any) -> None:
    def newest(old: Any, new: Any) -> Any:
        return added_in_place(old, new) if old["day"] == new["day"] else new

    operator, out = reduced_plain(bench, newest, SlidingWindow(10, 5))
    operator.process(0, plain(*(({"n": 1, "day": day}, 6) for day in (1, 2, 2))))
    operator.on_watermark(100)
    assert out.records() == [{"n": 2, "day": 2}, {"n": 2, "day": 2}]


def test_what_has_gone_out_does_not_change_with_a_late_record(bench: Any) -> None:
    operator, out = reduced_plain(bench, added_in_place, TumblingWindow(10), allowed_lateness_ms=50)
    operator.process(0, plain(({"n": 1}, 6)))
    operator.on_watermark(20)
    operator.process(0, plain(({"n": 1}, 7)))
    assert out.records() == [{"n": 1}, {"n": 2}]


class Emptying(ProcessWindowFunction):
    def process(self, key: Any, context: Any, records: Any) -> Any:
        return [record.pop("n", "gone") for record in records]


def test_a_process_function_that_changes_records_changes_them_in_one_result_only(bench: Any) -> None:
    window = SlidingWindow(10, 5)
    operator = WindowProcessOperator("process", Emptying(), (HIDDEN_KEY,), window, KEYED, PLAIN, allowed_lateness_ms=50)
    out = bench.open(operator, PLAIN)
    operator.process(0, plain(({"n": 1}, 6)))
    operator.on_watermark(30)
    operator.process(0, plain(({"n": 2}, 7)))
    assert out.records() == [1, 1, 1, 2, 1, 2]


class Joined(AggregateFunction):
    """Its accumulator begins as the first record itself, and goes out as it is."""

    def create_accumulator(self) -> Any:
        return None

    def add(self, record: Any, accumulator: Any) -> Any:
        return record if accumulator is None else added_in_place(accumulator, record)

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


def test_an_accumulator_that_is_a_record_is_one_sliding_window_s_own(bench: Any) -> None:
    window = SlidingWindow(10, 5)
    operator = WindowProcessOperator("aggregate", Joined(), (HIDDEN_KEY,), window, KEYED, PLAIN, allowed_lateness_ms=50)
    out = bench.open(operator, PLAIN)
    operator.process(0, plain(({"n": 1}, 6), ({"n": 1}, 7)))
    operator.on_watermark(30)
    operator.process(0, plain(({"n": 1}, 8)))
    assert out.records() == [{"n": 2}, {"n": 2}, {"n": 3}, {"n": 3}]


def test_an_aggregate_function_sees_its_own_accumulator(bench: Any) -> None:
    operator, out = opened(bench, "aggregate", Mean(), TumblingWindow(10))
    operator.process(0, rows(("a", 1, 0), ("a", 2, 1), ("b", 5, 1)))
    operator.process(0, rows(("a", 6, 2)))
    operator.on_watermark(100)
    assert out.records() == [{"mean": 3.0, "count": 3}, {"mean": 5.0, "count": 1}]


def test_sessions_grow_and_are_joined_by_a_record_between_them(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), SessionWindow(10))
    operator.process(0, rows(("a", 1, 0), ("a", 2, 15), ("b", 3, 5), ("a", 4, 40)))
    operator.process(0, rows(("a", 5, 8)))
    operator.on_watermark(24)
    assert out.records() == [("b", 5, 15, [3]), ("a", 0, 25, [1, 2, 5])]
    assert out.times() == [14, 24]
    operator.on_watermark(100)
    assert out.records()[2:] == [("a", 40, 50, [4])]
    assert operator.state_size()[0] == 0


def test_records_a_gap_apart_are_two_sessions(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), SessionWindow(10))
    operator.process(0, rows(("a", 1, 0), ("a", 2, 10), ("a", 3, 19)))
    operator.on_watermark(100)
    assert out.records() == [("a", 0, 10, [1]), ("a", 10, 29, [2, 3])]


@pytest.mark.parametrize("window", [TumblingWindow(10), SlidingWindow(10, 10), SessionWindow(10)])
def test_a_late_record_within_the_allowance_makes_the_result_go_out_again(bench: Any, window: WindowShape) -> None:
    operator, out = opened(bench, "process", Listing(), window, allowed_lateness_ms=5, late_tag="late")
    operator.process(0, rows(("a", 1, 0)))
    operator.on_watermark(12)
    operator.process(0, rows(("a", 2, 0), ("a", 3, 0), ("b", 4, 0)))
    operator.on_watermark(14)
    operator.process(0, rows(("a", 5, 0), ("c", 6, 0)))
    assert out.records() == [("a", 0, 10, [1]), ("a", 0, 10, [1, 2, 3]), ("b", 0, 10, [4])]
    assert out.side("late") == [("a", 5, 0), ("c", 6, 0)]
    assert operator.late_rows == 2
    operator.on_watermark(100)
    assert len(out.records()) == 3
    assert operator.state_size()[0] == 0


def test_a_session_that_was_over_and_grows_again_goes_out_at_its_new_end(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), SessionWindow(6), allowed_lateness_ms=12)
    operator.process(0, rows(("a", 1, 0)))
    operator.on_watermark(5)
    operator.process(0, rows(("a", 2, 5)))
    operator.on_watermark(9)
    assert out.records() == [("a", 0, 6, [1])]
    operator.on_watermark(10)
    assert out.records()[1:] == [("a", 0, 11, [1, 2])]


def test_a_record_is_late_only_if_it_is_for_all_its_windows(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), SlidingWindow(10, 5), late_tag="late")
    operator.on_watermark(9)
    operator.process(0, rows(("a", 1, 7), ("a", 2, 4)))
    operator.on_watermark(MAX_WATERMARK)
    assert out.records() == [("a", 5, 15, [1])]
    assert out.side("late") == [("a", 2, 4)]


def test_without_a_tag_late_records_are_only_counted(bench: Any) -> None:
    operator, out = opened(bench, "process", Listing(), TumblingWindow(10))
    operator.on_watermark(20)
    operator.process(0, rows(("a", 1, 0), ("a", 2, 20)))
    assert (operator.late_rows, out.sides) == (1, [])


def test_a_process_function_may_use_side_outputs(bench: Any) -> None:
    class Sides(ProcessWindowFunction):
        def process(self, key: Any, context: Any, records: Any) -> Any:
            context.emit_side("big", (key, context.current_watermark, context.processing_time()))
            return []

    operator, out = opened(bench, "process", Sides(), TumblingWindow(10))
    operator.process(0, rows(("a", 1, 0)))
    operator.on_watermark(50)
    assert out.side("big") == [("a", 50, bench.now)]
    assert out.sides[0][1].timestamps.tolist() == [9]


def test_exceptions_show_the_record_or_the_window(bench: Any) -> None:
    operator, _ = opened(bench, "reduce", lambda a, b: a.n // b.n, TumblingWindow(10), REDUCED)
    with pytest.raises(UserFunctionError, match=r"(?s)window's reduce function.*ZeroDivisionError.*n=0, at=2"):
        operator.process(0, rows(("a", 1, 1), ("a", 0, 2), ("a", 3, 3)))

    class Broken(Listing):
        def process(self, key: Any, context: Any, records: Any) -> Any:
            raise RuntimeError("no")

    operator, _ = opened(bench, "process", Broken(), TumblingWindow(10))
    operator.process(0, rows(("a", 1, 1)))
    with pytest.raises(UserFunctionError, match=r"for key 'a' and Window\(start=0, end=10\)"):
        operator.on_watermark(10)


def test_another_window_is_another_state(bench: Any) -> None:
    operator, _ = opened(bench, "process", Listing(), TumblingWindow(10))
    operator.process(0, rows(("a", 1, 1)))
    state = bench.snapshot(operator)
    with pytest.raises(RecordStateChanged, match="'windows'"):
        opened(bench, "process", Listing(), TumblingWindow(20), restored=[state])


@pytest.mark.parametrize("window", [TumblingWindow(10), SessionWindow(10)])
def test_another_kind_of_function_is_told_though_both_keep_plain_values(bench: Any, window: WindowShape) -> None:
    def windows(kind: Any, function: Any, **kwargs: Any) -> WindowProcessOperator:
        operator = WindowProcessOperator(kind, function, (HIDDEN_KEY,), window, KEYED, PLAIN)
        bench.open(operator, PLAIN, **kwargs)
        return operator

    reduced = windows("reduce", max)
    reduced.process(0, plain((3, 1), (4, 2)))
    state = bench.snapshot(reduced)
    with pytest.raises(
        RecordStateChanged, match=r"reduce of any in the checkpoint, but is declared as .* aggregate of"
    ):
        windows("aggregate", Mean(), restored=[state])
    older = {name: text.replace(" reduce of", " of") for name, text in state.schema["states"].items()}
    windows("reduce", max, restored=[replace(state, schema={**state.schema, "states": older})])


def test_what_is_added_after_the_barrier_is_not_in_the_checkpoint(bench: Any) -> None:
    for kind, function in (("aggregate", Mean()), ("process", Listing())):
        for window in (TumblingWindow(10), SessionWindow(10)):
            operator, _ = opened(bench, kind, function, window)
            operator.process(0, rows(("a", 1, 1)))
            snapshot = operator.snapshot(1)
            operator.process(0, rows(("a", 5, 2)))
            again, out = opened(bench, kind, function, window, restored=[snapshot.write(bench.pieces)])
            again.on_watermark(100)
            assert out.records()[0] in ({"mean": 1.0, "count": 1}, ("a", 0, 10, [1]), ("a", 1, 11, [1]))


def expected_windows(window: WindowShape, records: list[tuple[str, int, int]]) -> list[Any]:
    """Every window with its records, worked out from all records at once."""
    found: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    if isinstance(window, SessionWindow):
        for user in {record[0] for record in records}:
            mine = sorted((at, n) for name, n, at in records if name == user)
            start = end = mine[0][0]
            group: list[int] = []
            for at, n in mine:
                if group and at >= end + window.gap_ms:
                    found[user, start, end + window.gap_ms] = group
                    group, start = [], at
                group.append(n)
                end = at
            found[user, start, end + window.gap_ms] = group
    else:
        slide = window.slide_ms if isinstance(window, SlidingWindow) else window.size_ms
        for user, n, at in records:
            for start in range(-200, 1000):
                if (start - window.offset_ms) % slide == 0 and start <= at < start + window.size_ms:
                    found[user, start, start + window.size_ms].append(n)
    return [(user, start, end, sorted(ns)) for (user, start, end), ns in found.items()]


shapes = st.sampled_from(
    [TumblingWindow(7), TumblingWindow(10, 3), SlidingWindow(10, 3), SlidingWindow(4, 10), SessionWindow(6)]
)


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32), window=shapes, incremental=st.booleans())
def test_windows_are_those_of_all_records_over_any_order_restores_and_rescaling(
    new_bench: Any, seed: int, window: WindowShape, incremental: bool
) -> None:
    """Records out of order, but never later than the watermark: each window goes out once, with all its records."""
    rng = random.Random(seed)
    bench = new_bench()
    records = [
        (rng.choice("abcd"), number, at) for number, at in enumerate(rng.choices(range(100), k=rng.randrange(1, 60)))
    ]
    records.sort(key=lambda record: record[2] + rng.randrange(15))
    parallelism = 1
    subtasks = [opened(bench, "process", Listing(), window, incremental=incremental)]
    results: list[Any] = []
    remaining, checkpoint = list(records), 0
    while remaining:
        size = rng.randrange(1, 10)
        batch, remaining = rows(*remaining[:size]), remaining[size:]
        for (operator, _), part in zip(
            subtasks, HashPartitioner(("user",), parallelism, 128).split(batch), strict=True
        ):
            if part is not None:
                operator.process(0, part)
        if remaining and rng.random() < 0.6:
            for operator, _ in subtasks:
                operator.on_watermark(min(record[2] for record in remaining) - 1)
        if rng.random() < 0.5:
            checkpoint += 1
            states = [bench.snapshot(operator, checkpoint) for operator, _ in subtasks]
            for operator, _ in subtasks:
                (operator.on_completed if rng.random() < 0.6 else operator.on_aborted)(checkpoint)
            if rng.random() < 0.6:
                results += [value for _, out in subtasks for value in out.records()]
                old, parallelism = parallelism, rng.choice((1, 2, 3))
                subtasks = [
                    opened(
                        bench,
                        "process",
                        Listing(),
                        window,
                        subtask=index,
                        parallelism=parallelism,
                        restored=states if old != parallelism else [states[index]],
                        rescaled=old != parallelism,
                        incremental=incremental,
                    )
                    for index in range(parallelism)
                ]
    for operator, out in subtasks:
        operator.on_watermark(MAX_WATERMARK)
        results += out.records()
        assert operator.late_rows == 0
        assert operator.state_size()[0] == 0
    assert sorted((user, start, end, sorted(ns)) for user, start, end, ns in results) == sorted(
        expected_windows(window, records)
    )


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), window=shapes, lateness=st.integers(0, 12))
def test_with_late_records_the_last_result_of_a_window_has_all_that_were_in_time(
    new_bench: Any, seed: int, window: WindowShape, lateness: int
) -> None:
    """Whatever is late beyond the allowance goes to the late output, each record once; nothing is lost."""
    rng = random.Random(seed)
    bench = new_bench()
    operator, out = opened(bench, "process", Listing(), window, allowed_lateness_ms=lateness, late_tag="late")
    records = [(rng.choice("ab"), number, rng.randrange(60)) for number in range(40)]
    watermark = -1
    for start in range(0, 40, 4):
        operator.process(0, rows(*records[start : start + 4]))
        watermark += rng.randrange(12)
        operator.on_watermark(watermark)
        late = {row[1] for row in out.side("late")}
        shown = {n for *_, ns in out.records() for n in ns}
        known = expected_windows(window, [record for record in records[: start + 4] if record[1] not in late])
        waiting = {n for *_, end, ns in known for n in ns if end - 1 > watermark}
        assert {n for *_, ns in known for n in ns} <= shown | waiting, "all its windows are over, but it did not go out"
    operator.on_watermark(MAX_WATERMARK)
    late = {row[1] for row in out.side("late")}
    assert len(late) == len(out.side("late")) == operator.late_rows
    last = {(user, start, end): ns for user, start, end, ns in out.records()}
    seen = {n for ns in last.values() for n in ns}
    in_a_gap = {n for user, n, at in records if not expected_windows(window, [(user, n, at)])}
    assert seen | late | in_a_gap == {record[1] for record in records}
    assert not late & seen
    assert operator.state_size()[0] == 0
