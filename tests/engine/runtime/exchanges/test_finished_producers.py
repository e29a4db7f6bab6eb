"""What a source had sent that ended before a change of parallelism is counted along channels that there are no more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snapshot_engine.api import Count, Environment, Exchange, Sum
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

SHORT, LONG, KEYS = 300, 1500, 5


def numbers(count: int, rate: float | None) -> GeneratorSource:
    columns = {"key": lambda n: (n % np.uint64(KEYS)).astype(np.int64), "value": lambda n: n.astype(np.int64)}
    return GeneratorSource(columns, count=count, rate=rate, splits=3)


def pipeline(sink: Any, exchange: Exchange, rate: float | None) -> Any:
    def build(env: Environment) -> None:
        env.exchange = exchange
        ends_soon = env.from_source(numbers(SHORT, None), uid="short")
        goes_on = env.from_source(numbers(LONG, rate), uid="long")
        totals = ends_soon.union(goes_on).key_by("key").aggregate(n=Count(), total=Sum("value")).uid("totals")
        totals.sink_to(sink, uid="out")

    return build


@pytest.mark.parametrize("exchange", [Exchange.MEMORY, Exchange.DURABLE])
def test_a_source_that_had_ended_counts_nothing_along_the_channels_of_another_parallelism(
    tmp_path: Path, exchange: Exchange
) -> None:
    sink = CollectSink(tmp_path / "out")

    async def stop(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 3:
            await asyncio.sleep(0.02)
        job.master.stop()

    for parallelism, rate, meanwhile in ((3, 1000.0, stop), (2, 1000.0, stop), (3, None, None)):
        result = run_pipeline(
            pipeline(sink, exchange, rate),
            storage=tmp_path / "ck",
            parallelism=parallelism,
            interval=0.05,
            meanwhile=meanwhile,
        )
    assert result.outcome is Outcome.FINISHED
    expected = {}
    for key in range(KEYS):
        values = [*range(key, SHORT, KEYS), *range(key, LONG, KEYS)]
        expected[key] = (len(values), sum(values))
    found: dict[int, tuple[int, int]] = {}
    for row in sink.read_committed():
        found[row["key"]] = max(found.get(row["key"], (0, 0)), (row["n"], row["total"]))
    assert found == expected
