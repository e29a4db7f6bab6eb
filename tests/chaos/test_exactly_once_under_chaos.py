"""`make chaos`: what is committed stays exact, whatever is killed, thrown, stopped or replaced."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import verifying_job
from verifying_job import KEYS, committed, expected, pipeline, together

from snapshot_engine.connectors.failing import FailingSink, Fuse
from snapshot_engine.connectors.parquet_sink import ParquetSink
from snapshot_engine.protocol.checkpoints import Abort, CheckpointConfig
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = [pytest.mark.slow, pytest.mark.spark]

DRIVER = Path(__file__).parent / "driver.py"


@pytest.fixture(scope="module")
def spark():
    from snapshot_engine.runtime.spark import SparkLauncher, embedded_context, ship_by_value

    ship_by_value(verifying_job)
    launcher = SparkLauncher(embedded_context("chaos", 4, {}))
    yield launcher
    launcher.close()


def args(tmp_path: Path, count: int, rate: float) -> dict[str, object]:
    return {"out": str(tmp_path / "out"), "count": count, "rate": rate}


def test_fifty_kills_of_slots(tmp_path: Path, spark) -> None:
    choose = random.Random(1)
    kills: list[int] = []

    async def kill(job: RunningJob) -> None:
        while len(kills) < 50:
            await asyncio.sleep(choose.uniform(0.2, 1.2))
            if kill_a_slot(job, choose):
                kills.append(1)

    count = 24_000 * KEYS
    result = run_pipeline(
        pipeline,
        storage=tmp_path / "ck",
        parallelism=2,
        args=args(tmp_path, count, 20_000),
        interval=0.2,
        launcher=spark,
        meanwhile=kill,
    )
    assert result.outcome is Outcome.FINISHED
    assert len(kills) == 50
    assert committed(tmp_path / "out").equals(expected(count))


class Aborts(JobEvents):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def checkpoint_aborted(self, action: Abort) -> None:
        self.reasons.append(action.reason)


def test_state_that_cannot_be_written(tmp_path: Path) -> None:
    """The snapshot was taken, the barrier has gone on, and then the writing fails: the checkpoint is aborted, and since
    that will not mend itself the job goes back to the last one that is whole.
    """
    count = 2_000 * KEYS
    fuse = Fuse("write", 3, tmp_path)
    aborts = Aborts()
    result = run_pipeline(
        lambda env: pipeline(env, str(tmp_path / "out"), count, 40_000, fuses={"write": fuse}),
        storage=tmp_path / "ck",
        parallelism=2,
        checkpoint=CheckpointConfig(interval=0.2, tolerable_failures=1),
        observers=(aborts,),
    )
    assert result.outcome is Outcome.FINISHED
    assert fuse.blown == 3
    assert any("'spoilt'" in reason and "in-order" in reason for reason in aborts.reasons)
    assert committed(tmp_path / "out").equals(expected(count))


@pytest.mark.parametrize("where", ["map", "snapshot", "restore", "commit"])
def test_failures_thrown(tmp_path: Path, where: str) -> None:
    count = 2_000 * KEYS
    # A restore only happens after a failure: the ones in map lead to those in the restore.
    fuses = {"map": Fuse("map", 3, tmp_path), "restore": Fuse("restore", 3 if where == "restore" else 0, tmp_path)}
    sink = FailingSink(
        ParquetSink(tmp_path / "out"),
        prepares=3 if where == "snapshot" else 0,
        commits=4 if where == "commit" else 0,
        folder=tmp_path,
    )
    result = run_pipeline(
        lambda env: pipeline(env, str(tmp_path / "out"), count, 40_000, fuses=fuses, sink=sink),
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.2,
    )
    assert result.outcome is Outcome.FINISHED
    wanted = {"map": 3, "restore": 3, "snapshot": 3, "commit": 4}[where]
    blown = {"snapshot": sink.prepare_fuse.blown, "commit": sink.commit_fuse.blown}
    assert {**{name: fuse.blown for name, fuse in fuses.items()}, **blown}[where] == wanted
    assert committed(tmp_path / "out").equals(expected(count))


def test_bounded_sources_that_end_apart(tmp_path: Path) -> None:
    choose = random.Random(11)
    count, short = 3_000 * KEYS, 500 * KEYS
    kills: list[int] = []

    async def kill(job: RunningJob) -> None:
        while len(kills) < 5:
            await asyncio.sleep(choose.uniform(0.3, 0.9))
            if kill_a_slot(job, choose):
                kills.append(1)

    result = run_pipeline(
        lambda env: pipeline(env, str(tmp_path / "out"), count, 40_000, short=short),
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.2,
        meanwhile=kill,
    )
    assert result.outcome is Outcome.FINISHED
    assert kills
    wanted = together(expected(count), expected(short, first_key=KEYS))
    assert committed(tmp_path / "out").equals(wanted)


def run_driver(tmp_path: Path, parallelism: int, **more: object) -> subprocess.Popen[str]:
    settings = {
        "storage": str(tmp_path / "ck"),
        "out": str(tmp_path / "out"),
        "folder": str(tmp_path),
        "parallelism": parallelism,
        "count": 3_000 * KEYS,
        "rate": 40_000,
        **more,
    }
    return subprocess.Popen([sys.executable, str(DRIVER), json.dumps(settings)], stdout=subprocess.PIPE, text=True)


def wait_for_checkpoint(driver: subprocess.Popen[str]) -> None:
    assert driver.stdout is not None
    for line in driver.stdout:
        if line.startswith("completed"):
            return
    raise AssertionError("the driver ended before it completed a checkpoint")


def finish(driver: subprocess.Popen[str]) -> str:
    said, _ = driver.communicate(timeout=200)
    return said.splitlines()[-1] if said else ""


def test_a_driver_killed_between_manifest_and_commit(tmp_path: Path) -> None:
    for parallelism in (2, 3, 1):
        # Each of the first three dies in a commit; the next one has another parallelism, and commits before it runs.
        finish(run_driver(tmp_path, parallelism, die_before_commit=3))
    assert finish(run_driver(tmp_path, 2)).startswith("ended finished")
    assert committed(tmp_path / "out").equals(expected(3_000 * KEYS))


def test_drivers_killed_at_any_moment(tmp_path: Path) -> None:
    choose = random.Random(7)
    for parallelism in (2, 1, 3, 2):
        driver = run_driver(tmp_path, parallelism)
        wait_for_checkpoint(driver)
        try:
            driver.wait(choose.uniform(0.0, 0.6))
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.wait()
    assert finish(run_driver(tmp_path, 2)).startswith("ended finished")
    assert committed(tmp_path / "out").equals(expected(3_000 * KEYS))


def test_a_driver_stopped_replaced_and_resumed_does_no_harm(tmp_path: Path) -> None:
    old = run_driver(tmp_path, 2)
    wait_for_checkpoint(old)
    os.kill(old.pid, signal.SIGSTOP)
    new = run_driver(tmp_path, 2)
    wait_for_checkpoint(new)
    os.kill(old.pid, signal.SIGCONT)
    assert finish(old).startswith("ended fenced")
    assert finish(new).startswith("ended finished")
    assert committed(tmp_path / "out").equals(expected(3_000 * KEYS))


def test_at_least_once_loses_nothing(tmp_path: Path) -> None:
    choose = random.Random(3)
    count = 4_000 * KEYS
    kills: list[int] = []

    async def kill(job: RunningJob) -> None:
        while len(kills) < 6:
            await asyncio.sleep(choose.uniform(0.3, 0.9))
            if kill_a_slot(job, choose):
                kills.append(1)

    result = run_pipeline(
        lambda env: pipeline(env, str(tmp_path / "out"), count, 40_000, strict=False),
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.1,
        mode=Mode.AT_LEAST_ONCE,
        meanwhile=kill,
    )
    assert result.outcome is Outcome.FINISHED
    found, wanted = committed(tmp_path / "out").to_pydict(), expected(count).to_pydict()
    rows_found = dict(zip(zip(found["key"], found["window"], strict=True), found["rows"], strict=True))
    rows_wanted = dict(zip(zip(wanted["key"], wanted["window"], strict=True), wanted["rows"], strict=True))
    assert rows_found.keys() == rows_wanted.keys()
    assert all(rows_found[group] >= rows for group, rows in rows_wanted.items())
