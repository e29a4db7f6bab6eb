"""Bids that each engine generates itself, 100,000 keys, 10 s windows, a checkpoint each second, everything discarded.

Nothing is read from files, so this compares shuffles, state and snapshots. One program per engine, `ours`, `flink` and
`spark`, each in its own environment; `benchmarks.scenarios.generated_bids` runs them in turns. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

from benchmarks.process_tree import cpu_seconds

KEYS = 100_000
PRICES = 10_000
SLOTS = 2
ROWS_PER_MS = 1_000
"""Of event time."""


def asked_seconds() -> float:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=24.0)
    return float(parser.parse_args().seconds)


def measure(rows_so_far: Callable[[], int], checkpoints_so_far: Callable[[], int], seconds: float) -> None:
    """Tell the rates of this process' job over the last two thirds of the time: by then it has warmed up."""
    time.sleep(seconds / 3)
    rows, checkpoints = rows_so_far(), checkpoints_so_far()
    began, processor = time.monotonic(), cpu_seconds(os.getpid())
    time.sleep(seconds * 2 / 3)
    taken, cpu = rows_so_far() - rows, cpu_seconds(os.getpid()) - processor
    tell(taken / (time.monotonic() - began), taken / cpu, checkpoints_so_far() - checkpoints)


def tell(rows_per_s: float, rows_per_core_s: float, checkpoints: int) -> None:
    """The last line that a program writes."""
    print(json.dumps({"rows_per_s": rows_per_s, "rows_per_core_s": rows_per_core_s, "checkpoints": checkpoints}))
