"""Checkpoints and restarts of earlier drivers are in the status of the next one, read back from storage."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.testing import RunningJob, kill_a_slot, run_pipeline
from snapshot_engine.wire.status import CheckpointOutcome, JobStatus


def test_the_next_driver_shows_what_happened_under_the_one_before(tmp_path: Path) -> None:
    seen: list[JobStatus] = []

    def pipeline(env: Environment) -> None:
        numbers = GeneratorSource({"n": lambda o: o.astype(np.int64)}, count=10**9, rate=2_000, splits=2)
        env.from_source(numbers, uid="numbers").sink_to(CollectSink(tmp_path / "out"), uid="out")

    async def fail_once(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 3:
            await asyncio.sleep(0.02)
        kill_a_slot(job, random.Random(1))
        while not any("first_output" in entry.phases for entry in job.board.status.restart_history):
            await asyncio.sleep(0.02)
        job.master.stop()

    async def look(job: RunningJob) -> None:
        seen.append(job.board.snapshot())
        job.master.cancel()

    run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, meanwhile=fail_once)
    run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=2, meanwhile=look)
    [status] = seen
    assert status.generation == 2
    completed = [e for e in status.checkpoint.history if e.outcome is CheckpointOutcome.COMPLETED]
    assert len(completed) >= 3
    assert completed[0].slowest is not None
    assert completed[0].slowest.vertex == "numbers"
    [restart] = status.restart_history
    assert restart.cause in ("SlotLost", "SparkJobEnded")  # its connection, or the word that its process ended
    assert next(iter(restart.phases)) == "detect"
    assert restart.seconds is not None
