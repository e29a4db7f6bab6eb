"""Sources that keep together in event time, in whole jobs: a quicker one waits, and nobody waits in vain."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snapshot_engine.api import Count, Environment, Tumbling
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

ROWS = 20_000
DRIFT = 2_000
BATCH = 64


def numbers(rate: float | None, count: int = ROWS) -> GeneratorSource:
    """Each row is a millisecond after the one before it."""
    columns = {"n": lambda offsets: offsets.astype(np.int64), "ts": lambda offsets: offsets.astype(np.int64)}
    source = GeneratorSource(columns, rate=rate, count=count, splits=2)
    source.batch_rows = BATCH
    return source


def pipeline_into(sink: CollectSink, drift: str | None, exchange: str = "pipelined", slow_rate: float = 10_000):
    def pipeline(env: Environment) -> None:
        slow = env.from_source(numbers(slow_rate), uid="slow").with_watermark("ts", max_drift=drift)
        quick = env.from_source(numbers(None), uid="quick").with_watermark("ts", max_drift=drift)
        (
            slow.union(quick)
            .exchange(exchange)
            .key_by("n")
            .window(Tumbling("1s"))
            .aggregate(seen=Count())
            .uid("windows")
            .sink_to(sink, uid="out")
        )

    return pipeline


class Apart(JobEvents):
    """How far the quick source was ahead of the slow one, at each heartbeat."""

    def __init__(self) -> None:
        self.ahead: list[int] = []
        self._times: dict[str, int] = {}

    def heartbeat(self, connection: Any, subtasks: dict[str, dict[str, Any]]) -> None:
        for key, figures in subtasks.items():
            if figures["watermark"] is not None:
                self._times[key] = figures["watermark"]
        slow = [time for key, time in self._times.items() if key.startswith("slow")]
        quick = [time for key, time in self._times.items() if key.startswith("quick")]
        if slow and quick and max(slow) < ROWS:
            self.ahead.append(min(max(quick), ROWS) - min(slow))


def is_exact(sink: CollectSink) -> bool:
    rows = sink.read_committed()
    return sorted(row["n"] for row in rows) == list(range(ROWS)) and all(row["seen"] == 2 for row in rows)


def furthest_ahead(tmp_path: Path, drift: str | None) -> int:
    sink, apart = CollectSink(tmp_path / "out"), Apart()
    result = run_pipeline(
        pipeline_into(sink, drift),
        storage=tmp_path / "checkpoints",
        parallelism=2,
        observers=(apart,),
        heartbeat_seconds=0.02,
    )
    assert result.outcome is Outcome.FINISHED, result.message
    assert is_exact(sink)
    return max(apart.ahead)


def test_a_source_that_is_ahead_waits_for_the_slowest(tmp_path: Path) -> None:
    """Beyond the drift comes what may go unsaid, a batch, and what the slow one did since it was last heard of."""
    assert furthest_ahead(tmp_path, f"{DRIFT}ms") < 2.5 * DRIFT


def test_without_a_drift_it_runs_away(tmp_path: Path) -> None:
    assert furthest_ahead(tmp_path, None) > 4 * DRIFT


@pytest.mark.parametrize("exchange", ["pipelined", "durable", "committed"])
def test_nobody_waits_for_a_region_that_was_killed(tmp_path: Path, exchange: str) -> None:
    sink, choose = CollectSink(tmp_path / "out"), random.Random(7)

    async def kill(job: RunningJob) -> None:
        for _ in range(3):
            await asyncio.sleep(0.5)
            kill_a_slot(job, choose)

    result = run_pipeline(
        pipeline_into(sink, "500ms", exchange),
        storage=tmp_path / "checkpoints",
        parallelism=2,
        meanwhile=kill,
    )
    assert result.outcome is Outcome.FINISHED, result.message
    assert is_exact(sink)


def test_nobody_waits_for_a_source_that_is_silent_or_has_ended(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        streams = [
            env.from_source(numbers(rate, count), uid=uid).with_watermark("ts", idle_timeout="200ms", max_drift="100ms")
            for uid, rate, count in (("short", None, 50), ("trickle", 2.0, 6), ("long", None, ROWS))
        ]
        streams[0].union(*streams[1:]).sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "checkpoints", parallelism=2)
    assert result.outcome is Outcome.FINISHED, result.message
    assert len(sink.read_committed()) == ROWS + 56
