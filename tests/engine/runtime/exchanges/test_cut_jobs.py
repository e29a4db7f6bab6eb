"""Whole jobs with cut edges on forked slots: exact output, and only those regions restart that have to."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from snapshot_engine.api import Environment, KeyedProcessFunction, ValueState
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.hurried import Hurried
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.storage.faulty import FaultyBlobs
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

pytestmark = pytest.mark.jobs

COUNT = 20_000


@dataclass
class Row:
    n: int
    key: int


class Through(KeyedProcessFunction):
    """Lets rows through if each key's come in order, without a gap and without a repetition."""

    def open(self, context) -> None:
        self.last = context.state(ValueState("last", int, default=-1))

    def process(self, row, context):
        last = self.last.value()
        expected = row.key if last < 0 else last + KEYS
        if row.n != expected:
            raise AssertionError(f"key {row.key}: {row.n} came where {expected} was expected")
        self.last.update(row.n)
        yield Row(row.n, row.key)


KEYS = 10


COLUMNS = {
    "n": lambda offsets: offsets.astype(np.int64),
    "key": lambda offsets: (offsets % KEYS).astype(np.int64),
}


def numbers(count: int = COUNT, rate: float | None = 20_000, splits: int = 2, hurry: Path | None = None):
    if hurry is not None:
        return Hurried(COLUMNS, count=count, rate=rate, splits=splits, hurry=hurry)
    return GeneratorSource(COLUMNS, count=count, rate=rate, splits=splits)


def two_regions(exchange: str, sink: object, budget: int | None = None, **source: object):
    """Rows by key over a cut edge into a sink."""

    def pipeline(env: Environment) -> None:
        (
            env.from_source(numbers(**source), uid="numbers")
            .exchange(exchange, budget=budget)
            .rebalance()
            .filter(lambda row: True)
            .uid("through")
            .sink_to(sink, uid="out")
        )

    return pipeline


def numbers_in(sink: CollectSink) -> list[int]:
    return sorted(row["n"] for row in sink.read_committed())


async def completed(job: RunningJob, checkpoints: int) -> None:
    while job.board.status.checkpoint.completed < checkpoints:
        await asyncio.sleep(0.02)


async def all_run(job: RunningJob) -> None:
    while not all(shell.run.state.value in ("Running", "Finished") for shell in job.master.regions.values()):
        await asyncio.sleep(0.01)


def region_of(job: RunningJob, vertex: str, index: int = 0) -> int:
    return next(region.id for region in job.master.graph.regions for s in region.subtasks if s == (vertex, index))


def kill(job: RunningJob, region: int, slot: int | None = None) -> bool:
    connections = job.master.regions[region].connections
    chosen = connections.get(slot) if slot is not None else next(iter(connections.values()), None)
    if chosen is None:
        return False
    try:
        os.kill(chosen.hello.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def attempts(job: RunningJob) -> dict[int, int]:
    return {number: shell.run.attempt.number for number, shell in job.master.regions.items()}


@pytest.mark.parametrize("exchange", ["committed", "durable", "memory"])
def test_a_bounded_job_over_a_cut_edge_commits_all_rows_once(tmp_path: Path, exchange: str) -> None:
    sink = CollectSink(tmp_path / "out")
    pipeline = two_regions(exchange, sink, rate=None)
    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2)
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(sink) == list(range(COUNT))


@pytest.mark.parametrize("exchange", ["committed", "durable", "memory"])
@pytest.mark.parametrize("seed", [1, 2])
def test_killed_slots_of_all_regions_lose_and_double_nothing(tmp_path: Path, exchange: str, seed: int) -> None:
    sink = CollectSink(tmp_path / "out")
    choose = random.Random(seed)
    kills: list[int] = []

    async def kill_some(job: RunningJob) -> None:
        await completed(job, 1)
        while len(kills) < 6:
            if kill(job, choose.choice(list(job.master.regions))):
                kills.append(1)
            await asyncio.sleep(choose.uniform(0.05, 0.4))
        (tmp_path / "hurry").touch()

    result = run_pipeline(
        two_regions(exchange, sink, rate=500, hurry=tmp_path / "hurry"),
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.05,
        meanwhile=kill_some,
    )
    assert result.outcome is Outcome.FINISHED, result.message
    assert len(kills) == 6
    times = Counter(numbers_in(sink))
    assert {n: times[n] for n in range(COUNT) if times[n] != 1} == {}


def restarted_by(tmp_path: Path, exchange: str, hit: str, **source: object) -> tuple[set[str], list[int]]:
    """The vertices whose attempts changed when a slot of `hit` was killed once, and the committed output."""
    sink = CollectSink(tmp_path / "out")
    changed: set[str] = set()

    async def kill_once(job: RunningJob) -> None:
        await completed(job, 2)
        before = attempts(job)
        kill(job, region_of(job, hit))
        while attempts(job) == before:
            await asyncio.sleep(0.01)
        await all_run(job)
        for region in job.master.graph.regions:
            if attempts(job)[region.id] != before[region.id]:
                changed.update(region.vertices())

    result = run_pipeline(
        two_regions(exchange, sink, **source),
        storage=tmp_path / "ck",
        parallelism=1,
        interval=0.05,
        meanwhile=kill_once,
        heartbeat_timeout=60.0,
    )
    assert result.outcome is Outcome.FINISHED, result.message
    return changed, numbers_in(sink)


@pytest.mark.parametrize(
    ("exchange", "hit", "restarts"),
    [
        ("committed", "numbers", {"numbers"}),
        ("committed", "through", {"through"}),
        ("durable", "numbers", {"numbers", "through"}),
        ("durable", "through", {"through"}),
        ("memory", "numbers", {"numbers", "through"}),
        ("memory", "through", {"through"}),
    ],
)
def test_only_the_regions_that_must_restart_do(tmp_path: Path, exchange: str, hit: str, restarts: set[str]) -> None:
    changed, output = restarted_by(tmp_path, exchange, hit, rate=8000, splits=1)
    assert changed == restarts
    assert output == list(range(COUNT))


def test_after_a_restart_rows_at_a_committed_edge_do_not_wait_for_the_next_interval(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    async def kill_between_two_checkpoints(job: RunningJob) -> None:
        await all_run(job)
        job.master.checkpoints.request_checkpoint()
        await completed(job, 1)
        kill(job, region_of(job, "through"))
        await completed(job, 2)
        job.master.cancel("as wanted")

    result = run_pipeline(
        two_regions("committed", sink, rate=500),
        storage=tmp_path / "ck",
        interval=600.0,
        meanwhile=kill_between_two_checkpoints,
    )
    assert (result.outcome, result.message, result.cut_short) == (Outcome.STOPPED, "as wanted", True)


def deterministic_producer(exchange: str, sink: object):
    """One split, one channel, no timers: the same rows in the same order from the same checkpoint."""

    def pipeline(env: Environment) -> None:
        (
            env.from_source(numbers(rate=8000, splits=1), uid="numbers", parallelism=1)
            .deterministic()
            .exchange(exchange)
            .key_by("key")
            .process(Through(), schema=Row)
            .uid("through")
            .sink_to(sink, uid="out")
        )

    return pipeline


@pytest.mark.parametrize("exchange", ["durable", "memory"])
def test_a_deterministic_producer_restarts_alone(tmp_path: Path, exchange: str) -> None:
    sink = CollectSink(tmp_path / "out")
    seen: list[dict[int, int]] = []

    async def kill_the_producer_three_times(job: RunningJob) -> None:
        await completed(job, 1)
        for _ in range(3):
            await asyncio.sleep(0.15)
            before = attempts(job)
            kill(job, region_of(job, "numbers"))
            while attempts(job) == before:
                await asyncio.sleep(0.01)
            await all_run(job)
        seen.append(attempts(job))
        seen.append({region_of(job, "numbers"): 4})

    result = run_pipeline(
        deterministic_producer(exchange, sink),
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.05,
        meanwhile=kill_the_producer_three_times,
        heartbeat_timeout=60.0,
    )
    assert result.outcome is Outcome.FINISHED, result.message
    found, producer = seen
    assert {region: number for region, number in found.items() if number > 1} == producer
    assert numbers_in(sink) == list(range(COUNT))


def test_what_was_sealed_and_not_read_is_dealt_out_by_key_group_to_another_parallelism(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment, rate: float | None) -> None:
        (
            env.from_source(numbers(rate=rate, splits=5), uid="numbers")
            .exchange("committed")
            .key_by("key")
            .process(Through(), schema=Row)
            .uid("through")
            .sink_to(sink, uid="out")
        )

    async def stop(job: RunningJob) -> None:
        await completed(job, 3)
        job.master.stop()

    outcomes = []
    for parallelism, rate, meanwhile in ((2, 4000, stop), (3, 4000, stop), (1, 4000, stop), (2, None, None)):
        result = run_pipeline(
            pipeline,
            storage=tmp_path / "ck",
            parallelism=parallelism,
            args={"rate": rate},
            meanwhile=meanwhile,
        )
        outcomes.append(result.outcome)
    assert outcomes == [Outcome.STOPPED, Outcome.STOPPED, Outcome.STOPPED, Outcome.FINISHED]
    assert numbers_in(sink) == list(range(COUNT))


def test_segments_that_no_retained_checkpoint_needs_are_deleted(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    run_pipeline(
        two_regions("committed", sink, count=200_000, rate=100_000), storage=tmp_path / "ck", parallelism=1, retained=1
    )
    left = list((tmp_path / "ck/test/test/shared").rglob("*segment*"))
    assert len(left) <= 4  # the last ones, and those of the writer's final state
    assert numbers_in(sink) == list(range(200_000))


def test_a_full_log_pauses_its_sources_until_a_checkpoint_empties_it(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        (
            env.from_source(numbers(count=200_000, rate=None), uid="numbers")
            .exchange("durable", budget=200_000)
            .rebalance()
            .filter(lambda row: True)
            .uid("through")
            .sink_to(sink, uid="out")
        )

    result = run_pipeline(pipeline, storage=tmp_path / "ck", interval=30.0)
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(sink) == list(range(200_000))


def blocking(sink: object, out: Path | None = None):
    """A bounded result, then rows by key."""

    def pipeline(env: Environment) -> None:
        (
            env.from_source(numbers(rate=None, splits=5), uid="numbers")
            .exchange("blocking")
            .key_by("key")
            .process(Through(), schema=Row)
            .uid("through")
            .sink_to(sink, uid="out")
        )

    return pipeline


class Order(JobEvents):
    """In which order regions finished and ran."""

    def __init__(self) -> None:
        self.said: list[tuple[str, int]] = []

    def region_finished(self, run) -> None:
        self.said.append(("finished", run.region))

    def region_running(self, run) -> None:
        self.said.append(("running", run.region))


def test_the_consumer_of_a_blocking_result_starts_when_it_is_whole(tmp_path: Path) -> None:
    sink, order = CollectSink(tmp_path / "out"), Order()
    result = run_pipeline(blocking(sink), storage=tmp_path / "ck", parallelism=2, observers=(order,))
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(sink) == list(range(COUNT))
    assert order.said.index(("running", 2)) > max(order.said.index(("finished", each)) for each in (0, 1))


def test_the_consumer_of_a_blocking_result_restarts_alone_and_goes_on_behind_a_checkpoint(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    seen: list[dict[int, int]] = []

    def pipeline(env: Environment) -> None:
        slow = env.from_source(numbers(rate=2000, splits=1, hurry=tmp_path / "hurry"), uid="slow", parallelism=1)
        whole = env.from_source(numbers(rate=None, splits=5), uid="numbers").exchange("blocking").rebalance()
        slow.union(whole).filter(lambda row: True).uid("through").sink_to(sink, uid="out")

    async def kill_the_consumer(job: RunningJob) -> None:
        for _ in range(2):
            await completed(job, job.board.status.checkpoint.completed + 2)
            kill(job, region_of(job, "through"))
            await asyncio.sleep(0.2)
        seen.append(attempts(job))
        (tmp_path / "hurry").touch()

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.05, meanwhile=kill_the_consumer)
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(sink) == sorted([*range(COUNT), *range(COUNT)])
    producers = [number for number in seen[0].values() if number == 1]
    assert len(producers) == 2


def test_a_blocking_result_that_is_gone_is_made_again(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    failures = Failures()

    class Eraser(JobEvents):
        def region_finished(self, run) -> None:
            if not failures.said:
                for file in (tmp_path / "ck/test/test/shared").rglob("*segment*"):
                    file.unlink()

    result = run_pipeline(
        blocking(sink), storage=tmp_path / "ck", parallelism=1, observers=(failures, Eraser()), interval=30.0
    )
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(sink) == list(range(COUNT))
    assert any("cannot read the input numbers->" in message for _, message in failures.said)


class Failures(JobEvents):
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def region_failed(self, run, cause: str, message: str, traceback: str, silent: float) -> None:
        self.said.append((cause, message))


def run_while(tmp_path: Path, what, exchange: str = "committed", budget: int | None = None) -> dict[str, int]:
    """The attempts by vertex after `what` was done to a running job, whose output must be exact all the same."""
    sink = CollectSink(tmp_path / "out")
    found: dict[str, int] = {}

    async def do(job: RunningJob) -> None:
        await completed(job, 2)
        await what(job)
        await all_run(job)
        await completed(job, job.board.status.checkpoint.completed + 2)
        for region in job.master.graph.regions:
            found[region.vertices()[0]] = attempts(job)[region.id]
        (tmp_path / "hurry").touch()

    result = run_pipeline(
        two_regions(exchange, sink, budget, rate=500, splits=1, hurry=tmp_path / "hurry"),
        storage=tmp_path / "ck",
        parallelism=1,
        interval=0.05,
        meanwhile=do,
        heartbeat_timeout=60.0,
    )
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(sink) == list(range(COUNT))
    return found


async def restarted(job: RunningJob, region: int, attempt: int) -> None:
    while attempts(job)[region] < attempt:
        await asyncio.sleep(0.005)


def test_a_consumer_takes_its_producer_along_when_a_memory_log_has_forgotten_what_it_needs(tmp_path: Path) -> None:
    async def kill_the_consumer_long_after_a_checkpoint(job: RunningJob) -> None:
        job.master.checkpoints.hold("the test")
        while job.master.checkpoints.coordinator.pending or job.master.checkpoints.coordinator.completing:
            await asyncio.sleep(0.01)
        seen = rows_read(job)
        while rows_read(job) < seen + 10 * ROWS_IN_BUDGET:
            await asyncio.sleep(0.02)
        kill(job, region_of(job, "through"))
        await restarted(job, region_of(job, "through"), 2)
        await all_run(job)
        job.master.checkpoints.release("the test")

    found = run_while(tmp_path, kill_the_consumer_long_after_a_checkpoint, "memory", budget=16 * ROWS_IN_BUDGET)
    assert found == {"numbers": 2, "through": 2}


ROWS_IN_BUDGET = 50


def rows_read(job: RunningJob) -> int:
    return sum(each.records_in for each in job.board.status.vertices)


@pytest.mark.parametrize("first", ["numbers", "through"])
def test_a_consumer_and_the_slot_that_keeps_its_log_are_gone_and_restart_together_once(
    tmp_path: Path, first: str
) -> None:
    async def kill_both(job: RunningJob) -> None:
        for vertex in sorted(("numbers", "through"), key=lambda each: each != first):
            kill(job, region_of(job, vertex))
        for region in job.master.regions:
            await restarted(job, region, 2)

    assert run_while(tmp_path, kill_both, "durable") == {"numbers": 2, "through": 2}


def test_an_executor_that_had_a_consumer_and_the_log_it_reads_takes_both_along_once(tmp_path: Path) -> None:
    async def lose_the_executor(job: RunningJob) -> None:
        assert job.master.watch.executor_lost("driver", "PodLost", "gone") == [0, 1]
        for region in job.master.regions:
            await restarted(job, region, 2)

    assert run_while(tmp_path, lose_the_executor, "durable") == {"numbers": 2, "through": 2}


def test_two_regions_that_fail_at_the_same_moment_restart_once_each(tmp_path: Path) -> None:
    async def kill_both(job: RunningJob) -> None:
        for region in job.master.regions:
            kill(job, region)
        for region in job.master.regions:
            await restarted(job, region, 2)

    assert run_while(tmp_path, kill_both) == {"numbers": 2, "through": 2}


def test_a_region_that_fails_again_while_it_restarts_is_restarted_again(tmp_path: Path) -> None:
    async def kill_twice(job: RunningJob) -> None:
        region = region_of(job, "through")
        kill(job, region)
        await restarted(job, region, 2)
        while not kill(job, region):
            await asyncio.sleep(0.002)
        await restarted(job, region, 3)

    assert run_while(tmp_path, kill_twice) == {"numbers": 1, "through": 3}


def test_a_global_failure_during_a_regional_one_restarts_everything_once(tmp_path: Path) -> None:
    async def fail_globally(job: RunningJob) -> None:
        kill(job, region_of(job, "through"))
        await asyncio.sleep(0)
        job.master.checkpoints_keep_failing("the test wants it")
        for region in job.master.regions:
            await restarted(job, region, 2)

    found = run_while(tmp_path, fail_globally)
    assert found == {"numbers": 2, "through": 2}


def test_a_checkpoint_that_is_completing_when_a_region_fails_is_waited_for_and_used(tmp_path: Path) -> None:
    used: list[tuple[int | None, int | None]] = []

    async def kill_while_completing(job: RunningJob) -> None:
        store = job.master._store
        faulty = FaultyBlobs(store.blobs)
        store.blobs, writing = faulty, faulty.hold("manifest.json")
        while not writing.begun.is_set():
            await asyncio.sleep(0.001)
        completing = job.master.checkpoints.coordinator.completing
        region = region_of(job, "through")
        kill(job, region)
        run = job.master.regions[region].run
        while run.attempt.number == 1 and run.state.value != "Waiting":
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)  # a driver that does not wait would restart it now
        writing.let_go.set()
        await restarted(job, region, 2)
        used.append((completing, job.master.regions[region].restored_from))

    assert run_while(tmp_path, kill_while_completing) == {"numbers": 1, "through": 2}
    completing, restored = used[0]
    assert restored == completing
