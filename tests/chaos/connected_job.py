"""A connected job of several regions, and a killer that goes through them in turn and looks who restarts.

source -> parse ‖ in order, keyed windows (hash edge, parallelism 2) ‖ enrichment -> two-phase sink
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
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
        .process(InOrder(strict=True, fuses={}), schema=Checked)
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
    """Kills slots of all regions in turn. Every fifth time another region fails as well: by turns while the first is
    coming back, and while it catches up with what has piled up meanwhile.
    """

    exchange: Exchange
    kills: int
    hurry: Path
    random: Random = field(default_factory=lambda: Random(11))
    done: int = 0
    second: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """From each kill until everything ran and a checkpoint had completed since."""
    wrong: list[str] = field(default_factory=list)

    async def __call__(self, job: RunningJob) -> None:
        turns = self._turns(job)
        await self._running(job)
        while self.done < self.kills:
            await asyncio.sleep(self.random.uniform(0.0, 0.2))
            begun = time.monotonic()
            await self._one(job, next(turns), second=self.done % 5 == 4 and self.done + 1 < self.kills)
            self.seconds.append(time.monotonic() - begun)
        self.hurry.touch()

    def _turns(self, job: RunningJob) -> Iterator[int]:
        while True:
            yield from sorted(job.master.regions)

    async def _one(self, job: RunningJob, region: int, second: bool) -> None:
        before = self._attempts(job)
        hit = [region]
        while not self._kill(job, region):
            await asyncio.sleep(0.005)
        await self._changed(job, region, before)
        if second:
            await self._for_a_second_failure(job)
            other = (region + self.random.randrange(1, len(before))) % len(before)
            meanwhile = self._attempts(job)
            if self._kill(job, other):  # it may be down with the first
                hit.append(other)
                await self._changed(job, other, meanwhile)
        await self._running(job)
        self._judge(job, before, hit)

    async def _for_a_second_failure(self, job: RunningJob) -> None:
        when = "while it restarts" if self.second.total() % 2 == 0 else "while it catches up"
        self.second[when] += 1
        if when == "while it catches up":
            while job.master.checkpoints.coordinator.suspended:
                await asyncio.sleep(0.002)
        await asyncio.sleep(self.random.uniform(0.0, 0.05))

    def _kill(self, job: RunningJob, region: int) -> bool:
        """One of the region's slots, if any is there."""
        connections = list(job.master.regions[region].connections.values())
        while connections:
            victim = connections.pop(self.random.randrange(len(connections)))
            try:
                os.kill(victim.hello.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.done += 1
            return True
        return False

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
