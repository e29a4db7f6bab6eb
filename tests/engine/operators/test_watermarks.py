from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.operators.records import Records
from snapshot_engine.operators.stream_type import HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.operators.watermarks import WatermarkOperator
from snapshot_engine.protocol.elements import MAX_WATERMARK
from snapshot_engine.protocol.source_drift import NOBODY_AHEAD, SourceDrift

SCHEMA = pa.schema([("at", pa.int64())])
INPUT = StreamType(SCHEMA)
PLAIN = StreamType(RECORDS)
PLAIN_TIMED = StreamType(RECORDS.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))


def times(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"at": list(values)}, schema=SCHEMA)


def by_column(delay: int = 0, idle: int | None = None) -> WatermarkOperator:
    return WatermarkOperator(EventTime("at"), delay, idle, INPUT)


def test_the_watermark_follows_the_greatest_time_by_the_delay_after_the_batch(bench: Any) -> None:
    operator = by_column(delay=5)
    out = bench.open(operator)
    operator.process(0, times(10, 30, 20))
    operator.process(0, times(25))
    operator.process(0, times(31))
    assert out.events == ["data", 24, "data", "data", 25]


def test_a_batch_that_is_read_in_parts_has_its_watermark_behind_the_last(bench: Any) -> None:
    operator = by_column()
    out = bench.open(operator)
    bench.origin.more_of_batch = True
    operator.process(0, times(30))
    operator.process(0, times(20))
    assert (out.watermarks, operator.next_deadline()) == ([], None)
    bench.origin.more_of_batch = False
    operator.process(0, times(10))
    assert out.events == ["data", "data", "data", 29]


def test_a_batch_whose_rest_does_not_come_has_its_watermark_at_once(bench: Any) -> None:
    operator = by_column()
    out = bench.open(operator)
    bench.origin.more_of_batch = True
    operator.process(0, times(30))
    bench.origin.more_of_batch = False
    assert operator.next_deadline() == bench.now
    operator.on_deadline(bench.now)
    assert (out.watermarks, operator.next_deadline()) == ([29], None)


def test_it_is_the_smallest_over_the_splits_being_read(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    operator = by_column()
    out = bench.open(operator)
    bench.origin.split = "a"
    operator.process(0, times(100))
    assert out.watermarks == []
    bench.origin.split = "b"
    operator.process(0, times(50))
    operator.process(0, times(120))
    assert out.watermarks == [49, 99]


def test_a_split_that_has_ended_holds_nothing_back(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    operator = by_column()
    out = bench.open(operator)
    for split, time in (("a", 10), ("b", 100)):
        bench.origin.split = split
        operator.process(0, times(time))
    bench.origin.reading.discard("a")
    bench.origin.ended.add("a")
    operator.process(0, times(110))
    assert out.watermarks == [9, 109]


def test_a_silent_split_holds_nothing_back_after_the_timeout_and_counts_again_when_it_speaks(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    operator = by_column(idle=1000)
    out = bench.open(operator)
    bench.origin.split = "a"
    assert operator.next_deadline() == bench.now + 1000
    bench.now += 600
    operator.process(0, times(100))
    bench.now += 400
    bench.origin.asked["b"] = bench.now
    operator.on_deadline(bench.now)
    assert out.events == ["data", 99]
    bench.origin.split = "b"
    operator.process(0, times(40))
    bench.origin.split = "a"
    operator.process(0, times(200))
    assert out.watermarks == [99]
    bench.origin.split = "b"
    operator.process(0, times(150))
    assert out.watermarks == [99, 149]


def read(bench: Any, operator: WatermarkOperator, split: str, *rows: int) -> None:
    """As the source does: the split is asked, and what it has is handed on."""
    bench.origin.asked[split] = bench.now
    bench.origin.split = split
    operator.process(0, times(*rows))


def test_a_split_that_waits_its_turn_is_not_idle(bench: Any) -> None:
    bench.origin.reading |= {"a", "b", "c"}
    operator = by_column(idle=1000)
    out = bench.open(operator)
    for turn in range(3):
        for split in ("a", "b", "c"):
            read(bench, operator, split, turn * 100)
            bench.now += 900  # what comes behind is slow: the others wait for nearly two timeouts
            operator.on_deadline(bench.now)
    assert (out.watermarks, out.idles) == ([-1, 99, 199], 0)


def test_a_split_is_not_idle_because_nobody_asked_it_under_back_pressure(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    operator = by_column(idle=1000)
    out = bench.open(operator)
    read(bench, operator, "a", 100)
    read(bench, operator, "b", 500)
    bench.now += 10
    read(bench, operator, "a")
    bench.now += 5000
    assert operator.next_deadline() < bench.now
    operator.on_deadline(bench.now)
    assert (out.watermarks, out.idles) == ([99], 0)
    assert operator.next_deadline() == bench.now + 990
    read(bench, operator, "a", 200)
    assert out.watermarks == [99, 199]


def test_a_split_that_is_asked_in_vain_for_the_timeout_is_idle_whatever_it_waited_for_before(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    operator = by_column(idle=1000)
    out = bench.open(operator)
    read(bench, operator, "a", 100)
    bench.now += 3000
    operator.on_deadline(bench.now)
    since = bench.now
    while not out.watermarks:
        bench.now += 2
        read(bench, operator, "b")
        read(bench, operator, "a", 101)
        if operator.next_deadline() <= bench.now:
            operator.on_deadline(bench.now)
    assert bench.now - since == 1000


def test_a_split_whose_rows_are_all_filtered_out_on_their_way_here_is_idle_after_the_timeout(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    operator = by_column(idle=1000)
    out = bench.open(operator)
    for _ in range(10):
        bench.origin.asked["b"] = bench.now  # it has rows each time, and none comes through
        read(bench, operator, "a", 100)
        operator.on_deadline(bench.now)
        bench.now += 300
    assert out.watermarks == [99]


def test_when_all_splits_are_silent_the_output_is_idle_once(bench: Any) -> None:
    operator = by_column(idle=1000)
    out = bench.open(operator)
    operator.process(0, times(100))
    bench.now += 1000
    assert operator.next_deadline() == bench.now
    operator.on_deadline(bench.now)
    operator.on_deadline(bench.now + 5000)
    assert out.events == ["data", 99, "idle"]
    assert operator.next_deadline() is None
    operator.process(0, times(101))
    assert out.events == ["data", 99, "idle", "data", 100]
    assert operator.next_deadline() == bench.now + 1000


def test_without_a_timeout_nothing_is_ever_idle(bench: Any) -> None:
    operator = by_column()
    bench.open(operator)
    assert operator.next_deadline() is None


def test_only_the_end_of_time_passes_from_before(bench: Any) -> None:
    operator = by_column()
    out = bench.open(operator)
    operator.on_watermark(5)
    operator.on_watermark(MAX_WATERMARK)
    assert out.watermarks == [MAX_WATERMARK]


def test_a_restored_watermark_never_goes_back_and_is_said_again(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    operator = by_column()
    bench.open(operator)
    for split, time in (("a", 200), ("b", 100)):
        bench.origin.split = split
        operator.process(0, times(time))
    state = bench.snapshot(operator)

    again = by_column()
    out = bench.open(again, restored=[state])
    bench.origin.split = "b"
    again.process(0, times(20))
    again.process(0, times(101))
    assert out.watermarks == [99, 100]


def test_splits_find_their_times_again_after_a_change_of_parallelism(bench: Any) -> None:
    states = []
    for split, time in (("a", 200), ("b", 100)):
        bench.origin.split = split
        bench.origin.reading = {split}
        operator = by_column()
        bench.open(operator)
        operator.process(0, times(time))
        states.append(bench.snapshot(operator))
    bench.origin.reading = {"a", "b"}
    operator = by_column()
    out = bench.open(operator, restored=states, rescaled=True)
    bench.origin.split = "a"
    operator.process(0, times(300))
    bench.origin.split = "b"
    operator.process(0, times(250))
    assert out.watermarks == [99, 249]


def test_a_function_gives_the_time_of_plain_records(bench: Any) -> None:
    operator = WatermarkOperator(EventTime(HIDDEN_TIME), 0, None, PLAIN, extract=lambda value: value["t"])
    out = bench.open(operator, PLAIN_TIMED)
    operator.process(0, Records([{"t": 5}, {"t": dt.datetime(1970, 1, 1, 0, 0, 1)}]))
    assert out.times() == [5, 1000]
    assert out.watermarks == [999]
    assert out.records() == [{"t": 5}, {"t": dt.datetime(1970, 1, 1, 0, 0, 1)}]


def test_a_time_that_is_none_is_told_with_the_record(bench: Any) -> None:
    operator = WatermarkOperator(EventTime(HIDDEN_TIME), 0, None, PLAIN, extract=lambda value: value.get("t"))
    bench.open(operator)
    with pytest.raises(UserFunctionError, match=r"(?s)epoch milliseconds.*not None.*\{'x': 1\}"):
        operator.process(0, Records([{"x": 1}]))


def test_times_of_records_come_from_the_column_named_not_from_what_they_had_before(bench: Any) -> None:
    operator = by_column()
    out = bench.open(operator, StreamType(SCHEMA, EventTime("at")))
    operator.process(0, Records([(7,)], timestamps=pa.array([1000]).to_numpy()))
    assert out.watermarks == [6]
    assert out.data[0].timestamps.tolist() == [7]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000)), max_size=40), st.integers(0, 40))
def test_no_row_within_the_delay_is_ever_behind_the_watermark(
    new_bench: Any, rows: list[tuple[str, int]], cut: int
) -> None:
    """Each split's rows come in order; whatever the order among the splits, and over a restore."""
    bench = new_bench()
    bench.origin.reading = {"a", "b", "c"}
    operator = by_column()
    out = bench.open(operator)
    seen: list[int] = []
    latest = dict.fromkeys("abc", 0)
    for number, (split, step) in enumerate(rows):
        if number == cut:
            seen += out.watermarks
            operator, state = by_column(), bench.snapshot(operator)
            out = bench.open(operator, restored=[state])
        latest[split] += step + 1
        watermark = max(seen + out.watermarks, default=-1)
        assert latest[split] > watermark
        bench.origin.split = split
        operator.process(0, times(latest[split]))
    assert out.watermarks == sorted(out.watermarks)


def test_a_split_that_waits_for_others_is_not_idle(bench: Any) -> None:
    bench.origin.reading |= {"a", "b"}
    bench.origin.drift = drift = SourceDrift(100)
    drift.told(NOBODY_AHEAD)
    operator = WatermarkOperator(EventTime("at"), 10, 1000, INPUT, keeps_together=True)
    out = bench.open(operator)
    for split, time in (("a", 0), ("b", 500)):
        bench.origin.split = split
        operator.process(0, times(time))
    assert drift.held == {"b"} and drift.say() == -11
    bench.origin.split = "a"
    for _ in range(4):
        bench.now += 600
        bench.origin.asked["a"] = bench.now
        operator.process(0, times(0))
        operator.on_deadline(bench.now)
    assert (drift.held, out.idles, out.watermarks) == ({"b"}, 0, [-11])
    bench.origin.ended.add("a")
    bench.origin.reading.discard("a")
    operator.on_deadline(bench.now)
    assert not drift.held and drift.say() == 489
    bench.now += 1000
    bench.origin.asked["b"] = bench.now
    operator.on_deadline(bench.now)
    assert out.idles == 1 and drift.say() is None
