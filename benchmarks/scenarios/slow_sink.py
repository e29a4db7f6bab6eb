"""Memory under back pressure: a source flat out, a sink that takes a fraction of it, for minutes.

    .venv/bin/python -m benchmarks.scenarios.slow_sink --minutes 10

Prints the slots' memory over time and fails if the second half's is more than a tenth above the first half's.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from benchmarks.scenarios.headline import show
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.protocols import Committable, SweptJob, WriterContext
from snapshot_engine.testing import RunningJob, slot_pids

TAKES_SECONDS = 0.1
"""Per batch: ten batches a second and subtask, while the source could give hundreds."""


class SlowSink:
    exactly_once = True

    def open(self, context: WriterContext) -> SlowWriter:
        return SlowWriter()

    def commit(self, committables: Sequence[Committable]) -> None: ...

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None: ...


class SlowWriter:
    def write(self, batch: pa.RecordBatch) -> None:
        time.sleep(TAKES_SECONDS)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        return []

    def close(self) -> None: ...


def pipeline(env: Environment) -> None:
    kept = env.from_source(bids(), uid="bids").key_by("auction").reduce(lambda _old, new: new).uid("newest")
    kept.rebalance().sink_to(SlowSink(), uid="out")


def memory_of(pids: list[int]) -> float:
    """MB of these processes that no file holds.

    Pages from before a fork count also while they are shared: by proportion (PSS) memory would seem to grow whenever a
    slot first writes to one, or another process that has them ends.
    """
    total = 0
    for pid in pids:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        total += next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
    return total / 1024


class Memory:
    """One sample every few seconds, from when the job has found its size."""

    def __init__(self, every: float, settle: float) -> None:
        self.samples: list[float] = []
        self._every = every
        self._next = time.monotonic() + settle

    def look(self, job: RunningJob) -> None:
        if time.monotonic() >= self._next and (pids := slot_pids(job)):
            self._next = time.monotonic() + self._every
            self.samples.append(memory_of(pids))
            print(f"{len(self.samples) * self._every:6.0f} s {self.samples[-1]:8.1f} MB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="forked")
    chosen = parser.parse_args()
    seconds = 60 * chosen.minutes
    memory = Memory(every=seconds / 40, settle=min(60.0, seconds / 6))
    with launcher(chosen.launcher) as on:
        show(measure(pipeline, on, seconds=seconds, meanwhile=memory.look))
    half = len(memory.samples) // 2
    first, second = statistics.median(memory.samples[:half]), statistics.median(memory.samples[half:])
    print(f"median of the first half {first:.1f} MB, of the second {second:.1f} MB")
    if second > 1.1 * first:
        sys.exit("memory grows")


if __name__ == "__main__":
    main()
