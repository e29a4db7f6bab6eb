"""Whole jobs whose rows are combined before the shuffle: exact whatever fails, and counted as rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from snapshot_engine.api import Count as Rows
from snapshot_engine.api import Environment, Max, Sum, Tumbling
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.failing import FailingSource
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

COUNT = 200_000
KEYS, SPAN = 20, 10_000


def rows(rate: float | None = None) -> GeneratorSource:
    columns = {"key": lambda n: n % KEYS, "value": lambda n: n.astype(np.int64), "ts": lambda n: n.astype(np.int64)}
    return GeneratorSource(columns, count=COUNT, rate=rate, splits=2)


def pipeline(source: Any, sink: Any) -> Any:
    def build(env: Environment) -> None:
        windows = env.from_source(source, uid="rows").with_watermark("ts", delay="1s").key_by("key")
        totals = windows.window(Tumbling(f"{SPAN}ms")).aggregate(n=Rows(), total=Sum("value"), top=Max("value"))
        totals.uid("totals").sink_to(sink, uid="out")

    return build


def wanted() -> Counter[tuple[int, ...]]:
    expected: Counter[tuple[int, ...]] = Counter()
    for start in range(0, COUNT, SPAN):
        for key in range(KEYS):
            values = range(start + key, start + SPAN, KEYS)
            expected[(key, len(values), sum(values), max(values))] += 1
    return expected


def found(sink: CollectSink) -> Counter[tuple[int, ...]]:
    return Counter((row["key"], row["n"], row["total"], row["top"]) for row in sink.read_committed())


def test_windows_are_exact(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    result = run_pipeline(pipeline(rows(), sink), storage=tmp_path / "ck", parallelism=2)
    assert result.outcome is Outcome.FINISHED
    assert found(sink) == wanted()


def test_a_source_that_fails_loses_and_doubles_nothing(tmp_path: Path) -> None:
    sink = CollectSink(tmp_path / "out")
    source = FailingSource(rows(100_000.0), at_record=30_000, folder=tmp_path)
    result = run_pipeline(pipeline(source, sink), storage=tmp_path / "ck", parallelism=2, interval=0.05)
    assert result.outcome is Outcome.FINISHED
    assert found(sink) == wanted()


def test_a_savepoint_is_restored_with_another_parallelism(tmp_path: Path) -> None:
    """One consumer takes rows as they are, two take them combined: their state is the same."""
    sink = CollectSink(tmp_path / "out")

    async def stop(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 3:
            await asyncio.sleep(0.02)
        job.master.stop("half")

    source = rows(60_000.0)
    first = run_pipeline(pipeline(source, sink), storage=tmp_path / "ck", parallelism=1, interval=0.1, meanwhile=stop)
    assert first.outcome is Outcome.STOPPED
    second = run_pipeline(
        pipeline(rows(), sink), storage=tmp_path / "ck", parallelism=2, restore_from="savepoints/half"
    )
    assert second.outcome is Outcome.FINISHED
    assert found(sink) == wanted()
