"""Latency from source to sink at a low rate: through a shuffle, keyed state and a second process.

    .venv/bin/python -m benchmarks.scenarios.latency --seconds 20

A row carries the time at which the source made it; the sink takes the difference when the row arrives there. Both
clocks are the machine's own. Checkpoints each second go on meanwhile.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import Environment
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.protocols import Committable, WriterContext

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

    def sweep(self, job: str, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None: ...


class LatencyWriter:
    def __init__(self, file: Path) -> None:
        self._file = file.open("ab")

    def write(self, batch: pa.RecordBatch) -> None:
        self._file.write((now_us() - batch.column("made").to_numpy()).tobytes())

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        return []

    def close(self) -> None:
        self._file.close()


def pipeline_at(rate: float, folder: Path):
    def pipeline(env: Environment) -> None:
        columns = {
            "key": lambda offsets: (offsets % KEYS).astype(np.int64),
            "made": lambda offsets: np.full(len(offsets), now_us(), np.int64),
        }
        (
            env.from_source(GeneratorSource(columns, rate=rate), uid="rows")
            .key_by("key")
            .reduce(lambda _old, new: new)
            .uid("newest")
            .sink_to(LatencySink(folder), uid="out")
        )

    return pipeline


def ages_of(folder: Path) -> np.ndarray:
    return np.concatenate([np.fromfile(file, np.int64) for file in folder.glob("*.ages")]) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rate", type=float, default=1_000.0)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="spark")
    chosen = parser.parse_args()
    with launcher(chosen.launcher) as on, tempfile.TemporaryDirectory() as folder:
        figures = measure(
            pipeline_at(chosen.rate, Path(folder)), on, seconds=chosen.seconds, warm_up=0.0, source="rows"
        )
        ages = ages_of(Path(folder))
    ages = ages[len(ages) // 10 :]  # the first rows also wait for the slots' first touch of everything
    median, most, highest = np.percentile(ages, [50, 99, 100])
    print(
        f"{len(ages):,} rows at {chosen.rate:,.0f} rows/s: median {median:.1f} ms, 99 % below {most:.1f} ms, "
        f"highest {highest:.1f} ms; {len(figures.checkpoints)} checkpoints, median {figures.median('duration'):.1f} ms"
    )


if __name__ == "__main__":
    main()
