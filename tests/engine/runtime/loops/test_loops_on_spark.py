"""Loops on an embedded Spark: slots are Spark tasks, and what goes round stays exact when one is killed."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import looping_job
import pytest
from looping_job import expected, keyed, turns_in

from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.runtime.spark import SparkLauncher, embedded_context, ship_by_value
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkLauncher]:
    for module in (looping_job, sys.modules[__name__]):
        ship_by_value(module)
    launcher = SparkLauncher(embedded_context("loops", 2, {}))
    yield launcher
    launcher.close()


def test_what_goes_round_stays_exact_when_spark_loses_slots(tmp_path: Path, spark: SparkLauncher) -> None:
    sink, kills = CollectSink(tmp_path / "out"), []

    async def kill(job: RunningJob) -> None:
        choose = random.Random(1)
        while len(kills) < 3:
            completed = job.board.status.checkpoint.completed
            while job.board.status.checkpoint.completed <= completed:
                await asyncio.sleep(0.02)
            if kill_a_slot(job, choose):
                kills.append(completed)

    count = 20_000
    result = run_pipeline(
        keyed(sink, count, 4_000), storage=tmp_path / "ck", parallelism=2, launcher=spark, meanwhile=kill
    )
    assert result.outcome is Outcome.FINISHED
    assert len(kills) == 3
    assert turns_in(sink) == expected(count)
