"""Loops as somebody may write them who has read the page about loops once, and what may happen to them."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import looping_job
import numpy as np
import pytest
from looping_job import count_down, expected, keyed, numbers, one_turn, turns_in, unkeyed

from snapshot_engine.api import (
    CoProcessFunction,
    Environment,
    Function,
    KeyedProcessFunction,
    ListState,
    ValueState,
    col,
)
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.graph.problems import PlanError
from snapshot_engine.protocol.restarts import RestartConfig
from snapshot_engine.runtime.forked import ship_by_value
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = pytest.mark.jobs


@pytest.fixture(autouse=True)
def shipped() -> None:
    ship_by_value(looping_job)


class Visits(KeyedProcessFunction):
    """Counts in its state how often a number has come by: only the owner of its key can count right."""

    def open(self, context) -> None:
        self.visits = context.state(ValueState("visits", int))

    def process(self, row, context):
        visits = (self.visits.value() or 0) + 1
        self.visits.update(visits)
        yield row._replace(turns=visits - 1)


SCHEMA = "id long, left long, turns long"


def visiting(rows):
    seen = rows.process(Visits(), schema=SCHEMA).uid("visits")
    return seen.where(col("left") > 0).with_columns(left=col("left") - 1), seen.where(col("left") == 0)


def test_a_keyed_loop_brings_rows_back_to_the_owner_of_their_key(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    result = run_pipeline(keyed(sink, 2_000, body=visiting), storage=tmp_path / "ck", parallelism=2)
    assert result.outcome is Outcome.FINISHED
    assert turns_in(sink) == expected(2_000)


@pytest.mark.parametrize("spread", [lambda rows: rows.rebalance(), lambda rows: rows.broadcast()])
def test_a_keyed_loop_that_would_bring_rows_back_to_others_is_refused(tmp_path: Path, spread) -> None:
    sink = CollectSink(tmp_path / "out")

    def body(rows):
        again, out = visiting(rows)
        return spread(again), out

    with pytest.raises(PlanError, match="it keeps state by key, but its input"):
        run_pipeline(keyed(sink, 2_000, body=body), storage=tmp_path / "ck", parallelism=2)


class Slow(Function):
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, batch):
        time.sleep(self.seconds)
        return batch


class SumOfRound(KeyedProcessFunction):
    def open(self, context) -> None:
        self.sum = context.state(ValueState("sum", int))

    def process(self, record, context):
        self.sum.update((self.sum.value() or 0) + record.value)
        context.timers.register_round_end()

    def on_round_end(self, round, context):
        total = self.sum.value()
        self.sum.clear()
        yield {"key": context.current_key, "value": total, "round": round}


ROUNDS = 12


def sums(rows):
    slow = rows.map_in_arrow(Slow(0.03)).key_by("key")
    result = slow.process(SumOfRound(), schema="key long, value long, round long").uid("sum")
    return result.where(col("round") < ROUNDS), result


async def stop_behind_a_checkpoint(job: RunningJob) -> None:
    """Of this run, so that each run goes on for a while."""
    before = job.board.status.checkpoint.completed
    while job.board.status.checkpoint.completed < before + 4:
        await asyncio.sleep(0.01)
    job.master.stop()


def test_a_job_that_is_stopped_in_a_round_goes_on_in_it_with_another_parallelism(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        rows = [{"key": number % 7, "value": number, "round": -1} for number in range(100)]
        source = env.from_collection(rows, uid="rows")
        source.key_by("key").iterate(sums, rounds=True, uid="loop").sink_to(sink, uid="out")

    outcomes = []
    for parallelism in (2, 3, 1, 2):
        last = parallelism == 2 and outcomes
        meanwhile = None if last else stop_behind_a_checkpoint
        result = run_pipeline(
            pipeline, storage=tmp_path / "ck", parallelism=parallelism, interval=0.05, meanwhile=meanwhile
        )
        outcomes.append(result.outcome)
    assert outcomes[0] is Outcome.STOPPED
    assert outcomes[-1] is Outcome.FINISHED
    totals = {key: sum(number for number in range(100) if number % 7 == key) for key in range(7)}
    found = Counter((row["key"], row["value"], row["round"]) for row in sink.read_committed())
    assert found == Counter((key, total, round) for key, total in totals.items() for round in range(ROUNDS + 1))


class Totals(KeyedProcessFunction):
    """Tells at the end of time how many rows of its key there were."""

    def open(self, context) -> None:
        self.rows = context.state(ValueState("rows", int, default=0))

    def process(self, row, context):
        self.rows.update(self.rows.value() + 1)
        context.timers.register_event_time(2**60)

    def on_timer(self, timestamp, context):
        yield (context.current_key, self.rows.value())


def test_state_is_dealt_out_where_an_operator_joins_the_chain_of_the_loop_s_head(tmp_path: Path) -> None:
    """The head has two subtasks before and after; the operator behind it has four, then two, and is chained to it."""
    sink = CollectSink(tmp_path / "out")
    keys, count = 20, 2_000

    def pipeline_of(parallelism: int, rate: float | None):
        def body(rows):
            totals = rows.process(Totals(), schema="key long, n long").uid("totals").parallelism(parallelism)
            return totals.filter(lambda row: False), totals

        def pipeline(env: Environment) -> None:
            columns = {"key": lambda offsets: (offsets % keys).astype(np.int64), "n": lambda o: o.astype(np.int64)}
            source = env.from_source(GeneratorSource(columns, count=count, rate=rate, splits=2), uid="numbers")
            rows = source.with_watermark("n").key_by("key")
            rows.iterate(body, uid="loop").sink_to(sink, uid="out")

        return pipeline

    stopped = run_pipeline(
        pipeline_of(4, 200), storage=tmp_path / "ck", parallelism=2, interval=0.05, meanwhile=stop_behind_a_checkpoint
    )
    assert stopped.outcome is Outcome.STOPPED
    assert run_pipeline(pipeline_of(2, None), storage=tmp_path / "ck", parallelism=2).outcome is Outcome.FINISHED
    assert Counter((row["key"], row["n"]) for row in sink.read_committed()) == Counter(
        (key, count // keys) for key in range(keys)
    )


def test_a_loop_inside_one_with_rounds_belongs_to_the_round(tmp_path: Path) -> None:
    """What a round's end puts out takes three turns in the inner loop, and is of the next round all the same."""
    sink = CollectSink(tmp_path / "out")

    def inner(rows):
        return rows.where(col("left") > 0).with_columns(left=col("left") - 1), rows.where(col("left") == 0)

    class Count(KeyedProcessFunction):
        def open(self, context) -> None:
            self.count = context.state(ValueState("count", int))

        def process(self, record, context):
            self.count.update((self.count.value() or 0) + 1)
            context.timers.register_round_end()

        def on_round_end(self, round, context):
            count = self.count.value()
            self.count.clear()
            yield {"key": context.current_key, "round": round, "count": count, "left": 3}

    def outer(rows):
        counted = rows.process(Count(), schema="key long, round long, count long, left long").uid("count")
        turned = counted.iterate(inner, uid="inner")
        return turned.where(col("round") < 4), turned

    def pipeline(env: Environment) -> None:
        rows = [{"key": number % 3, "round": -1, "count": 0, "left": 0} for number in range(30)]
        source = env.from_collection(rows, uid="rows")
        source.key_by("key").iterate(outer, rounds=True, uid="outer").sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.1)
    assert result.outcome is Outcome.FINISHED
    found = Counter((row["key"], row["round"], row["count"]) for row in sink.read_committed())
    assert found == Counter({(key, round, 10 if round == 0 else 1): 1 for key in range(3) for round in range(5)})


class Gate(CoProcessFunction):
    """Keeps what comes until the gate of its key has opened."""

    def open(self, context) -> None:
        self.opened = context.state(ValueState("opened", bool))
        self.kept = context.state(ListState("kept", int))

    def process_left(self, row, context):
        if self.opened.value():
            yield row
        else:
            self.kept.add(row.turns)

    def process_right(self, row, context):
        self.opened.update(True)
        for turns in self.kept.get():
            yield {"id": context.current_key, "left": row.id % looping_job.TURNS - turns, "turns": turns}
        self.kept.clear()


def test_a_body_that_waits_for_another_input_is_waited_for(tmp_path: Path) -> None:
    """Gates open one by one, long after all numbers have come: nothing ends before. Slots are killed meanwhile."""
    sink, count, choose, kills = CollectSink(tmp_path / "out"), 600, random.Random(4), []

    def pipeline(env: Environment) -> None:
        gates = env.from_source(numbers(count, rate=300), uid="gates").select("id").key_by("id")

        def body(rows):
            passed = rows.connect(gates).process(Gate(), schema=SCHEMA).uid("gate")
            return one_turn(passed.where(col("left") > 0)), passed.where(col("left") == 0)

        env.from_source(numbers(count), uid="numbers").key_by("id").iterate(body, uid="loop").sink_to(sink, uid="out")

    async def kill_some(job: RunningJob) -> None:
        while len(kills) < 3:
            await asyncio.sleep(0.5)
            if kill_a_slot(job, choose):
                kills.append(1)

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.05, meanwhile=kill_some)
    assert result.outcome is Outcome.FINISHED
    assert len(kills) == 3
    assert turns_in(sink) == expected(count)


class LastTurn(KeyedProcessFunction):
    """Keeps each number until event time has run out; then all go round once more."""

    def open(self, context) -> None:
        self.left = context.state(ValueState("left", int))

    def process(self, row, context):
        if row.turns:
            yield row
        else:
            self.left.update(row.left)
            context.timers.register_event_time(2**40)

    def on_timer(self, timestamp, context):
        yield {"id": context.current_key, "left": self.left.value(), "turns": 1}


def test_what_the_end_of_time_sets_going_goes_round_to_its_end(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def body(rows):
        told = rows.process(LastTurn(), schema=SCHEMA).uid("last")
        return one_turn(told.where(col("left") > 0)), told.where(col("left") == 0)

    result = run_pipeline(keyed(sink, 500, body=body), storage=tmp_path / "ck", parallelism=2, interval=0.05)
    assert result.outcome is Outcome.FINISHED
    assert turns_in(sink) == Counter((number, number % 7 + 1) for number in range(500))


def test_the_end_of_time_comes_to_one_loop_after_the_other(tmp_path: Path) -> None:
    """What the end of time sets going in the first loop is not late in the second."""
    sink = CollectSink(tmp_path / "out")

    def first(rows):
        told = rows.process(LastTurn(), schema=SCHEMA).uid("first-last")
        return one_turn(told.where(col("left") > 0)), told.where(col("left") == 0)

    def second(rows):
        told = rows.process(LastTurn(), schema=SCHEMA).uid("second-last")
        return one_turn(told.where(col("left") > 0)), told.where(col("left") == 0)

    def pipeline(env: Environment) -> None:
        once = env.from_source(numbers(300), uid="numbers").key_by("id").iterate(first, uid="first")
        again = once.with_columns(left=col("turns"), turns=col("left")).key_by("id")
        again.iterate(second, uid="second").sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.05)
    assert result.outcome is Outcome.FINISHED
    assert turns_in(sink) == Counter((number, number % 7 + 2) for number in range(300))


def test_a_body_that_raises_fails_the_job_with_its_words(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def refuse(row):
        if row.turns == 2:
            raise ValueError("two turns are one too many")
        return row

    def body(rows):
        again, out = count_down(rows)
        return again.map(refuse, schema=SCHEMA), out

    result = run_pipeline(
        unkeyed(sink, 100, body=body),
        storage=tmp_path / "ck",
        parallelism=2,
        restarts=RestartConfig(first_delay=0.0, max_delay=0.1, per_region=2, per_job=2),
    )
    assert result.outcome is Outcome.FAILED
    assert "two turns are one too many" in str(result)


def test_a_body_that_never_lets_go_can_be_stopped_and_goes_on(tmp_path: Path) -> None:
    """All inputs have ended, and yet the job runs until it is told: with what goes round in its last checkpoint."""
    sink = CollectSink(tmp_path / "out")

    def for_ever(rows):
        return one_turn(rows), rows.where(col("left") < -100)

    def let_go(rows):
        return one_turn(rows.where(col("turns") < 0)), rows

    result = run_pipeline(
        unkeyed(sink, 500, body=for_ever), storage=tmp_path / "ck", parallelism=2, meanwhile=stop_behind_a_checkpoint
    )
    assert result.outcome is Outcome.STOPPED
    result = run_pipeline(unkeyed(sink, 500, body=let_go), storage=tmp_path / "ck", parallelism=3)
    assert result.outcome is Outcome.FINISHED
    last = Counter(row["id"] for row in sink.read_committed() if row["left"] + row["turns"] == row["id"] % 7)
    assert set(last) == set(range(500))


def test_a_loop_inside_a_loop_stays_exact_when_slots_are_killed(tmp_path: Path) -> None:
    sink, choose, kills = CollectSink(tmp_path / "out"), random.Random(6), []

    def inner(rows):
        return one_turn(rows.where(col("left") % 3 != 0)), rows.where(col("left") % 3 == 0)

    def outer(rows):
        inside = rows.key_by("id").iterate(inner, uid="inner")
        again = inside.where(col("left") > 0).with_columns(left=col("left") - 3, turns=col("turns") + 3)
        return again.rebalance(), inside.where(col("left") == 0)

    async def kill_some(job: RunningJob) -> None:
        while len(kills) < 4:
            completed = job.board.status.checkpoint.completed
            while job.board.status.checkpoint.completed <= completed:
                await asyncio.sleep(0.02)
            if kill_a_slot(job, choose):
                kills.append(1)

    result = run_pipeline(
        unkeyed(sink, 10_000, 4_000, body=outer),
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.05,
        meanwhile=kill_some,
    )
    assert result.outcome is Outcome.FINISHED
    assert len(kills) == 4
    assert turns_in(sink) == expected(10_000)
