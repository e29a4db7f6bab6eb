"""Jobs with several kinds of cut edges at once: none of them may stand still."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.hurried import Hurried
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_master import JobMaster
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

pytestmark = pytest.mark.jobs

COLUMNS = {
    "n": lambda offsets: offsets.astype(np.int64),
    "key": lambda offsets: (offsets % 10).astype(np.int64),
}
STANDS_STILL_SECONDS = 30.0


def numbers(count: int | None, rate: float | None = None) -> GeneratorSource:
    return GeneratorSource(COLUMNS, count=count, rate=rate, splits=1)


def region_of(job: RunningJob, vertex: str) -> int:
    return next(region.id for region in job.master.graph.regions if vertex in region.vertices())


def state_of(job: RunningJob, vertex: str) -> str:
    return job.master.regions[region_of(job, vertex)].run.state.value


def numbers_in(sink: CollectSink) -> list[int]:
    return sorted(row["n"] for row in sink.read_committed())


async def completed(job: RunningJob, checkpoints: int) -> None:
    while job.board.status.checkpoint.completed < checkpoints:
        await asyncio.sleep(0.02)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(STANDS_STILL_SECONDS):
        while not condition():
            await asyncio.sleep(0.01)


async def end_what_stands_still(job: RunningJob) -> None:
    await asyncio.sleep(STANDS_STILL_SECONDS)
    job.master.cancel("it stands still")


class Failures(JobEvents):
    def __init__(self) -> None:
        self.said: list[str] = []

    def region_failed(self, run, cause: str, message: str, traceback: str, silent: float) -> None:
        self.said.append(f"{cause}: {message}")


def test_a_live_stream_with_a_log_pauses_while_its_consumer_waits_for_a_blocking_result(tmp_path: Path) -> None:
    failures, seen = Failures(), []

    def pipeline(env: Environment) -> None:
        live = env.from_source(numbers(None), uid="live").exchange("durable", budget=200_000).rebalance()
        table = env.from_source(numbers(4000, rate=1000.0), uid="table").exchange("blocking").rebalance()
        live.union(table).filter(lambda row: row.n < 0).uid("through").sink_to(DiscardSink(), uid="out")

    async def until_it_runs(job: RunningJob) -> None:
        live = job.master.regions[region_of(job, "live")]
        while not live.full:
            await asyncio.sleep(0.01)
        seen.append(state_of(job, "through"))
        await completed(job, 1)
        job.master.cancel("as wanted")

    result = run_pipeline(
        pipeline, storage=tmp_path / "ck", interval=0.05, meanwhile=until_it_runs, observers=(failures,)
    )
    assert (result.outcome, result.message) == (Outcome.STOPPED, "as wanted")
    assert (seen, failures.said) == (["Created"], [])


def test_checkpoints_go_on_after_a_deterministic_producer_restarted_alone_though_one_of_its_slots_keeps_no_log(
    tmp_path: Path,
) -> None:
    def pipeline(env: Environment) -> None:
        source = env.from_source(numbers(None, rate=2000.0), uid="numbers", parallelism=1).deterministic()
        far = source.exchange("durable").key_by("key").filter(lambda row: True).uid("far")
        far.sink_to(DiscardSink(), uid="far-out", parallelism=1)
        source.key_by("key").filter(lambda row: True).uid("near").sink_to(DiscardSink(), uid="near-out")

    async def kill_the_producer(job: RunningJob) -> None:
        await completed(job, 2)
        shell = job.master.regions[region_of(job, "numbers")]
        assert shell.run.slots == {0, 1}
        os.kill(shell.connections[0].hello.pid, signal.SIGKILL)
        while shell.run.attempt.number < 2 or shell.run.state.value != "Running":
            await asyncio.sleep(0.01)
        assert job.master.regions[region_of(job, "far")].run.attempt.number == 1
        await asyncio.wait_for(completed(job, job.board.status.checkpoint.completed + 3), STANDS_STILL_SECONDS)
        job.master.cancel("as wanted")

    result = run_pipeline(
        pipeline,
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.05,
        meanwhile=kill_the_producer,
        heartbeat_timeout=60.0,
    )
    assert (result.outcome, result.message) == (Outcome.STOPPED, "as wanted")


class LastWordComesLate:
    """From its first subtask's end on, what slots of one region say reaches the JobMaster only by `tell`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.of_region: int | None = None
        self._waiting: list[Callable[[], None]] = []
        for word in ("slot_said", "slot_gone", "_launch_ended"):
            monkeypatch.setattr(JobMaster, word, self._late(getattr(JobMaster, word)))

    def _late(self, hear: Callable[..., None]) -> Callable[..., None]:
        def heard(master: JobMaster, source: SlotConnection | int, *said: object) -> None:
            region = source.region if isinstance(source, SlotConnection) else source
            ends = any(isinstance(each, m.SubtaskFinished) for each in said)
            if region == self.of_region and (ends or self._waiting):
                self._waiting.append(partial(hear, master, source, *said))
            else:
                hear(master, source, *said)

        return heard

    @property
    def was_said(self) -> bool:
        return bool(self._waiting)

    def tell(self) -> None:
        self.of_region = None
        for word in self._waiting:
            word()


def test_checkpoints_go_on_after_a_deterministic_producer_restarted_alone_while_its_consumer_died_with_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody dials the new attempt, and its consumer's region counts as finished only when it has come up."""

    def pipeline(env: Environment) -> None:
        source = env.from_source(numbers(200), uid="bounded").deterministic()
        source.exchange("durable").rebalance().filter(lambda row: True).uid("far").sink_to(DiscardSink(), uid="far-out")
        env.from_source(numbers(None, rate=2000.0), uid="endless").sink_to(DiscardSink(), uid="out")

    last_word = LastWordComesLate(monkeypatch)

    async def kill_both(job: RunningJob) -> None:
        consumer = job.master.regions[region_of(job, "far")]
        producer = job.master.regions[region_of(job, "bounded")]
        last_word.of_region = consumer.run.region
        await until(lambda: last_word.was_said)
        os.kill(consumer.connections[0].hello.pid, signal.SIGKILL)
        os.kill(producer.connections[0].hello.pid, signal.SIGKILL)
        await until(lambda: producer.run.attempt.number == 2 and producer.run.state.value == "Running")
        last_word.tell()
        assert consumer.run.state.value == "Finished"
        await asyncio.wait_for(completed(job, job.board.status.checkpoint.completed + 3), STANDS_STILL_SECONDS)
        assert producer.run.attempt.number == 2
        job.master.cancel("as wanted")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", interval=0.05, meanwhile=kill_both, heartbeat_timeout=60.0)
    assert (result.outcome, result.message) == (Outcome.STOPPED, "as wanted")


def test_a_producer_that_catches_up_does_not_pause_for_a_log_that_only_a_checkpoint_would_empty(tmp_path: Path) -> None:
    """No checkpoint is triggered before it has caught up: both would wait for each other."""
    gate = tmp_path / "gate"

    def opens(row) -> bool:
        while not gate.exists():
            time.sleep(0.01)
        return True

    def pipeline(env: Environment) -> None:
        source = env.from_source(numbers(None, rate=20_000.0), uid="source").deterministic()
        middle = source.exchange("durable").rebalance().filter(lambda row: True).uid("middle")
        middle.exchange("durable", budget=100_000).rebalance().filter(opens).uid("last").sink_to(
            DiscardSink(), uid="out"
        )

    async def kill_the_paused_source(job: RunningJob) -> None:
        source = job.master.regions[region_of(job, "source")]
        await until(lambda: source.pause.paused)
        os.kill(source.connections[0].hello.pid, signal.SIGKILL)
        await until(lambda: source.run.attempt.number == 2 and source.run.state.value == "Running")
        gate.touch()
        await asyncio.wait_for(completed(job, job.board.status.checkpoint.completed + 2), STANDS_STILL_SECONDS)
        assert job.master.regions[region_of(job, "middle")].run.attempt.number == 1
        job.master.cancel("as wanted")

    result = run_pipeline(
        pipeline, storage=tmp_path / "ck", interval=0.1, meanwhile=kill_the_paused_source, heartbeat_timeout=60.0
    )
    assert (result.outcome, result.message) == (Outcome.STOPPED, "as wanted")


@pytest.mark.parametrize("other", ["durable", "memory", "committed", "pipelined"])
def test_a_producer_of_a_blocking_result_may_feed_others_in_another_way(tmp_path: Path, other: str) -> None:
    live, whole = CollectSink(tmp_path / "live"), CollectSink(tmp_path / "whole")

    def pipeline(env: Environment) -> None:
        source = env.from_source(numbers(2000), uid="numbers")
        source.exchange(other).rebalance().filter(lambda row: True).uid("live").sink_to(live, uid="live-out")
        source.exchange("blocking").rebalance().filter(lambda row: True).uid("whole").sink_to(whole, uid="whole-out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", meanwhile=end_what_stands_still)
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(live) == numbers_in(whole) == list(range(2000))


def kill(job: RunningJob, vertex: str) -> None:
    for connection in job.master.regions[region_of(job, vertex)].connections.values():
        os.kill(connection.hello.pid, signal.SIGKILL)


def runs_again(job: RunningJob, vertex: str) -> bool:
    run = job.master.regions[region_of(job, vertex)].run
    return run.attempt.number == 2 and run.state.value == "Running"


def attempt_of(job: RunningJob, vertex: str) -> int:
    return job.master.regions[region_of(job, vertex)].run.attempt.number


def test_after_a_restart_a_memory_log_forgets_again_though_a_region_still_waits_for_a_blocking_result(
    tmp_path: Path,
) -> None:
    """What is kept for the restarted region is not kept until all run: the waiting one waits for what this log lets
    through.
    """
    sink, hurry = CollectSink(tmp_path / "out"), tmp_path / "hurry"

    def pipeline(env: Environment) -> None:
        source = Hurried(COLUMNS, rate=50.0, count=50_000, splits=1, hurry=hurry)
        rows = env.from_source(source, uid="source").exchange("memory", budget=100_000).rebalance()
        result = rows.filter(lambda row: True).uid("middle").exchange("blocking").rebalance()
        result.filter(lambda row: True).uid("last").sink_to(sink, uid="out")

    async def kill_the_reader_early(job: RunningJob) -> None:
        await until(lambda: state_of(job, "source") == state_of(job, "middle") == "Running")
        kill(job, "middle")
        await until(lambda: runs_again(job, "middle"))
        assert (attempt_of(job, "source"), state_of(job, "last")) == (1, "Created")
        hurry.touch()
        await end_what_stands_still(job)

    result = run_pipeline(pipeline, storage=tmp_path / "ck", meanwhile=kill_the_reader_early, heartbeat_timeout=60.0)
    assert result.outcome is Outcome.FINISHED, result.message
    assert numbers_in(sink) == list(range(50_000))


class Gate:
    """A pipeline of its own that lets no checkpoint through before it is opened."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "gate"

    def add_to(self, env: Environment) -> None:
        file = self._file

        def waits(row) -> bool:
            while not file.exists():
                time.sleep(0.01)
            return True

        env.from_source(numbers(None, rate=1000.0), uid="gate").filter(waits).sink_to(DiscardSink(), uid="gate-out")

    def open(self) -> None:
        self._file.touch()


class Kept(JobEvents):
    """How many bytes the logs of regions of one vertex keep that run for the second time."""

    def __init__(self) -> None:
        self.by_second_attempt: dict[int, int] = {}

    def heartbeat(self, connection, subtasks) -> None:
        for figures in subtasks.values() if connection.attempt.number == 2 else ():
            self.by_second_attempt[connection.region] = figures["kept_bytes"]


class Crumbs(GeneratorSource):
    """Flat out until the file `crumbs` is there, and then so slowly that each row is a batch of its own."""

    def __init__(self, crumbs: Path) -> None:
        super().__init__(COLUMNS, count=None, rate=None, splits=1)
        self.crumbs = crumbs

    def open(self, split, position):
        reader = super().open(split, position)
        if self.crumbs.exists():
            reader._rate = 1000.0
        return reader


def test_two_deterministic_producers_in_a_row_catch_up_though_the_log_between_them_is_full(tmp_path: Path) -> None:
    """The second one needs what the first produces again, and this takes more room than it did before."""
    gate, crumbs, kept = Gate(tmp_path), tmp_path / "crumbs", Kept()

    def pipeline(env: Environment) -> None:
        source = env.from_source(Crumbs(crumbs), uid="source").deterministic()
        rows = source.exchange("durable", budget=100_000).rebalance()
        middle = rows.filter(lambda row: True).uid("middle").deterministic()
        middle.exchange("durable").rebalance().filter(lambda row: True).uid("last").sink_to(DiscardSink(), uid="out")
        gate.add_to(env)

    async def kill_both_when_the_log_is_full(job: RunningJob) -> None:
        source = job.master.regions[region_of(job, "source")]
        await until(lambda: source.pause.paused)
        await asyncio.sleep(0.5)  # all of it has come to the last one
        crumbs.touch()
        kill(job, "source")
        kill(job, "middle")
        await until(lambda: runs_again(job, "source") and runs_again(job, "middle"))
        await until(lambda: kept.by_second_attempt.get(source.run.region, 0) >= 100_000)
        gate.open()
        await asyncio.wait_for(completed(job, 2), STANDS_STILL_SECONDS)
        assert attempt_of(job, "last") == 1
        job.master.cancel("as wanted")

    result = run_pipeline(
        pipeline,
        storage=tmp_path / "ck",
        interval=0.1,
        meanwhile=kill_both_when_the_log_is_full,
        heartbeat_timeout=60.0,
        observers=(kept,),
    )
    assert (result.outcome, result.message) == (Outcome.STOPPED, "as wanted")
