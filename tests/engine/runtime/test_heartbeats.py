"""Silence is the slot's, not the driver's: who did not listen may not say that nothing was said."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import numpy as np

from snapshot_engine.api import Environment
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

TIMEOUT_SECONDS = 2.0


def pipeline(env: Environment) -> None:
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, rate=100)
    env.from_source(numbers, uid="numbers").sink_to(DiscardSink(), uid="out")


def test_a_driver_that_was_stopped_for_a_while_does_not_take_its_slots_for_dead(tmp_path: Path) -> None:
    async def stall(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 1:
            await asyncio.sleep(0.02)
        time.sleep(2 * TIMEOUT_SECONDS)  # the whole event loop stands still
        await asyncio.sleep(1.0)
        restarts.append(job.board.status.restarts)
        job.master.stop()

    restarts: list[int] = []
    result = run_pipeline(pipeline, storage=tmp_path, heartbeat_timeout=TIMEOUT_SECONDS, meanwhile=stall)
    assert result.outcome is Outcome.STOPPED
    assert restarts == [0]
