"""Errors of the engine itself: the job must fail and tell why, never stand still."""

from __future__ import annotations

import asyncio
import contextlib
import random
from pathlib import Path

import numpy as np
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.protocol.coordinator import Coordinator
from snapshot_engine.protocol.recovery import Recovery
from snapshot_engine.runtime.exchanges.failover_facts import FailoverFacts
from snapshot_engine.runtime.forked import ForkedLauncher
from snapshot_engine.runtime.job_master import JobMaster
from snapshot_engine.runtime.launcher import OnEnd
from snapshot_engine.runtime.slot_task import SlotTask
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline


def endless(env: Environment, out: Path) -> None:
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, rate=1000.0, splits=1)
    env.from_source(numbers, uid="numbers").sink_to(CollectSink(out), uid="out")


def keyed(env: Environment, out: Path) -> None:
    """One region of as many slots as there are subtasks."""
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, rate=1000.0)
    env.from_source(numbers, uid="numbers").key_by("n").filter(lambda row: True).uid("all").sink_to(
        CollectSink(out), uid="out"
    )


async def completed(job: RunningJob, checkpoints: int) -> None:
    while job.board.status.checkpoint.completed < checkpoints:
        await asyncio.sleep(0.02)


async def kill_one(job: RunningJob) -> None:
    await completed(job, 1)
    kill_a_slot(job, random.Random(1))


async def kill_and_wait(job: RunningJob) -> None:
    """A job that stands still is ended after a while, in another way than it should end."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(kill_one(job), 5.0)
    await asyncio.sleep(10.0)
    job.master.cancel("it stands still")


def breaks(*_: object) -> None:
    raise ZeroDivisionError("broken on purpose")


@pytest.mark.parametrize(
    ("where", "what"),
    [(FailoverFacts, "gather"), (Recovery, "decide"), (Recovery, "abandon_slots")],
    ids=["asking slots", "deciding", "after the grace"],
)
def test_an_error_during_recovery_fails_the_job_with_its_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: type, what: str
) -> None:
    monkeypatch.setattr(where, what, breaks)
    if what == "abandon_slots":
        monkeypatch.setattr(Recovery, "slot_gone", lambda *_: [])
    result = run_pipeline(endless, storage=tmp_path / "ck", args={"out": tmp_path / "out"}, meanwhile=kill_one)
    assert result.outcome is Outcome.FAILED
    assert "ZeroDivisionError: broken on purpose" in result.message
    assert "in breaks" in result.message
    assert any("region 0: " in entry for entry in result.history)


def test_an_error_while_a_restart_is_carried_out_on_a_connections_word_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last slot that goes brings the restart about: what is raised then is raised where its connection is read."""
    launch = ForkedLauncher.launch
    launched: list[SlotTask] = []

    def once(self: ForkedLauncher, task: SlotTask, on_end: OnEnd) -> None:
        launched.append(task)
        if len(launched) > 1:
            raise RuntimeError("can't start new thread")
        launch(self, task, on_end)

    monkeypatch.setattr(ForkedLauncher, "launch", once)
    result = run_pipeline(
        keyed, storage=tmp_path / "ck", parallelism=2, args={"out": tmp_path / "out"}, meanwhile=kill_and_wait
    )
    assert result.outcome is Outcome.FAILED
    assert "RuntimeError: can't start new thread" in result.message
    assert len(launched) == 2


@pytest.mark.parametrize("word", ["slot_arrived", "slot_said", "slot_gone"])
def test_an_error_over_any_word_of_a_connection_fails_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    monkeypatch.setattr(JobMaster, word, breaks)
    result = run_pipeline(endless, storage=tmp_path / "ck", args={"out": tmp_path / "out"}, meanwhile=kill_and_wait)
    assert result.outcome is Outcome.FAILED
    assert "ZeroDivisionError: broken on purpose" in result.message


def test_an_error_while_checkpoints_are_timed_fails_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Coordinator, "tick", breaks)
    result = run_pipeline(endless, storage=tmp_path / "ck", args={"out": tmp_path / "out"})
    assert result.outcome is Outcome.FAILED
    assert "ZeroDivisionError: broken on purpose" in result.message


def test_an_error_while_a_checkpoint_completes_is_told_as_one_and_not_as_lost_ownership(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Coordinator, "manifest_written", breaks)
    result = run_pipeline(endless, storage=tmp_path / "ck", args={"out": tmp_path / "out"})
    assert result.outcome is Outcome.FAILED
    assert "ZeroDivisionError: broken on purpose" in result.message


def test_what_the_test_kit_does_meanwhile_may_fail_the_test(tmp_path: Path) -> None:
    async def look(job: RunningJob) -> None:
        await completed(job, 1)
        raise AssertionError("not what was expected")

    with pytest.raises(AssertionError, match="not what was expected"):
        run_pipeline(endless, storage=tmp_path / "ck", args={"out": tmp_path / "out"}, meanwhile=look)
