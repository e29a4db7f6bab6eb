"""Whole jobs on an embedded Spark: slots are Spark tasks, and Spark notices when one is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.dataframe import DataFrameSource
from snapshot_engine.protocol.restarts import RestartConfig
from snapshot_engine.runtime.spark import SparkLauncher, embedded_context, ship_by_value
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = pytest.mark.spark

ROWS = 200_000


class KillsItsReader(CollectSink):
    """A slot that is given it dies before it can say a word."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _die, ()


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkLauncher]:
    ship_by_value(sys.modules[__name__])
    launcher = SparkLauncher(embedded_context("test", 4, {}))
    yield launcher
    launcher.close()


def test_windows_stay_exact_when_slots_are_killed(tmp_path: Path, spark: SparkLauncher) -> None:
    out = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        (
            env.from_source(bids(keys=500, count=ROWS, rate=50_000, events_per_second=10_000), uid="bids")
            .with_watermark("ts", delay="1s")
            .key_by("auction")
            .window(Tumbling("5s"))
            .aggregate(bids=Count(), total=Sum("price"))
            .uid("windows")
            .sink_to(out, uid="out")
        )

    async def kill(job: RunningJob) -> None:
        choose = random.Random(1)
        for _ in range(3):
            await asyncio.sleep(0.8)
            kill_a_slot(job, choose)

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, launcher=spark, meanwhile=kill)
    assert result.outcome is Outcome.FINISHED
    rows = out.read_committed()
    assert sum(row["bids"] for row in rows) == ROWS
    assert len({(row["auction"], row["window_start"]) for row in rows}) == len(rows)


def test_a_slot_that_dies_while_it_starts_is_told_in_plain_words(tmp_path: Path, spark: SparkLauncher) -> None:
    def pipeline(env: Environment) -> None:
        env.from_source(bids(keys=5, count=10), uid="bids").sink_to(KillsItsReader(tmp_path / "out"), uid="out")

    once = RestartConfig(first_delay=0.0, per_region=1, per_job=1)
    result = run_pipeline(pipeline, storage=tmp_path / "ck", launcher=spark, restarts=once)
    assert result.outcome is Outcome.FAILED
    assert "slot 0 failed on executor driver while it started: its process was killed or crashed" in result.message


def test_a_dataframe_is_a_bounded_source(tmp_path: Path, spark: SparkLauncher) -> None:
    out = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        numbers = env.spark.range(1000).selectExpr("id", "id * 2 as twice")
        env.from_source(DataFrameSource(numbers), uid="numbers").sink_to(out, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, launcher=spark)
    assert result.outcome is Outcome.FINISHED
    assert sorted((row["id"], row["twice"]) for row in out.read_committed()) == [(n, 2 * n) for n in range(1000)]


def test_regions_of_a_forward_pipeline_restart_alone(tmp_path: Path, spark: SparkLauncher) -> None:
    out = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        env.from_source(bids(keys=500, count=40_000, rate=10_000), uid="bids").sink_to(out, uid="out")

    attempts: dict[str, int] = {}

    async def kill_one(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 3:
            await asyncio.sleep(0.05)
        kill_a_slot(job, random.Random(2))
        while True:
            attempts.update({region.id: region.attempt for region in job.board.status.regions})
            await asyncio.sleep(0.05)

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=3, launcher=spark, meanwhile=kill_one)
    assert result.outcome is Outcome.FINISHED
    assert sorted(attempts.values()) == [1, 1, 2]
    assert len(out.read_committed()) == 40_000
