"""How jobs end, and fail to: a sink that would not commit, a stop that was cut off, storage that gives out no ids."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_engine.api import Count, Environment, KeyedProcessFunction, ProcessContext, Tumbling
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.parquet_files import ParquetSource
from snapshot_engine.connectors.protocols import Committable, SweptJob
from snapshot_engine.connectors.staged_files import STAGING
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionState
from snapshot_engine.protocol.restarts import RestartConfig
from snapshot_engine.runtime import commits
from snapshot_engine.runtime.embedded import open_job_store, tidy_up
from snapshot_engine.runtime.forked import ForkedLauncher
from snapshot_engine.runtime.job_result import JobResult
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import OnEnd
from snapshot_engine.runtime.slot_task import SlotTask
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.storage.errors import NoIdsLeft, OwnershipLost
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot, VertexSnapshot
from snapshot_engine.storage.pieces import StorageConfig
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

COUNT = 2_000


class StubbornSink(CollectSink):
    """Commits nothing while its folder's neighbour `closed` is there."""

    def commit(self, committables: object) -> None:
        if (self.folder.parent / "closed").exists():
            raise RuntimeError("closed")
        super().commit(committables)


def numbers(rate: float | None = None) -> GeneratorSource:
    return GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, count=COUNT, rate=rate, splits=2)


def pipeline_into(sink: CollectSink, rate: float | None = None):
    def pipeline(env: Environment) -> None:
        env.from_source(numbers(rate), uid="numbers").sink_to(sink, uid="out")

    return pipeline


def numbers_in(sink: CollectSink) -> list[int]:
    return sorted(row["n"] for row in sink.read_committed())


async def completed(job: RunningJob, checkpoints: int) -> None:
    while job.board.status.checkpoint.completed < checkpoints:
        await asyncio.sleep(0.02)


def test_a_job_whose_last_commit_fails_has_not_finished_and_the_next_driver_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commits, "FIRST_PAUSE_SECONDS", 0.001)
    sink = StubbornSink(tmp_path / "out")
    (tmp_path / "closed").touch()
    result = run_pipeline(pipeline_into(sink), storage=tmp_path / "ck", interval=None)
    assert result.outcome is Outcome.FAILED
    assert "failed to commit" in result.message
    assert numbers_in(sink) == []
    (tmp_path / "closed").unlink()
    assert run_pipeline(pipeline_into(sink), storage=tmp_path / "ck").outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


def test_a_job_of_the_same_name_leaves_what_is_prepared_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has checkpoint storage of its own, and so generations of its own."""
    monkeypatch.setattr(commits, "FIRST_PAUSE_SECONDS", 0.001)
    sink = StubbornSink(tmp_path / "out")
    (tmp_path / "closed").touch()
    assert run_pipeline(pipeline_into(sink), storage=tmp_path / "ck", interval=None).outcome is Outcome.FAILED
    (tmp_path / "closed").unlink()
    for _ in range(2):  # the second driver sweeps what those of generations before 2 have left
        run_pipeline(pipeline_into(sink), storage=tmp_path / "the namesake's", interval=None)
    assert run_pipeline(pipeline_into(sink), storage=tmp_path / "ck").outcome is Outcome.FINISHED
    assert numbers_in(sink) == sorted([*range(COUNT), *range(COUNT)])


@pytest.mark.parametrize("stops", [False, True])
def test_what_killed_slots_have_staged_is_gone_when_the_job_has_ended_well(tmp_path: Path, stops: bool) -> None:
    sink = CollectSink(tmp_path / "out")
    left: list[Path] = []

    def staged() -> list[Path]:
        return [path for path in (tmp_path / "out" / STAGING).rglob("*") if path.is_file()]

    async def kill_with_an_open_file(job: RunningJob) -> None:
        await completed(job, 2)
        while not left:
            left.extend(staged())
            await asyncio.sleep(0.01)
        assert kill_a_slot(job, random.Random(1)) is not None
        await completed(job, job.board.status.checkpoint.completed + 2)
        if stops:
            job.master.stop()

    pipeline = pipeline_into(sink, rate=500)
    result = run_pipeline(pipeline, storage=tmp_path / "ck", meanwhile=kill_with_an_open_file)
    assert result.outcome is (Outcome.STOPPED if stops else Outcome.FINISHED) and left
    assert staged() == []
    assert run_pipeline(pipeline, storage=tmp_path / "ck").outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


async def test_what_a_manifest_names_is_left_when_a_job_ends(tmp_path: Path) -> None:
    """As it would be committed again by whoever restores it."""
    swept: list[tuple[int, list[str]]] = []

    class Sink(CollectSink):
        def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None:
            swept.append((before_generation, [each["staged"] for each in keep]))

    graph = plan_pipeline(pipeline_into(Sink(tmp_path)), options=PlanOptions())
    settings = JobSettings("job", "ns", "uid", StorageConfig(str(tmp_path), Layout("ns", "job")))
    store = open_job_store(settings)
    store.acquire("uid")
    state = OperatorState("out", "sink", committables=({"staged": "s"},))
    vertices = {"out": VertexSnapshot(1, {0: SubtaskSnapshot(Attempt(1, 1), (state,))})}
    store.complete(Manifest(1, 1, "job", "uid", 0.0, 1.0, 128, vertices), 1)
    for end in (JobResult(Outcome.FINISHED), JobResult(Outcome.STOPPED)):
        await tidy_up(end, settings, graph, store)
    for end in (JobResult(Outcome.FAILED), JobResult(Outcome.STOPPED, cut_short=True), JobResult(Outcome.FENCED)):
        await tidy_up(end, settings, graph, store)
    assert swept == [(2, ["s"]), (2, ["s"])], "a checkpoint may be completing yet where the end was not in order"


def test_a_stop_whose_commit_fails_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "FIRST_PAUSE_SECONDS", 0.001)
    sink = StubbornSink(tmp_path / "out")

    async def close_and_stop(job: RunningJob) -> None:
        await completed(job, 1)
        (tmp_path / "closed").touch()
        job.master.stop("last")

    result = run_pipeline(
        pipeline_into(sink, rate=500.0), storage=tmp_path / "ck", interval=None, meanwhile=_asking_first(close_and_stop)
    )
    assert result.outcome is Outcome.FAILED
    (tmp_path / "closed").unlink()
    assert run_pipeline(pipeline_into(sink), storage=tmp_path / "ck").outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


def _asking_first(then):
    """No periodic checkpoint shall come between: the one that is waited for is asked for."""

    async def ask(job: RunningJob) -> None:
        while job.master.checkpoints.coordinator.suspended:
            await asyncio.sleep(0.01)
        job.master.checkpoints.request_checkpoint()
        await then(job)

    return ask


def test_after_a_stop_that_was_cut_off_the_job_can_be_stopped_again(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    seen = []

    async def stop_twice(job: RunningJob) -> None:
        await completed(job, 1)
        job.master.stop("first")
        executors = {c.hello.executor for s in job.master.regions.values() for c in s.connections.values()}
        job.master.watch.executor_lost(executors.pop(), "Test", "pulled the plug")  # before anybody could acknowledge
        seen.append(job.master.stopping)
        job.master.stop("second")

    result = run_pipeline(pipeline_into(sink, rate=500.0), storage=tmp_path / "ck", interval=0.1, meanwhile=stop_twice)
    assert seen == [False]
    assert result.outcome is Outcome.STOPPED
    assert result.savepoint is not None
    assert result.savepoint.rstrip("/").endswith("second")


def test_storage_that_gives_out_no_ids_aborts_checkpoints_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = CollectSink(tmp_path / "out")
    reasons = []

    def refuse() -> int:
        raise NoIdsLeft("the disk is full")

    async def run_out(job: RunningJob) -> None:
        await completed(job, 1)
        with monkeypatch.context() as patched:
            patched.setattr(job.master._store, "next_checkpoint_id", refuse)
            failed = job.board.status.checkpoint.failed
            while job.board.status.checkpoint.failed < failed + 2:
                await asyncio.sleep(0.02)
            reasons.append(job.board.status.checkpoint.last_failure)

    result = run_pipeline(pipeline_into(sink, rate=500.0), storage=tmp_path / "ck", interval=0.05, meanwhile=run_out)
    assert len(reasons) == 1
    assert "the disk is full" in reasons[0]
    assert result.outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


def test_a_job_that_is_stopped_while_storage_gives_out_no_ids_stops_when_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = CollectSink(tmp_path / "out")

    def refuse() -> int:
        raise NoIdsLeft("the disk is full")

    async def stop(job: RunningJob) -> None:
        await completed(job, 1)
        with monkeypatch.context() as patched:
            patched.setattr(job.master._store, "next_checkpoint_id", refuse)
            failed = job.board.status.checkpoint.failed
            job.master.stop()
            while job.board.status.checkpoint.failed < failed + 2:
                await asyncio.sleep(0.02)

    result = run_pipeline(
        pipeline_into(sink, rate=500.0), storage=tmp_path / "ck", interval=600.0, meanwhile=_asking_first(stop)
    )
    assert result.outcome is Outcome.STOPPED
    assert "stopped after checkpoint" in result.message
    assert not result.cut_short


def test_a_stop_survives_that_the_disk_is_full_for_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few restarts are no answer to that: they would be used up before anybody has made room."""
    sink = CollectSink(tmp_path / "out")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async def stop(job: RunningJob) -> None:
        await completed(job, 1)
        with monkeypatch.context() as patched:
            patched.setattr(job.master._store, "complete", refuse)
            job.master.stop()
            await asyncio.sleep(2.5)

    result = run_pipeline(
        pipeline_into(sink, rate=100.0),
        storage=tmp_path / "ck",
        checkpoint=CheckpointConfig(interval=0.05, tolerable_failures=0),
        restarts=RestartConfig(first_delay=0.01, max_delay=0.01, per_region=3, per_job=3),
        meanwhile=stop,
    )
    assert result.outcome is Outcome.STOPPED, result.message
    assert not result.cut_short


@pytest.mark.parametrize("interval", [None, 0.01])
def test_slots_that_have_nothing_to_read_hold_nothing_up(tmp_path: Path, interval: float | None) -> None:
    """One file for three sources: two have ended before the job runs, and say so to barriers and watermarks alike."""
    rows = {"key": [n % 7 for n in range(COUNT)], "ts": list(range(COUNT))}
    pq.write_table(pa.table(rows), tmp_path / "only.parquet", row_group_size=100)
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        read = env.from_source(ParquetSource(tmp_path / "only.parquet"), uid="rows").with_watermark("ts")
        counted = read.key_by("key").window(Tumbling("1s")).aggregate(rows=Count()).uid("counts")
        counted.sink_to(sink, uid="out")

    for number in range(3):
        result = run_pipeline(
            pipeline, storage=tmp_path / f"checkpoints-{number}", parallelism=3, interval=interval, uid=str(number)
        )
        assert result.outcome is Outcome.FINISHED
        assert sum(row["rows"] for row in sink.read_committed()) == (number + 1) * COUNT


@pytest.mark.parametrize("ends", ["cancelled", "fenced"])
def test_a_job_that_ends_during_a_recovery_starts_no_new_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    launch = ForkedLauncher.launch
    launched: list[int] = []

    def note(self: ForkedLauncher, task: SlotTask, on_end: OnEnd) -> None:
        launched.append(task.attempt.number)
        launch(self, task, on_end)

    monkeypatch.setattr(ForkedLauncher, "launch", note)

    def pipeline(env: Environment) -> None:
        whole = env.from_source(numbers(rate=100), uid="numbers").key_by("n")
        whole.filter(lambda row: True).uid("all").sink_to(CollectSink(tmp_path / "out"), uid="out")

    async def end_while_it_goes_down(job: RunningJob) -> None:
        await completed(job, 1)
        kill_a_slot(job, random.Random(1))
        while job.master.regions[0].run.state is not RegionState.CANCELLING:
            await asyncio.sleep(0)
        if ends == "cancelled":
            job.master.cancel()
        else:
            job.master.lost_ownership(OwnershipLost(1, 2, "current"))

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, meanwhile=end_while_it_goes_down)
    assert result.outcome is (Outcome.STOPPED if ends == "cancelled" else Outcome.FENCED)
    assert launched == [1]


def test_a_source_that_has_ended_may_be_chained_with_what_it_was_not(tmp_path: Path) -> None:
    """With one subtask its watermarks are in its chain, with more they are in a vertex of their own."""
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        few = env.from_collection([{"n": -1}], schema="n bigint", uid="few").with_watermark("n").uid("times-of-few")
        many = env.from_source(numbers(rate=500.0), uid="numbers").with_watermark("n").uid("times")
        few.union(many).rebalance().sink_to(sink, uid="out")

    async def stop_when_the_few_have_ended(job: RunningJob) -> None:
        while not any(subtask.vertex == "few" for subtask in job.master.checkpoints.coordinator.finished_subtasks):
            await asyncio.sleep(0.02)
        await completed(job, job.board.status.checkpoint.completed + 1)
        job.master.stop()

    for parallelism in (3, 1, 3):
        result = run_pipeline(
            pipeline, storage=tmp_path / "ck", parallelism=parallelism, meanwhile=stop_when_the_few_have_ended
        )
        assert result.outcome is Outcome.STOPPED
    assert run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2).outcome is Outcome.FINISHED
    assert numbers_in(sink) == [-1, *range(COUNT)]


class HandsOn(KeyedProcessFunction):
    def process(self, record: Any, context: ProcessContext) -> Any:
        yield record


@pytest.mark.parametrize("step", ["aggregate", "reduce", "process", "window", "join"])
def test_what_had_ended_before_a_restart_lies_still_after_it(tmp_path: Path, step: str) -> None:
    """Heartbeats and checkpoints ask all subtasks alike, also those that have no state any more."""
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        few = env.from_collection([{"n": 1}], schema="n bigint", uid="few")
        match step:
            case "aggregate":
                ended = few.key_by("n").aggregate(rows=Count())
            case "reduce":
                ended = few.key_by("n").reduce(lambda old, new: new)
            case "process":
                ended = few.key_by("n").process(HandsOn(), schema="n bigint")
            case "window":
                ended = few.with_watermark("n").key_by("n").window(Tumbling("1s")).aggregate(rows=Count())
            case _:
                others = env.from_collection([{"n": 1}], schema="n bigint", uid="others")
                ended = few.join(others).on("n").unbounded()
        steady = env.from_source(numbers(rate=1_000.0), uid="numbers")
        ended.uid("ended").select("n").union(steady).rebalance().sink_to(sink, uid="out")

    async def stop_when_the_few_have_ended(job: RunningJob) -> None:
        while not any(subtask.vertex == "ended" for subtask in job.master.checkpoints.coordinator.finished_subtasks):
            await asyncio.sleep(0.02)
        job.master.stop()

    first = run_pipeline(pipeline, storage=tmp_path / "ck", meanwhile=stop_when_the_few_have_ended)
    assert first.outcome is Outcome.STOPPED
    no_restarts = RestartConfig(per_region=0, per_job=0)
    second = run_pipeline(pipeline, storage=tmp_path / "ck", interval=0.05, restarts=no_restarts)
    assert second.outcome is Outcome.FINISHED, second.message
    assert numbers_in(sink) == sorted([1, *range(COUNT)])


def test_a_function_that_calls_exit_is_told_as_one_that_failed(tmp_path: Path) -> None:
    """Not as a slot that was lost: nobody would find out why."""

    def pipeline(env: Environment) -> None:
        stream = env.from_source(numbers(), uid="numbers")
        stream.map(lambda row: sys.exit("no licence")).sink_to(CollectSink(tmp_path / "out"), uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", restarts=RestartConfig(per_region=0, per_job=0))
    assert result.outcome is Outcome.FAILED
    assert "SystemExit: no licence" in result.message, result.message
