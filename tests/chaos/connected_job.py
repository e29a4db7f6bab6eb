"""A connected job of several regions, and a killer that goes through them in turn and looks who restarts.

source -> parse ‖ in order, keyed windows (hash edge, parallelism 2) ‖ enrichment -> two-phase sink
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from verifying_job import SPLITS, Checked, InOrder, rows

from snapshot_engine.api import Count, Environment, Max, Min, Sum, Tumbling
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.hurried import Hurried
from snapshot_engine.connectors.parquet_sink import ParquetSink
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.testing import RunningJob

WINDOW_MS = 1000


def same(row):
    return Checked(row.key, row.seq, row.ts)


def hurried(source: GeneratorSource, hurry: str) -> Hurried:
    assert source.rate is not None and source.count is not None
    return Hurried(source.make, rate=source.rate, count=source.count, splits=SPLITS, hurry=hurry)


def connected(env: Environment, exchange: str, out: str, hurry: str, count: int, rate: float) -> None:
    (
        env.from_source(hurried(rows(count, rate), hurry), uid="rows")
        .map(same, schema=Checked)
        .with_watermark("ts", delay="100ms")
        .exchange(exchange)
        .key_by("key")
        .process(InOrder(strict=True), schema=Checked)
        .uid("in-order")
        .key_by("key")
        .window(Tumbling(f"{WINDOW_MS}ms"))
        .aggregate(rows=Count(), total=Sum("seq"), first=Min("seq"), last=Max("seq"))
        .uid("windows")
        .exchange(exchange)
        .filter(lambda row: row.rows > 0)
        .uid("enrichment")
        .sink_to(ParquetSink(out), uid="out")
    )


@dataclass
class Killer:
    """Kills slots of all regions in turn; every fifth time another region fails while the first is coming back."""

    exchange: Exchange
    kills: int
    hurry: Path
    random: Random = field(default_factory=lambda: Random(11))
    done: int = 0
    wrong: list[str] = field(default_factory=list)

    async def __call__(self, job: RunningJob) -> None:
        turns = self._turns(job)
        while self.done < self.kills:
            await self._running(job)
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
            await self._one(job, next(turns), second=self.done % 5 == 4 and self.done + 1 < self.kills)
        self.hurry.touch()

    def _turns(self, job: RunningJob) -> Iterator[int]:
        while True:
            yield from sorted(job.master.regions)

    async def _one(self, job: RunningJob, region: int, second: bool) -> None:
        before = self._attempts(job)
        hit = [region]
        self._kill(job, region)
        if second:
            await self._changed(job, region, before)
            await asyncio.sleep(self.random.uniform(0.0, 0.1))
            hit.append((region + self.random.randrange(1, len(before))) % len(before))
            self._kill(job, hit[1])
        for each in hit:
            await self._changed(job, each, before)
        await self._running(job)
        self._judge(job, before, hit)

    def _kill(self, job: RunningJob, region: int) -> None:
        connections = list(job.master.regions[region].connections.values())
        while connections:
            victim = connections.pop(self.random.randrange(len(connections)))
            try:
                os.kill(victim.hello.pid, signal.SIGKILL)
                self.done += 1
                return
            except ProcessLookupError:
                continue

    async def _changed(self, job: RunningJob, region: int, before: dict[int, int]) -> None:
        while self._attempts(job)[region] == before[region]:
            await asyncio.sleep(0.005)

    async def _running(self, job: RunningJob) -> None:
        """Everything runs, and a checkpoint has completed since."""
        while job.master.checkpoints.coordinator.suspended:
            await asyncio.sleep(0.005)
        completed = job.board.status.checkpoint.completed
        while job.board.status.checkpoint.completed == completed or job.master.checkpoints.coordinator.suspended:
            await asyncio.sleep(0.005)

    def _attempts(self, job: RunningJob) -> dict[int, int]:
        return {number: shell.run.attempt.number for number, shell in job.master.regions.items()}

    def _judge(self, job: RunningJob, before: dict[int, int], hit: list[int]) -> None:
        after = self._attempts(job)
        changed = {region for region in after if after[region] != before[region]}
        allowed = set(hit)
        if self.exchange is not Exchange.COMMITTED:
            edges = {(cut.producer, cut.consumer) for cut in job.master.cuts.channels}
            while more := {consumer for producer, consumer in edges if producer in allowed} - allowed:
                allowed |= more
        if changed != allowed:
            self.wrong.append(f"{hit} were killed, {sorted(allowed)} had to restart, {sorted(changed)} did")
