"""`make chaos`, loops: two hundred kills at every moment that a checkpoint of a loop can be in; results stay exact."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from pathlib import Path

import loop_saboteur
import pytest
from loop_saboteur import BETWEEN, COUNTING, MOMENTS, REPLAY, TOLD, TWO_IN_FLIGHT, Restores, Saboteur, killed_at

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.runtime.forked import ship_by_value
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

sys.path.insert(0, str(Path(__file__).parents[1] / "engine" / "runtime" / "loops"))

import looping_job
from looping_job import count_down_two_ways, expected, numbers, turns_in

pytestmark = [pytest.mark.slow]

KILLS_PER_MOMENT = 20
TWO_AT_A_TIME = CheckpointConfig(interval=0.1, max_concurrent=2, tolerable_failures=1_000)
ONE_AFTER_THE_OTHER = CheckpointConfig(interval=0.02, max_concurrent=4, tolerable_failures=1_000)
"""Where many are to be in flight, or the first is to come before a replay is over."""


@pytest.fixture(autouse=True, scope="module")
def shipped() -> None:
    ship_by_value(looping_job)
    ship_by_value(loop_saboteur)


def pipeline_with(sink: CollectSink, saboteur: Saboteur, count: int, rate: float | None):
    def body(rows):
        return count_down_two_ways(rows.map_in_arrow(saboteur))

    def pipeline(env: Environment) -> None:
        source = env.from_source(numbers(count, rate), uid="numbers")
        source.key_by("id").iterate(body, uid="loop").sink_to(sink, uid="out")

    return pipeline


def run(tmp_path: Path, plan, count: int, rate: float | None, **more):
    (tmp_path / "kills").mkdir(exist_ok=True)
    saboteur = Saboteur(plan, str(tmp_path / "kills"))
    sink, restores = CollectSink(tmp_path / "out"), Restores(tmp_path / "kills")
    result = run_pipeline(
        pipeline_with(sink, saboteur, count, rate),
        storage=tmp_path / "ck",
        observers=(restores,),
        **{"parallelism": 2, "checkpoint": TWO_AT_A_TIME, **more},
    )
    kills = Counter(killed_at(tmp_path / "kills", plan))
    began = f"{len(set(restores.checkpoints))} checkpoints, {restores.with_records} with records on their way round"
    print(f"{dict(kills)}; began from {began}; {result.outcome.value}")
    return result, turns_in(sink), kills, restores


def plan_for(moment: str) -> list[tuple[str, int]]:
    """A replay needs something to be replayed: so every other kill is one that comes before it.

    With a replay that is let pass, the attempt dies behind a checkpoint that was taken during the replay.
    """
    choose = random.Random(moment)
    if moment == REPLAY:
        pairs = [((choose.choice(BETWEEN), 0), (REPLAY, choose.randrange(3))) for _ in range(KILLS_PER_MOMENT)]
        return [kill for pair in pairs for kill in pair]
    # The end is told once. Where barriers are held up, the head may have passed all but one of those that can be in
    # flight when the kill falls due: waiting for more of them would be waiting for ever.
    passes = {TOLD: 1, TWO_IN_FLIGHT: 1}.get(moment, 4)
    return [(moment, choose.randrange(passes)) for _ in range(KILLS_PER_MOMENT)]


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed(tmp_path: Path, moment: str) -> None:
    plan = plan_for(moment)
    count, rate = {COUNTING: (100_000, None), TOLD: (2_000, None)}.get(moment, (200_000, 4_000.0))
    checkpoint = ONE_AFTER_THE_OTHER if moment in (REPLAY, TWO_IN_FLIGHT) else TWO_AT_A_TIME
    result, found, kills, restores = run(
        tmp_path, plan, count, rate, checkpoint=checkpoint, meanwhile=until_all_are_dead(tmp_path, plan)
    )
    assert kills == Counter(moment for moment, _ in plan)
    if moment != TOLD:  # then the loop is empty
        assert restores.with_records >= KILLS_PER_MOMENT // 2
    if result.outcome is Outcome.STOPPED:
        result, found, _, _ = run(tmp_path, plan, count, None)
    assert result.outcome is Outcome.FINISHED
    assert found == expected(count)


def until_all_are_dead(tmp_path: Path, plan):
    """Stop the job behind its last kill, to run the rest of its input at full speed."""

    async def watch(job: RunningJob) -> None:
        while len(list((tmp_path / "kills").glob("kill-*"))) < len(plan):
            await asyncio.sleep(0.05)
        job.master.stop()

    return watch


def test_killed_after_a_change_of_parallelism(tmp_path: Path) -> None:
    choose = random.Random(7)
    count = 100_000
    moments = [moment for moment in BETWEEN if moment != TWO_IN_FLIGHT]  # one slot is too quick for that
    plan = [(choose.choice(moments), choose.randrange(3)) for _ in range(24)]
    for step, parallelism in enumerate((2, 3, 1, 2)):
        part = plan[: 6 * (step + 1)]
        result, found, kills, _ = run(
            tmp_path, part, count, 3_000.0, parallelism=parallelism, meanwhile=until_all_are_dead(tmp_path, part)
        )
        assert kills.total() == len(part)
    result, found, _, _ = run(tmp_path, plan, count, None, parallelism=3)
    assert result.outcome is Outcome.FINISHED
    assert found == expected(count)


@pytest.mark.spark
def test_killed_at_random_on_spark(tmp_path: Path) -> None:
    from snapshot_engine.runtime.spark import SparkLauncher, embedded_context
    from snapshot_engine.runtime.spark import ship_by_value as ship

    for module in (looping_job, loop_saboteur, sys.modules[__name__]):
        ship(module)
    launcher = SparkLauncher(embedded_context("loops", 2, {}))
    choose = random.Random(11)
    kills: list[int] = []

    async def kill(job: RunningJob) -> None:
        while len(kills) < 20:
            await asyncio.sleep(choose.uniform(0.3, 1.2))
            if kill_a_slot(job, choose):
                kills.append(1)
        job.master.stop()

    try:
        result, found, _, _ = run(tmp_path, [], 100_000, 2_000.0, launcher=launcher, meanwhile=kill)
        assert len(kills) == 20
        if result.outcome is Outcome.STOPPED:
            result, found, _, _ = run(tmp_path, [], 100_000, None, launcher=launcher)
    finally:
        launcher.close()
    assert result.outcome is Outcome.FINISHED
    assert found == expected(100_000)
