"""Processing time in the test's hand: a timer fires when the test says that it is time, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from snapshot_engine.api import Environment, KeyedProcessFunction
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.testing import ManualClock, Outcome, RunningJob, run_pipeline

AN_HOUR_MS = 3_600_000
KEYS = 4


class TellsAfterAnHour(KeyedProcessFunction):
    def process(self, row: Any, context: Any) -> Iterable[dict[str, int]]:
        context.timers.register_processing_time(AN_HOUR_MS)
        return ()

    def on_timer(self, timestamp: int, context: Any) -> Iterable[dict[str, int]]:
        yield {"key": context.current_key, "at": timestamp}


def test_timers_follow_the_clock_of_the_test(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    clock = ManualClock(tmp_path)
    seen: list[int] = []

    def pipeline(env: Environment) -> None:
        rows = GeneratorSource({"key": lambda offsets: (offsets % KEYS).astype(np.int64)}, rate=200)
        keyed = env.from_source(rows, uid="rows").key_by("key")
        keyed.process(TellsAfterAnHour(), schema="key bigint, at bigint").uid("timers").sink_to(sink, uid="out")

    async def move_the_clock(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 5:
            await asyncio.sleep(0.02)
        seen.append(len(sink.read_committed()))
        clock.advance(AN_HOUR_MS)
        while len(sink.read_committed()) < KEYS:
            await asyncio.sleep(0.02)
        job.master.stop()

    result = run_pipeline(pipeline, storage=tmp_path / "ck", clock=clock, meanwhile=move_the_clock)
    assert result.outcome is Outcome.STOPPED
    assert seen == [0]
    assert {(row["key"], row["at"]) for row in sink.read_committed()} >= {(key, AN_HOUR_MS) for key in range(KEYS)}
