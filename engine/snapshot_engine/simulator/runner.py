"""Many schedules on all cores, and one line that counts them."""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from snapshot_engine.simulator.planted import BUGS, NO_BUG
from snapshot_engine.simulator.schedule import Outcome, run_schedule

CHUNK = 50


@dataclass
class Tally:
    schedules: int = 0
    steps: int = 0
    swaps: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    covered: Counter[str] = field(default_factory=Counter)
    violations: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.schedules += 1
        self.steps += outcome.steps
        self.swaps += outcome.checkpoints
        self.faults.update(outcome.faults)
        self.covered.update(outcome.covered)
        if outcome.violation is not None:
            self.violations.append(outcome)

    def coverage(self) -> str:
        """In how many schedules each of these was seen."""
        return f"schedules with: {', '.join(f'{kind} {count}' for kind, count in self.covered.most_common())}"

    def line(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.faults.most_common())
        return (
            f"{self.schedules} schedules, {self.steps} steps, {sum(self.faults.values())} faults injected ({kinds}), "
            f"{len(self.violations)} violations"
        )


def run_many(first: int, count: int, bug: str | None = None, processes: int | None = None) -> Iterator[Outcome]:
    """The schedules of seeds `first` … `first + count - 1`, in any order."""
    chunks = [(start, min(start + CHUNK, first + count), bug) for start in range(first, first + count, CHUNK)]
    workers = min(processes or os.cpu_count() or 1, len(chunks))
    if workers == 1:
        for chunk in chunks:
            yield from _run_chunk(chunk)
        return
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for outcomes in pool.imap_unordered(_run_chunk, chunks):
            yield from outcomes


def _run_chunk(chunk: tuple[int, int, str | None]) -> list[Outcome]:
    start, end, bug = chunk
    planted = BUGS[bug] if bug else NO_BUG
    gc.disable()  # worlds are full of cycles: one look after each chunk is much cheaper
    try:
        return [run_schedule(seed, planted.parts, planted.jobs) for seed in range(start, end)]
    finally:
        gc.enable()
        gc.collect()
