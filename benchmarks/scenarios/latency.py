"""Latency from source to sink at a low rate and at half load: through a shuffle, keyed state and a second process.

    .venv/bin/python -m benchmarks.scenarios.latency --seconds 20

A row carries the time at which it was due, by the rate, or that of the oldest row it came with; the sink takes the
difference when the row arrives there. So what waits because the source stood still has waited. Both clocks are the
machine's own. Checkpoints each second go on meanwhile. Half load is half of what the same pipeline takes
when it is let run. At the low rate every row is given to a function; at half load a running count is kept by columns,
of which each batch gives the newest row of each key that it had.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import Count, Environment, Max
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.protocols import Committable, SweptJob, WriterContext
from snapshot_engine.runtime.launcher import SlotLauncher

KEYS = 1_000


def now_us() -> int:
    return time.time_ns() // 1000


class LatencySink:
    """Appends each row's age in microseconds to a file of its subtask."""

    exactly_once = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, context: WriterContext) -> LatencyWriter:
        return LatencyWriter(self.folder / f"{context.unique}.ages")

    def commit(self, committables: Sequence[Committable]) -> None: ...

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None: ...


class LatencyWriter:
    def __init__(self, file: Path) -> None:
        self._file = file.open("ab")

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write((now_us() - batch.column("made").to_numpy()).tobytes())

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        return []

    def close(self) -> None:
        self._file.close()


class DueTimes:
    """Of each batch that of its first row. When the reader began is known ever better: no batch comes before its last
    row is due."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._began = (0, 0.0)

    def __call__(self, offsets: np.ndarray) -> np.ndarray:
        now, process = now_us(), os.getpid()
        if self._rate is None or not len(offsets):
            return np.full(len(offsets), now, np.int64)
        began = now - int(offsets[-1]) / self._rate * 1e6
        if self._began[0] != process or began < self._began[1]:  # planning asks for some rows too, in the driver
            self._began = (process, began)
        return np.full(len(offsets), int(self._began[1] + int(offsets[0]) / self._rate * 1e6), np.int64)


def columns(rate: float | None) -> dict[str, Any]:
    return {"key": lambda offsets: (offsets % KEYS).astype(np.int64), "made": DueTimes(rate)}


def by_records(rate: float | None, folder: Path):
    def pipeline(env: Environment) -> None:
        rows = env.from_source(GeneratorSource(columns(rate), rate=rate), uid="rows").key_by("key")
        rows.reduce(lambda _old, new: new).uid("newest").sink_to(LatencySink(folder), uid="out")

    return pipeline


def by_columns(rate: float | None, folder: Path):
    def pipeline(env: Environment) -> None:
        rows = env.from_source(GeneratorSource(columns(rate), rate=rate), uid="rows").key_by("key")
        newest = rows.aggregate(rows=Count(), made=Max("made")).uid("newest")
        newest.sink_to(LatencySink(folder), uid="out")

    return pipeline


def ages_of(folder: Path) -> np.ndarray:
    """In milliseconds, without each sink's first tenth: those also wait for the slots' first touch of everything."""
    files = [np.fromfile(file, np.int64) for file in folder.glob("*.ages")]
    return np.concatenate([ages[len(ages) // 10 :] for ages in files]) / 1000


def row_of(name: str, build: Any, rate: float, on: SlotLauncher, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(build(rate, Path(folder)), on, seconds=seconds, warm_up=0.0, source="rows")
        ages = ages_of(Path(folder))
    median, most, highest = np.percentile(ages, [50, 99, 100])
    return {
        "engine": "snapshot-engine",
        "query": name,
        "checkpoint_interval": 1000,
        "rows_per_s": rate,
        "median_ms": median,
        "percentile_99_ms": most,
        "highest_ms": highest,
        "checkpoint_ms": figures.median("duration"),
    }


def flat_out(on: SlotLauncher, seconds: float) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return measure(by_columns(None, Path(folder)), on, seconds=seconds, source="rows").rows_per_second()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--rate", type=float, default=1_000.0, help="the low one")
    parser.add_argument("--launcher", choices=["spark", "forked"], default="spark")
    chosen = parser.parse_args()
    with launcher(chosen.launcher) as on:
        rows = [row_of("newest row of each key, low rate", by_records, chosen.rate, on, chosen.seconds)]
        print(rows[-1], flush=True)
        half = flat_out(on, 4.0) / 2
        rows.append(row_of("count by key, half load", by_columns, half, on, chosen.seconds))
        print(rows[-1], flush=True)
    keep_figures("latency", rows)


if __name__ == "__main__":
    main()
