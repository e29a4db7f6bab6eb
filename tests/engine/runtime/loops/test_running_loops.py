"""Whole jobs with loops on forked slots: what goes round is never lost and never doubled."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import looping_job
import numpy as np
import pyarrow as pa
import pytest
from looping_job import count_down, expected, keyed, numbers, turns_in, unkeyed

from snapshot_engine.api import Environment, Function, KeyedProcessFunction, ValueState, col
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.failing import Fuse
from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.runtime.forked import ship_by_value
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = pytest.mark.jobs
COUNT = 2_000


@pytest.fixture(autouse=True)
def shipped() -> None:
    ship_by_value(looping_job)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_bounded_loop_ends_when_nothing_is_on_its_way(tmp_path: Path, parallelism: int) -> None:
    sink = CollectSink(tmp_path / "out")
    result = run_pipeline(unkeyed(sink, COUNT), storage=tmp_path / "ck", parallelism=parallelism)
    assert result.outcome is Outcome.FINISHED
    assert turns_in(sink) == expected(COUNT)


@pytest.mark.parametrize("seed", range(2))
def test_killed_slots_lose_and_double_nothing_that_goes_round(tmp_path: Path, seed: int) -> None:
    sink = CollectSink(tmp_path / "out")
    choose = random.Random(seed)
    kills = []

    async def kill_some(job: RunningJob) -> None:
        while len(kills) < 4:
            await asyncio.sleep(choose.uniform(0.1, 0.5))
            if kill_a_slot(job, choose):
                kills.append(1)

    count = 20_000
    result = run_pipeline(
        keyed(sink, count, 10_000), storage=tmp_path / "ck", parallelism=2, interval=0.05, meanwhile=kill_some
    )
    assert result.outcome is Outcome.FINISHED
    assert len(kills) == 4
    assert turns_in(sink) == expected(count)


async def stop_after_a_few(job: RunningJob) -> None:
    while job.board.status.checkpoint.completed < 3:
        await asyncio.sleep(0.02)
    job.master.stop()


@pytest.mark.parametrize("make", [keyed, unkeyed])
def test_what_goes_round_is_dealt_out_again_with_another_parallelism(tmp_path: Path, make) -> None:
    sink = CollectSink(tmp_path / "out")
    count = 20_000
    outcomes = []
    for parallelism, rate, meanwhile in ((2, 1_000, stop_after_a_few), (3, 1_000, stop_after_a_few), (1, None, None)):
        result = run_pipeline(
            make(sink, count, rate), storage=tmp_path / "ck", parallelism=parallelism, meanwhile=meanwhile
        )
        outcomes.append(result.outcome)
    assert outcomes == [Outcome.STOPPED, Outcome.STOPPED, Outcome.FINISHED]
    assert turns_in(sink) == expected(count)


def test_at_least_once_loses_nothing_that_goes_round(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    choose = random.Random(5)

    async def kill_some(job: RunningJob) -> None:
        for _ in range(3):
            await asyncio.sleep(0.4)
            kill_a_slot(job, choose)

    result = run_pipeline(
        keyed(sink, 10_000, 8_000),
        storage=tmp_path / "ck",
        parallelism=2,
        mode=Mode.AT_LEAST_ONCE,
        interval=0.05,
        meanwhile=kill_some,
    )
    assert result.outcome is Outcome.FINISHED
    assert expected(10_000).keys() <= turns_in(sink).keys()


def test_a_loop_inside_a_loop(tmp_path: Path) -> None:
    """The inner loop takes one turn off until the number is a multiple of three, the outer one three at a time."""
    sink = CollectSink(tmp_path / "out")

    def inner(rows):
        again = looping_job.one_turn(rows.where(col("left") % 3 != 0))
        return again, rows.where(col("left") % 3 == 0)

    def outer(rows):
        inside = rows.iterate(inner, uid="inner")
        again = inside.where(col("left") > 0).with_columns(left=col("left") - 3, turns=col("turns") + 3)
        return again.rebalance(), inside.where(col("left") == 0)

    result = run_pipeline(unkeyed(sink, COUNT, body=outer), storage=tmp_path / "ck", parallelism=2, interval=0.05)
    assert result.outcome is Outcome.FINISHED
    assert turns_in(sink) == expected(COUNT)


def test_two_loops_one_behind_the_other(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        first = env.from_source(numbers(COUNT), uid="numbers").iterate(count_down, uid="first")
        refilled = first.with_columns(left=col("turns"))
        refilled.rebalance().iterate(count_down, uid="second").sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.05)
    assert result.outcome is Outcome.FINISHED
    assert turns_in(sink) == Counter((number, 2 * (number % 7)) for number in range(COUNT))


def test_broadcast_feedback_reaches_every_subtask_once(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def body(rows):
        again = rows.where(col("turns") == 0).with_columns(turns=col("turns") + 1)
        return again.broadcast(), rows.where(col("turns") == 1)

    result = run_pipeline(unkeyed(sink, COUNT, body=body), storage=tmp_path / "ck", parallelism=2, interval=0.05)
    assert result.outcome is Outcome.FINISHED
    assert turns_in(sink) == Counter({(number, 1): 2 for number in range(COUNT)})


def test_a_body_that_multiplies_a_hundredfold_goes_on_within_its_budget(tmp_path: Path) -> None:
    """20 records become 200,000 before any leaves, with channels and a memory that hold few of them."""
    sink = CollectSink(tmp_path / "out")

    def hundred(row):
        return [row._replace(id=row.id * 100 + copy, left=row.left - 1) for copy in range(100)]

    def body(rows):
        grown = rows.where(col("left") > 0).flat_map(hundred, schema="id long, left long, turns long")
        return grown.rebalance(), rows.where(col("left") == 0)

    def pipeline(env: Environment) -> None:
        seeds = env.from_source(numbers(20), uid="numbers").with_columns(left=col("left") * 0 + 2)
        leaving = seeds.iterate(body, budget=100_000, uid="loop")
        leaving.sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.1)
    assert result.outcome is Outcome.FINISHED
    assert sorted(row["id"] for row in sink.read_committed()) == list(range(200_000))


class SumOfRound(KeyedProcessFunction):
    """Puts out the sum of what came in a round when the round is over, and sends it round while it is small."""

    def open(self, context) -> None:
        self.sum = context.state(ValueState("sum", int))

    def process(self, record, context):
        self.sum.update((self.sum.value() or 0) + record.value)
        context.timers.register_round_end()

    def on_round_end(self, round, context):
        total = self.sum.value()
        self.sum.clear()
        yield {"key": context.current_key, "value": total, "round": round}


def test_the_end_of_a_round_is_told_when_all_of_it_is_done(tmp_path: Path) -> None:
    """Each key's records of round 0 become one sum; it is all there is in each later round, so it never changes."""
    sink = CollectSink(tmp_path / "out")

    def body(rows):
        sums = rows.process(SumOfRound(), schema="key long, value long, round long").uid("sum")
        return sums.where(col("round") < 5), sums

    def pipeline(env: Environment) -> None:
        rows = [{"key": number % 5, "value": number, "round": -1} for number in range(100)]
        source = env.from_collection(rows, uid="rows").rebalance().map_in_arrow(lambda batch: batch)
        source.key_by("key").iterate(body, rounds=True, uid="loop").sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.05)
    assert result.outcome is Outcome.FINISHED
    sums = {key: sum(number for number in range(100) if number % 5 == key) for key in range(5)}
    found = Counter((row["key"], row["value"], row["round"]) for row in sink.read_committed())
    assert found == Counter((key, total, round) for key, total in sums.items() for round in range(6))


class SubtaskNumber(Function):
    """Notes on each row which subtask has it in hand."""

    def open(self, context) -> None:
        self.subtask = context.subtask

    def __call__(self, batch):
        at = batch.schema.get_field_index("subtask")
        return batch.set_column(at, "subtask", pa.array([self.subtask] * batch.num_rows, pa.int64()))


class FailsWhenTold(Function):
    """Once, when the file `told` is there."""

    def __init__(self, folder: Path) -> None:
        self.told, self.fuse = folder / "told", Fuse("sink", 1, folder)

    def __call__(self, batch):
        if self.told.exists():
            self.fuse.blow("after the first completed checkpoint")
        return batch


def test_the_scenario_of_flip_16(tmp_path: Path) -> None:
    """The source adds 2, the loop feeds back minus 1, the sink fails after the first completed checkpoint."""
    sink, count, parallelism = CollectSink(tmp_path / "out"), 10_000, 2
    fails = FailsWhenTold(tmp_path)

    def body(rows):
        seen = rows.map_in_arrow(SubtaskNumber())
        again = seen.where(col("left") > 0).with_columns(left=col("left") - 1, turns=col("turns") + 1)
        return again, seen.where(col("left") == 0)

    def pipeline(env: Environment) -> None:
        source = env.from_source(numbers(count, 4_000), uid="numbers")
        plus_two = source.with_columns(left=col("left") + 2, subtask=col("id") * 0 - 1)
        done = plus_two.key_by("id").iterate(body, uid="loop")
        done.map_in_arrow(fails).sink_to(sink, uid="out")

    async def tell(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 1:
            await asyncio.sleep(0.02)
        fails.told.touch()

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=parallelism, interval=0.2, meanwhile=tell)
    assert result.outcome is Outcome.FINISHED
    assert fails.fuse.blown == 1
    found = Counter((row["subtask"], row["id"], row["turns"]) for row in sink.read_committed())
    ids = pa.record_batch({"id": np.arange(count)})
    owned = [part["id"].to_pylist() for part in HashPartitioner(["id"], parallelism, 128).split(ids)]
    assert found == Counter(
        (subtask, number, number % 7 + 2) for subtask, numbers_of in enumerate(owned) for number in numbers_of
    )
