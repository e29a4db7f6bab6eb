from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark import cloudpickle

from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.fitting import BatchMismatchError
from snapshot_engine.operators.functions import BatchKeyedProcessFunction, KeyedProcessFunction
from snapshot_engine.operators.keyed_process import BatchKeyedProcessOperator, KeyedProcessOperator
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.protocol.elements import MAX_WATERMARK, MIN_WATERMARK
from snapshot_engine.state.changed_state import RecordStateChanged
from snapshot_engine.state.descriptors import ListState, MapState, ValueState
from snapshot_engine.state.packing import pack

SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64()), ("at", pa.int64())])
ROWS = StreamType(SCHEMA, EventTime("at"))
UNTIMED = StreamType(SCHEMA)
PLAIN = StreamType(RECORDS.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))


def rows(*values: tuple[str, int, int]) -> pa.RecordBatch:
    columns = list(zip(*values, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


class Totals(KeyedProcessFunction):
    """The total of each user when nothing came for ten milliseconds of event time."""

    def open(self, context: Any) -> None:
        self.total = context.state(ValueState("total", int, default=0))
        self.until = context.state(ValueState("until", int))

    def process(self, record: Any, context: Any) -> None:
        self.total.update(self.total.value() + record.n)
        if self.until.value() is not None:
            context.timers.delete_event_time(self.until.value())
        self.until.update(max(record.at, self.until.value() or 0) + 10)
        context.timers.register_event_time(self.until.value())

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Any]:
        yield context.current_key, self.total.value(), timestamp
        self.total.clear()
        self.until.clear()


def opened(bench: Any, function: Any, output: StreamType = PLAIN, input: StreamType = ROWS, **kwargs: Any) -> Any:
    operator = cloudpickle.loads(cloudpickle.dumps(KeyedProcessOperator(function, ("user",), input, output)))
    return operator, bench.open(operator, output, **kwargs)


def test_state_and_timers_belong_to_the_key(bench: Any) -> None:
    operator, out = opened(bench, Totals())
    operator.process(0, rows(("ann", 1, 0), ("bob", 5, 3), ("ann", 2, 4)))
    operator.on_watermark(12)
    operator.on_watermark(20)
    operator.process(0, rows(("ann", 7, 30)))
    operator.on_watermark(100)
    assert out.records() == [("bob", 5, 13), ("ann", 3, 20), ("ann", 7, 40)]
    assert out.times() == [13, 20, 40]
    assert out.events == [12, "data", 20, "data", 100]


def test_results_may_be_emitted_returned_or_yielded(bench: Any) -> None:
    class Mixed(KeyedProcessFunction):
        def process(self, record: Any, context: Any) -> Any:
            context.emit(("emitted", record.n))
            context.emit_side("odd", record)
            return [("returned", record.n), ("returned", context.timestamp)] if record.n == 1 else None

    operator, out = opened(bench, Mixed())
    operator.process(0, rows(("ann", 1, 7), ("bob", 2, 8)))
    assert out.records() == [("emitted", 1), ("returned", 1), ("returned", 7), ("emitted", 2)]
    assert out.times() == [7, 7, 7, 8]
    assert out.side("odd") == [("ann", 1, 7), ("bob", 2, 8)]


def test_what_the_context_tells(bench: Any) -> None:
    class Told(KeyedProcessFunction):
        def process(self, record: Any, context: Any) -> Any:
            context.timers.register_processing_time(context.processing_time() + 5)
            context.timers.register_event_time(50)
            return [(context.current_key, context.timestamp, context.current_watermark, context.time_domain)]

        def on_timer(self, timestamp: int, context: Any) -> Any:
            return [(context.current_key, timestamp - 0, context.timestamp, context.time_domain)]

    operator, out = opened(bench, Told())
    operator.process(0, rows(("ann", 1, 7)))
    operator.on_watermark(40)
    operator.process(0, rows(("bob", 1, 41)))
    assert operator.next_deadline() == bench.now + 5
    operator.on_deadline(bench.now + 5)
    operator.on_watermark(60)
    assert out.records() == [
        ("ann", 7, MIN_WATERMARK, None),
        ("bob", 41, 40, None),
        ("ann", bench.now + 5, None, "processing"),
        ("bob", bench.now + 5, None, "processing"),
        ("ann", 50, 50, "event"),
        ("bob", 50, 50, "event"),
    ]
    assert out.times() == [7, 41, 41, 41, 50, 50]
    assert operator.next_deadline() is None


def test_a_stream_without_event_time_has_no_timestamps(bench: Any) -> None:
    class Plain(KeyedProcessFunction):
        def process(self, record: Any, context: Any) -> Any:
            yield (context.timestamp, record.n)

    output = StreamType(RECORDS)
    operator, out = opened(bench, Plain(), output, UNTIMED)
    operator.process(0, rows(("ann", 1, 7)))
    assert out.records() == [(None, 1)]


def test_the_key_of_a_key_function_is_what_it_returned(bench: Any) -> None:
    class KeyOf(KeyedProcessFunction):
        def process(self, record: Any, context: Any) -> Any:
            context.timers.register_event_time(5)
            return [context.current_key]

        def on_timer(self, timestamp: int, context: Any) -> Any:
            return [context.current_key]

    schema = SCHEMA.append(pa.field(HIDDEN_KEY, pa.binary()))
    batch = rows(("ann", 1, 1)).append_column(HIDDEN_KEY, pa.array([pack(("x", 1))]))
    operator = KeyedProcessOperator(KeyOf(), (HIDDEN_KEY,), StreamType(schema, EventTime("at")), PLAIN)
    out = bench.open(operator, PLAIN)
    operator.process(0, batch)
    operator.on_watermark(10)
    assert out.records() == [("x", 1), ("x", 1)]


@pytest.mark.parametrize("result", [{"a": 1}, "text"])
def test_a_single_record_returned_is_refused_with_advice(bench: Any, result: Any) -> None:
    class Single(KeyedProcessFunction):
        def process(self, record: Any, context: Any) -> Any:
            return result

    operator, _ = opened(bench, Single())
    with pytest.raises(UserFunctionError, match="yield it, or return a list"):
        operator.process(0, rows(("ann", 1, 1)))


def test_an_exception_shows_the_key_the_record_and_the_line(bench: Any) -> None:
    class Broken(KeyedProcessFunction):
        def process(self, record: Any, context: Any) -> Any:
            context.timers.register_event_time(5)
            if record.n == 2:
                raise RuntimeError("no good")

        def on_timer(self, timestamp: int, context: Any) -> Any:
            raise RuntimeError("nor this")

    operator, _ = opened(bench, Broken())
    with pytest.raises(UserFunctionError) as caught:
        operator.process(0, rows(("ann", 1, 1), ("bob", 2, 2)))
    for part in ("process() for key 'bob'", "no good", "user='bob', n=2", 'raise RuntimeError("no good")'):
        assert part in str(caught.value)
    with pytest.raises(UserFunctionError, match=r"(?s)on_timer\(5\) for key 'ann'.*nor this"):
        operator.on_watermark(5)


def test_an_exception_in_open_names_the_operator(bench: Any) -> None:
    class Closed(KeyedProcessFunction):
        def open(self, context: Any) -> None:
            raise OSError("no connection")

    with pytest.raises(UserFunctionError, match=r"(?s)open\(\) of operator 'the operator'.*no connection"):
        opened(bench, Closed())


def test_a_state_whose_type_changed_is_told_by_name_when_the_job_is_restored(bench: Any) -> None:
    class Other(Totals):
        def open(self, context: Any) -> None:
            self.total = context.state(ValueState("total", float, default=0.0))
            self.until = context.state(ValueState("until", int))

    operator, _ = opened(bench, Totals())
    operator.process(0, rows(("ann", 1, 1)))
    state = bench.snapshot(operator)
    with pytest.raises(RecordStateChanged, match=r"state 'total' of operator.*value\[int\].*value\[float\]"):
        opened(bench, Other(), restored=[state])


def test_another_key_column_of_the_same_type_is_told_when_the_job_is_restored(bench: Any) -> None:
    by_n = KeyedProcessOperator(Totals(), ("n",), ROWS, PLAIN)
    bench.open(by_n, PLAIN)
    by_n.process(0, rows(("ann", 1, 1)))
    state = bench.snapshot(by_n)
    with pytest.raises(RecordStateChanged, match="is keyed by n in the checkpoint, but by at now: change it back"):
        bench.open(KeyedProcessOperator(Totals(), ("at",), ROWS, PLAIN), PLAIN, restored=[state])
    older = {name: told for name, told in state.schema.items() if name != "key_columns"}
    bench.open(KeyedProcessOperator(Totals(), ("n",), ROWS, PLAIN), PLAIN, restored=[replace(state, schema=older)])


class Everything(KeyedProcessFunction):
    """Uses every kind of state and both kinds of timers; what it puts out depends on all of them."""

    def open(self, context: Any) -> None:
        self.count = context.state(ValueState("count", int, default=0))
        self.seen = context.state(ListState("seen"))
        self.by_n = context.state(MapState("by n", int, list))

    def process(self, record: Any, context: Any) -> Any:
        self.count.update(self.count.value() + 1)
        self.seen.add(record)
        self.by_n[record.n] = [*(self.by_n.get(record.n) or []), record.at]
        context.timers.register_event_time(record.at + record.n)
        context.timers.register_processing_time(1_000_000 + record.at)
        if record.n % 5 == 0:
            context.timers.delete_event_time(record.at + 1)
            self.by_n.clear()
        yield self._state("record", context)

    def on_timer(self, timestamp: int, context: Any) -> Any:
        yield self._state(context.time_domain, context)
        if self.count.value() > 4:
            self.count.clear()
            self.seen.clear()

    def _state(self, why: str, context: Any) -> Any:
        seen = [tuple(row) for row in self.seen.get()]
        return why, context.current_key, context.timestamp, self.count.value(), seen, sorted(self.by_n.items())


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**32), incremental=st.booleans())
def test_a_job_that_is_restored_and_rescaled_anywhere_does_what_an_undisturbed_one_does(
    new_bench: Any, seed: int, incremental: bool
) -> None:
    rng = random.Random(seed)
    steps: list[Any] = []
    watermark = 0
    for _ in range(rng.randrange(2, 25)):
        choice = rng.random()
        if choice < 0.6:
            size = rng.randrange(1, 8)
            steps.append(
                rows(*[(rng.choice("abcdef"), rng.randrange(9), watermark + rng.randrange(20)) for _ in range(size)])
            )
        elif choice < 0.8:
            watermark += rng.randrange(15)
            steps.append(watermark)
        else:
            steps.append("clock")
    undisturbed = run_steps(new_bench(), steps, None, incremental=False)
    disturbed = run_steps(new_bench(), steps, rng, incremental=incremental)
    assert sorted(map(repr, disturbed)) == sorted(map(repr, undisturbed))


def run_steps(bench: Any, steps: list[Any], rng: random.Random | None, *, incremental: bool) -> list[Any]:
    parallelism, found = 1, []
    subtasks = [opened(bench, Everything(), incremental=incremental)]
    for number, step in enumerate(steps, 1):
        if isinstance(step, pa.RecordBatch):
            parts = HashPartitioner(("user",), parallelism, 128).split(step)
            for (operator, _), part in zip(subtasks, parts, strict=True):
                if part is not None:
                    operator.process(0, part)
        bench.now += 3 if step == "clock" else 0
        for operator, _ in subtasks:
            if isinstance(step, int):
                operator.on_watermark(step)
            elif step == "clock" and (operator.next_deadline() or bench.now + 1) <= bench.now:
                operator.on_deadline(bench.now)
        if rng is not None and rng.random() < 0.5:
            states = [bench.snapshot(operator, number) for operator, _ in subtasks]
            if rng.random() < 0.6:
                found += [value for _, out in subtasks for value in out.records()]
                old, parallelism = parallelism, rng.choice((1, 2, 3, parallelism))
                subtasks = [
                    opened(
                        bench,
                        Everything(),
                        subtask=index,
                        parallelism=parallelism,
                        restored=states if old != parallelism else [states[index]],
                        rescaled=old != parallelism,
                        incremental=incremental,
                    )
                    for index in range(parallelism)
                ]
            else:
                for operator, _ in subtasks:
                    (operator.on_completed if rng.random() < 0.7 else operator.on_aborted)(number)
    return found + [value for _, out in subtasks for value in out.records()]


class Largest(BatchKeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.largest = context.state(ValueState("largest", int, default=0))

    def process(self, batch: pa.RecordBatch, context: Any) -> Any:
        assert set(batch.column("user").to_pylist()) == {context.current_key}
        assert context.timestamp == max(batch.column("at").to_pylist())
        context.timers.register_event_time(100)
        context.emit_side("seen", batch)
        largest = max(batch.column("n").to_pylist())
        if largest > self.largest.value():
            self.largest.update(largest)
            return batch.slice(batch.num_rows - 1)
        return None

    def on_timer(self, timestamp: int, context: Any) -> Any:
        return [rows((context.current_key, self.largest.value(), timestamp))]


def opened_batches(bench: Any, function: Any = None, **kwargs: Any) -> Any:
    operator = BatchKeyedProcessOperator(function or Largest(), ("user",), ROWS, ROWS)
    return operator, bench.open(operator, ROWS, **kwargs)


def test_a_batch_function_is_given_all_rows_of_a_key_in_order(bench: Any) -> None:
    operator, out = opened_batches(bench)
    operator.process(0, rows(("ann", 1, 1), ("bob", 5, 2), ("ann", 3, 3), ("ann", 2, 4)))
    assert out.records() == [("ann", 2, 4), ("bob", 5, 2)]
    assert len(out.data) == 1
    assert [row["at"] for row in out.side("seen")] == [1, 3, 4, 2]
    state = bench.snapshot(operator)
    operator, out = opened_batches(bench, restored=[state])
    operator.process(0, rows(("ann", 3, 9)))
    operator.on_watermark(100)
    assert out.records() == [("ann", 3, 100), ("bob", 5, 100)]


def test_a_batch_function_s_result_must_fit(bench: Any) -> None:
    class Odd(BatchKeyedProcessFunction):
        def process(self, batch: Any, context: Any) -> Any:
            return batch.select(["user"])

    operator, _ = opened_batches(bench, Odd())
    with pytest.raises(BatchMismatchError, match="no column 'n'"):
        operator.process(0, rows(("ann", 1, 1)))


def test_an_exception_in_a_batch_function_shows_the_key(bench: Any) -> None:
    class Broken(BatchKeyedProcessFunction):
        def process(self, batch: Any, context: Any) -> Any:
            raise RuntimeError("no")

    operator, _ = opened_batches(bench, Broken())
    with pytest.raises(UserFunctionError, match="for key 'ann' and 2 rows"):
        operator.process(0, rows(("ann", 1, 1), ("ann", 1, 1)))


class Ring(KeyedProcessFunction):
    """Fires for every record at the same time, and says when it was."""

    def process(self, record: Any, context: Any) -> Iterator[Any]:
        context.timers.register_event_time(50)
        context.timers.register_processing_time(2_000_000)
        yield "record", context.current_watermark

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Any]:
        yield context.current_key, context.time_domain, context.current_watermark


def test_many_timers_fire_in_portions_and_the_watermark_goes_on_behind_them(bench: Any) -> None:
    operator, out = opened(bench, Ring(), portion_seconds=0.0)
    operator.process(0, rows(("ann", 1, 0), ("bob", 5, 3), ("cid", 2, 4)))
    operator.on_watermark(60)
    rung = [("ann", "event", 60), ("bob", "event", 60), ("cid", "event", 60)]
    for done in (1, 2, 3):
        assert operator.unfinished
        assert (out.records()[3:], out.watermarks) == (rung[:done], [])
        operator.go_on()
    assert not operator.unfinished
    assert (out.records()[3:], out.watermarks) == (rung, [60])


def test_what_time_brings_next_waits_until_the_portions_are_done(bench: Any) -> None:
    operator, out = opened(bench, Ring(), portion_seconds=0.0)
    operator.process(0, rows(("ann", 1, 0), ("bob", 5, 3)))
    operator.on_watermark(60)
    operator.on_watermark(70)
    while operator.unfinished:
        operator.go_on()
    assert out.records()[2:] == [("ann", "event", 60), ("bob", "event", 60)]
    assert out.watermarks == [60, 70]


def test_timers_of_the_clock_fire_in_portions_as_well(bench: Any) -> None:
    operator, out = opened(bench, Ring(), portion_seconds=0.0)
    operator.process(0, rows(("ann", 1, 0), ("bob", 5, 3)))
    operator.on_deadline(2_000_000)
    assert operator.unfinished
    while operator.unfinished:
        operator.go_on()
    assert [record[:2] for record in out.records()[2:]] == [("ann", "processing"), ("bob", "processing")]


def test_a_record_that_comes_all_the_same_finds_the_portions_done(bench: Any) -> None:
    operator, out = opened(bench, Ring(), portion_seconds=0.0)
    operator.process(0, rows(("ann", 1, 0), ("bob", 5, 3)))
    operator.on_watermark(60)
    operator.process(0, rows(("ann", 1, 61)))
    assert out.events == ["data", "data", "data", 60, "data"]


class Periodic(KeyedProcessFunction):
    def process(self, record: Any, context: Any) -> None:
        context.timers.register_event_time(record.at)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Any]:
        context.timers.register_event_time(timestamp + 10)
        yield context.current_key, timestamp


def test_a_periodic_timer_comes_to_an_end_with_time_itself(bench: Any) -> None:
    operator, out = opened(bench, Periodic())
    operator.process(0, rows(("ann", 1, 0), ("bob", 1, 15)))
    operator.on_watermark(25)
    assert out.records() == [("ann", 0), ("ann", 10), ("bob", 15), ("ann", 20), ("bob", 25)]
    operator.on_watermark(MAX_WATERMARK)
    assert out.records()[5:] == [("ann", 30), ("bob", 35), ("ann", 40), ("bob", 45)]
    assert out.watermarks == [25, MAX_WATERMARK]


class Silence(KeyedProcessFunction):
    """Moves its timer on only when it fires, as one does who sets few of them."""

    def open(self, context: Any) -> None:
        self.latest = context.state(ValueState("latest", int))

    def process(self, record: Any, context: Any) -> None:
        if self.latest.value() is None:
            context.timers.register_event_time(record.at + 10)
        self.latest.update(record.at)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[Any]:
        if self.latest.value() + 10 > timestamp:
            context.timers.register_event_time(self.latest.value() + 10)
        else:
            yield context.current_key, timestamp
            self.latest.clear()


def test_a_timer_that_is_moved_on_at_the_end_of_time_still_fires_in_order(bench: Any) -> None:
    operator, out = opened(bench, Silence())
    operator.process(0, rows(("ann", 1, 0), ("ann", 1, 7), ("bob", 1, 9)))
    operator.on_watermark(MAX_WATERMARK)
    assert out.records() == [("ann", 17), ("bob", 19)]
