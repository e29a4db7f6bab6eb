"""Whole jobs on forked slots: nothing is lost and nothing is doubled, whatever fails."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.failing import FailingSink, FailingSource
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline, slot_pids

COUNT = 40_000
SLOW = 2_000.0
"""Rows per second of a source that must not have ended before the test has done what it wants to do."""


def numbers(count: int = COUNT, rate: float | None = 20_000, splits: int = 4) -> GeneratorSource:
    return GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, count=count, rate=rate, splits=splits)


def numbers_in(sink: CollectSink) -> list[int]:
    return sorted(row["n"] for row in sink.read_committed())


async def completed(job: RunningJob, checkpoints: int) -> None:
    while job.board.status.checkpoint.completed < checkpoints:
        await asyncio.sleep(0.02)


async def stop_after_a_few(job: RunningJob, savepoint: str | None = None) -> None:
    await completed(job, 3)
    job.master.stop(savepoint)


def shuffled(source: object, sink: object):
    """Two vertices with a channel between each pair of subtasks."""

    def pipeline(env: Environment) -> None:
        env.from_source(source, uid="numbers").rebalance().filter(lambda row: True).sink_to(sink, uid="out")

    return pipeline


def test_a_bounded_job_commits_all_rows_once(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    result = run_pipeline(shuffled(numbers(rate=None), sink), storage=tmp_path / "ck", parallelism=2)
    assert result.outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


@pytest.mark.parametrize("seed", range(3))
def test_killed_slots_lose_and_double_nothing(tmp_path: Path, seed: int) -> None:
    sink = CollectSink(tmp_path / "out")
    choose = random.Random(seed)
    kills = []

    async def kill_some(job: RunningJob) -> None:
        while not slot_pids(job):
            await asyncio.sleep(0.01)
        for _ in range(4):
            if kill_a_slot(job, choose):
                kills.append(1)
            await asyncio.sleep(choose.uniform(0.1, 0.5))

    result = run_pipeline(
        shuffled(numbers(), sink), storage=tmp_path / "ck", parallelism=2, interval=0.05, meanwhile=kill_some
    )
    assert result.outcome is Outcome.FINISHED
    assert kills
    assert numbers_in(sink) == list(range(COUNT))


def test_a_source_that_fails_is_restarted_from_the_latest_checkpoint(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    source = FailingSource(numbers(), at_record=7000, folder=tmp_path)
    result = run_pipeline(shuffled(source, sink), storage=tmp_path / "ck", parallelism=2)
    assert result.outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


def test_a_sink_that_fails_in_prepare_and_in_commit_is_asked_again(tmp_path: Path) -> None:
    collected = CollectSink(tmp_path / "out")
    sink = FailingSink(collected, prepares=2, commits=3, folder=tmp_path)
    result = run_pipeline(shuffled(numbers(), sink), storage=tmp_path / "ck", parallelism=2)
    assert result.outcome is Outcome.FINISHED
    assert numbers_in(collected) == list(range(COUNT))


def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    source = FailingSource(numbers(), at_record=7000, folder=tmp_path)
    run_pipeline(shuffled(source, sink), storage=tmp_path / "ck", parallelism=2, mode=Mode.AT_LEAST_ONCE)
    assert set(numbers_in(sink)) == set(range(COUNT))


def test_a_stopped_job_goes_on_with_another_parallelism(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    outcomes = [
        run_pipeline(
            shuffled(numbers(rate=rate), sink), storage=tmp_path / "ck", parallelism=parallelism, meanwhile=meanwhile
        ).outcome
        for parallelism, rate, meanwhile in ((2, SLOW, stop_after_a_few), (3, SLOW, stop_after_a_few), (1, None, None))
    ]
    assert outcomes == [Outcome.STOPPED, Outcome.STOPPED, Outcome.FINISHED]
    assert numbers_in(sink) == list(range(COUNT))


def test_stop_with_a_savepoint_commits_and_can_be_restored(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    async def stop(job: RunningJob) -> None:
        await stop_after_a_few(job, "half")

    first = run_pipeline(shuffled(numbers(rate=SLOW), sink), storage=tmp_path / "ck", parallelism=2, meanwhile=stop)
    assert first.savepoint is not None
    committed = len(numbers_in(sink))
    assert 0 < committed < COUNT
    second = run_pipeline(
        shuffled(numbers(), sink), storage=tmp_path / "ck", parallelism=2, restore_from="savepoints/half"
    )
    assert second.outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


def test_a_savepoint_of_a_running_job_changes_nothing_and_is_complete(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    async def savepoint_soon(job: RunningJob) -> None:
        await completed(job, 3)
        job.master.checkpoints.request_savepoint("copy", False)

    run_pipeline(
        shuffled(numbers(), sink), storage=tmp_path / "ck", parallelism=2, interval=0.05, meanwhile=savepoint_soon
    )
    assert numbers_in(sink) == list(range(COUNT))
    again = run_pipeline(
        shuffled(numbers(), sink),
        storage=tmp_path / "other",
        parallelism=1,
        restore_from=str(tmp_path / "ck/test/test/savepoints/copy"),
    )
    assert again.outcome is Outcome.FINISHED
    # What came before the savepoint is not written again, what came after it is, since this is another run of it.
    times = Counter(numbers_in(sink))
    assert times.keys() == set(range(COUNT))
    assert set(times.values()) == {1, 2}


def test_sources_that_end_apart_still_checkpoint(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        short = env.from_source(numbers(1000, rate=None), uid="short", parallelism=1)
        long = env.from_source(numbers(20_000), uid="long")
        short.union(long).rebalance().sink_to(sink, uid="out")

    choose = random.Random(5)

    async def kill_late(job: RunningJob) -> None:
        for _ in range(2):
            await asyncio.sleep(0.4)
            kill_a_slot(job, choose)

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, interval=0.05, meanwhile=kill_late)
    assert result.outcome is Outcome.FINISHED
    assert numbers_in(sink) == sorted([*range(1000), *range(20_000)])


async def kill_twice(job: RunningJob) -> None:
    choose = random.Random(9)
    for checkpoints in (2, 5):
        await completed(job, checkpoints)
        kill_a_slot(job, choose)


def test_several_checkpoints_in_flight_lose_and_double_nothing(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    config = CheckpointConfig(interval=0.01, max_concurrent=4, tolerable_failures=1000)
    result = run_pipeline(
        shuffled(numbers(), sink), storage=tmp_path / "ck", parallelism=2, checkpoint=config, meanwhile=kill_twice
    )
    assert result.outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))


def test_the_memory_backend_writes_no_pieces_and_restores_from_its_manifests(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    result = run_pipeline(
        shuffled(numbers(), sink), storage=tmp_path / "ck", parallelism=2, backend="memory", meanwhile=kill_twice
    )
    assert result.outcome is Outcome.FINISHED
    assert numbers_in(sink) == list(range(COUNT))
    assert not list((tmp_path / "ck").rglob("*.arrow"))
