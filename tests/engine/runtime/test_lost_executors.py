"""The word from outside that an executor is lost: obeyed once, and only for executors that the driver knows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import aiohttp
import numpy as np
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.runtime.forked import ForkedLauncher
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.launcher import ExecutorInfo, OnEnd
from snapshot_engine.runtime.slot_task import SlotTask
from snapshot_engine.runtime.spark import LOCAL_EXECUTOR, SparkLauncher
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline
from snapshot_engine.wire import control

Tell = Callable[[str], Awaitable[dict[str, Any]]]


class WithReserve(ForkedLauncher):
    """Besides the one where all slots are, executor 2 is there, and nothing is placed on it. That a slot is gone is
    told by its connection alone, as on a cluster, where Spark's own word comes later.
    """

    def __init__(self) -> None:
        super().__init__()
        self.replaced: list[str] = []
        self.gives_up = False

    def launch(self, task: SlotTask, on_end: OnEnd) -> None:
        super().launch(task, lambda *_: None)

    def executors(self) -> list[ExecutorInfo]:
        reserve = [] if "2" in self.replaced else [ExecutorInfo("2", "localhost", 1, standby=True)]
        return [*super().executors(), *reserve]

    def replace_executor(self, executor: str) -> bool:
        self.replaced.append(executor)
        return self.gives_up


class Failures(JobEvents):
    def __init__(self) -> None:
        self.causes: list[str] = []

    def region_failed(self, run, cause: str, message: str, traceback: str, silent: float) -> None:
        self.causes.append(cause)


def pipeline(env: Environment) -> None:
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, rate=100, splits=1)
    env.from_source(numbers, uid="numbers").sink_to(DiscardSink(), uid="out")


def told(tmp_path: Path, story: Callable[[RunningJob, Tell], Awaitable[None]]) -> list[str]:
    """The executors that were replaced while `story` went on."""
    launcher = WithReserve()

    async def meanwhile(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 1:
            await asyncio.sleep(0.02)
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {job.token}"}) as session:

            async def tell(executor: str) -> dict[str, Any]:
                loss = {
                    "generation": job.board.status.generation,
                    "applicationId": "app",
                    "executorId": executor,
                    "podUid": f"uid-{executor}",
                    "podName": f"pod-{executor}",
                    "reason": "Deleted",
                }
                url = f"http://127.0.0.1:{job.api.port}{control.LOST_PODS_PATH}"
                async with session.post(url, json=loss) as response:
                    assert response.status == 200, await response.text()
                    found: dict[str, Any] = await response.json()
                    return found

            await story(job, tell)
        job.master.cancel("seen enough")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", launcher=launcher, meanwhile=meanwhile)
    launcher.close()
    assert (result.outcome, result.message) == (Outcome.STOPPED, "seen enough")
    return launcher.replaced


def attempt(job: RunningJob) -> int:
    return job.master.regions[0].run.attempt.number


async def restarted(job: RunningJob) -> None:
    while attempt(job) < 2 or job.master.regions[0].run.state.value != "Running":
        await asyncio.sleep(0.02)


def test_an_executor_that_nobody_knows_is_not_fenced_and_may_be_known_later(tmp_path: Path) -> None:
    async def story(job: RunningJob, tell: Tell) -> None:
        for _ in range(2):
            answer = await tell("7")
            assert (answer["outcome"], answer.get("regions", [])) == ("UnknownExecutor", [])
        assert attempt(job) == 1

    assert told(tmp_path, story) == []


def test_an_executor_without_slots_is_replaced_once_and_nothing_restarts(tmp_path: Path) -> None:
    async def story(job: RunningJob, tell: Tell) -> None:
        answers = [await tell("2"), await tell("2")]
        assert [answer["outcome"] for answer in answers] == ["Accepted", "AlreadyKnown"]
        assert attempt(job) == 1

    assert told(tmp_path, story) == ["2"]


def test_a_lost_executor_is_told_twice_and_its_regions_restart_once(tmp_path: Path) -> None:
    async def story(job: RunningJob, tell: Tell) -> None:
        answers = await asyncio.gather(tell("driver"), tell("driver"))
        assert sorted(answer["outcome"] for answer in answers) == ["Accepted", "AlreadyKnown"]
        assert [answer["regions"] for answer in answers] == [["0"], ["0"]]
        await restarted(job)
        assert (await tell("driver"))["outcome"] == "AlreadyKnown"
        assert attempt(job) == 2

    assert told(tmp_path, story) == ["driver"]


def test_a_late_word_names_the_region_that_restarts_already_and_restarts_nothing(tmp_path: Path) -> None:
    async def story(job: RunningJob, tell: Tell) -> None:
        kill_a_slot(job, random.Random(1))
        while job.master.regions[0].run.state.value == "Running":
            await asyncio.sleep(0.001)
        answer = await tell("driver")
        assert (answer["outcome"], answer["regions"]) == ("Accepted", ["0"])
        await restarted(job)
        assert attempt(job) == 2

    assert told(tmp_path, story) == ["driver"]


def test_a_slot_that_comes_up_on_a_fenced_executor_is_refused_and_placed_again(tmp_path: Path) -> None:
    launcher, failures = WithReserve(), Failures()
    launcher.gives_up = True

    async def lose(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 1:
            await asyncio.sleep(0.02)
        job.master.watch.executor_lost("driver", "PodLost", "gone")
        while len(failures.causes) < 3:
            await asyncio.sleep(0.01)
        assert job.master.regions[0].connections == {}
        job.master.cancel("seen enough")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", launcher=launcher, meanwhile=lose, observers=(failures,))
    launcher.close()
    assert result.message == "seen enough"
    assert failures.causes[:3] == ["PodLost", "SlotLost", "SlotLost"]


def test_the_executor_of_an_embedded_spark_is_never_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    only = ExecutorInfo(LOCAL_EXECUTOR, "localhost", 4)
    monkeypatch.setattr(SparkLauncher, "_list_executors", lambda _: [only])
    launcher = SparkLauncher(Mock())
    launcher.replace_executor(LOCAL_EXECUTOR)
    assert [executor.id for executor in launcher.executors()] == [LOCAL_EXECUTOR]
