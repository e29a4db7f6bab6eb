"""The job of the recovery benchmark. Slots import this module, so it imports nothing that only a driver needs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource

KEYS = 1000


@dataclass(frozen=True)
class RowsWithTimes:
    """`made` is the wall clock, for the latency."""

    rows_per_ms: int
    """Of event time."""

    def __call__(self, offsets: Any) -> pa.RecordBatch:
        count = len(offsets)
        return pa.record_batch(
            {
                "key": (offsets % KEYS).astype(np.int64),
                "ts": (offsets // self.rows_per_ms).astype(np.int64),
                "made": np.full(count, time.time(), np.float64),
            }
        )


@dataclass
class Pipeline:
    """source -> filter ‖ keyed windows ‖ filter -> sink; without `windows` rows pass through, for the latency."""

    exchange: str
    rate: float | None
    sink: Any = field(default_factory=DiscardSink)
    windows: bool = True
    budget: int | None = None
    rows_per_ms: int = 100

    def __call__(self, env: Environment) -> None:
        source = GeneratorSource(RowsWithTimes(self.rows_per_ms), rate=self.rate, splits=2)
        stream = env.from_source(source, uid="rows").with_watermark("ts").where("key >= 0")
        cut = self._cut(stream).key_by("key")
        if self.windows:
            through = cut.window(Tumbling("1s")).aggregate(rows=Count(), total=Sum("ts")).uid("middle")
            last = self._cut(through).where("rows > 0")
        else:
            last = self._cut(cut.where("key >= 0").uid("middle")).where("key >= 0")
        last.uid("last").sink_to(self.sink, uid="out")

    def _cut(self, stream: Any) -> Any:
        if self.exchange == "pipelined":
            return stream
        budget = {"budget": self.budget} if self.budget is not None else {}
        return stream.exchange(self.exchange, **budget)


class TimedSink(DiscardSink):
    """Says with each commit how old its rows were when they came: the newest quarter of a second of them."""

    exactly_once = True

    def __init__(self) -> None:
        super().__init__()
        self.latencies: list[float] = []

    def open(self, context: Any) -> Any:
        return _TimedWriter(context.unique)

    def commit(self, committables: Sequence[Any]) -> None:
        for committable in committables:
            self.latencies += committable["latencies"]


class _TimedWriter:
    def __init__(self, name: str) -> None:
        self._name = name
        self._latencies: list[float] = []

    def write(self, batch: pa.RecordBatch) -> None:
        made = batch.column("made").to_numpy()
        self._latencies.append(float(time.time() - made[len(made) // 2]))

    def prepare(self, checkpoint: int) -> Sequence[Any]:
        taken, self._latencies = self._latencies[-200:], []
        return [{"latencies": taken}] if taken else []

    def close(self) -> None:
        """Nothing is held."""
