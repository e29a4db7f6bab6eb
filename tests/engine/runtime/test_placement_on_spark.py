"""Regions on real executors: packed, spread, with one in reserve; and what happens when an executor dies."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_engine.api import Count, Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.runtime import spark
from snapshot_engine.runtime.spark import SparkLauncher, context_of, ship_by_value
from snapshot_engine.runtime.spark_settings import OWNED_SETTINGS
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

ROWS = 540_000


@pytest.fixture(scope="module")
def four_executors() -> Iterator[SparkLauncher]:
    """Three to be used, and one in reserve."""
    ship_by_value(sys.modules[__name__])
    settings = {
        **OWNED_SETTINGS,
        "spark.master": "local-cluster[4,1,1024]",
        "spark.app.name": "placement",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(sys.path),
    }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    launcher = SparkLauncher(context_of(settings), instances=3)
    yield launcher
    launcher.close()


def _places(job: RunningJob) -> dict[int, set[str]]:
    regions = job.master.regions.items()
    return {number: {c.hello.executor for c in shell.connections.values()} for number, shell in regions}


async def _until_all_run(job: RunningJob) -> dict[int, set[str]]:
    while not all(len(where) == 1 for where in _places(job).values()):
        await asyncio.sleep(0.05)
    return _places(job)


def _kill_executor(slot_pid: int) -> None:
    """The JVM that the slot's daemon belongs to."""
    daemon = int(Path(f"/proc/{slot_pid}/stat").read_text().rpartition(")")[2].split()[1])
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)


def test_each_region_has_its_own_executor_and_a_lost_one_is_answered_by_the_reserve(
    tmp_path: Path, four_executors: SparkLauncher
) -> None:
    out = CollectSink(tmp_path / "out")
    seen: dict[str, object] = {}

    def pipeline(env: Environment) -> None:
        env.from_source(bids(keys=500, count=ROWS, rate=9_000), uid="bids").sink_to(out, uid="out")

    async def lose_one(job: RunningJob) -> None:
        before = await _until_all_run(job)
        in_reserve = {executor.id for executor in four_executors.executors() if executor.standby}
        while not in_reserve <= four_executors.warm:
            await asyncio.sleep(0.05)
        _kill_executor(job.master.regions[1].connections[1].hello.pid)
        while job.master.regions[1].run.attempt.number < 2:
            await asyncio.sleep(0.02)
        while job.board.status.regions[1].state.value != "Running":
            await asyncio.sleep(0.02)
        seen.update(before=before, in_reserve=in_reserve, after=_places(job))
        seen["attempts"] = [shell.run.attempt.number for shell in job.master.regions.values()]

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=3, launcher=four_executors, meanwhile=lose_one)
    assert result.outcome is Outcome.FINISHED
    before, after = seen["before"], seen["after"]
    assert isinstance(before, dict) and isinstance(after, dict)
    assert len(set.union(*before.values())) == 3
    assert seen["attempts"] == [1, 2, 1]
    assert after == {0: before[0], 1: seen["in_reserve"], 2: before[2]}
    assert len(out.read_committed()) == ROWS


def _stop_executor(name: str) -> None:
    """Its JVM: Python processes have other names."""
    for folder in Path("/proc").glob("[0-9]*"):
        words = (folder / "cmdline").read_bytes().split(b"\0") if (folder / "cmdline").exists() else []
        is_one = b"--executor-id" in words and any(b"CoarseGrainedExecutorBackend" in word for word in words)
        if is_one and words[words.index(b"--executor-id") + 1] == name.encode():
            os.kill(int(folder.name), signal.SIGSTOP)


def test_a_reserve_that_does_not_answer_is_replaced_and_not_waited_for(
    tmp_path: Path, four_executors: SparkLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be on the very node that was lost: nothing was running there that could have been missed."""
    monkeypatch.setattr(spark, "WARM_ARRIVAL_SECONDS", 2.0)
    out = CollectSink(tmp_path / "out")
    seen: dict[str, object] = {}

    def pipeline(env: Environment) -> None:
        env.from_source(bids(keys=500, count=ROWS // 2, rate=9_000), uid="bids").sink_to(out, uid="out")

    async def lose_one(job: RunningJob) -> None:
        await _until_all_run(job)
        while len(in_reserve := {e.id for e in four_executors.executors() if e.standby}) != 1:
            await asyncio.sleep(0.1)
        while not in_reserve <= four_executors.warm:
            await asyncio.sleep(0.05)
        _stop_executor(*in_reserve)
        _kill_executor(job.master.regions[1].connections[1].hello.pid)
        while job.board.status.regions[1].state.value != "Running" or job.master.regions[1].run.attempt.number < 2:
            await asyncio.sleep(0.02)
        others = [job.master.regions[number].run.attempt.number for number in (0, 2)]
        seen.update(stopped=in_reserve, after=_places(job)[1], others=others)

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=3, launcher=four_executors, meanwhile=lose_one)
    assert result.outcome is Outcome.FINISHED
    assert seen["others"] == [1, 1]
    assert seen["after"] != seen["stopped"]
    assert len(out.read_committed()) == ROWS // 2


def test_a_region_of_two_slots_takes_two_executors_and_no_third(tmp_path: Path, four_executors: SparkLauncher) -> None:
    out = CollectSink(tmp_path / "out")
    places: dict[int, set[str]] = {}

    def pipeline(env: Environment) -> None:
        (
            env.from_source(bids(keys=100, count=20_000, rate=10_000), uid="bids")
            .key_by("auction")
            .aggregate(bids=Count())
            .uid("count")
            .sink_to(out, uid="out")
        )

    async def look(job: RunningJob) -> None:
        while len(job.master.regions[0].connections) < 2:
            await asyncio.sleep(0.02)
        places.update(_places(job))

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, launcher=four_executors, meanwhile=look)
    assert result.outcome is Outcome.FINISHED
    assert {number: len(where) for number, where in places.items()} == {0: 2}
