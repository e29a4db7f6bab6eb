"""What a key of a running count and sum costs in memory: the counterpart of `flink_memory`.

    .venv/bin/python -m benchmarks.scenarios.memory --keys 1000,1000000,4000000

Every key comes once, then all of them again and again, at full speed and with a checkpoint each second. What the slots
hold (their private and shared pages, PSS) is looked at when all keys are there; what more of them add is what a key
costs, queues and snapshots on their way included.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

from benchmarks.process_tree import proportional_bytes
from benchmarks.scenarios.checkpoint_sizes import totals_over
from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.runtime.embedded import RunningJob


class SlotMemory:
    """What the slots hold together, as often as it is looked at."""

    def __init__(self, wait: float) -> None:
        self._from = time.monotonic() + wait
        self.looks: list[int] = []

    def look(self, job: RunningJob) -> None:
        if time.monotonic() >= self._from:
            slots = {link.hello.pid for shell in job.master.regions.values() for link in shell.connections.values()}
            self.looks.append(proportional_bytes(slots - {os.getpid()}))


def slots_hold(keys: int, seconds: float, kind: str) -> dict[str, Any]:
    wait = 4.0 + keys / 1e6  # at a million rows a second or more all keys are there
    with launcher(kind) as on:
        memory = SlotMemory(wait + 4.0)
        measure(totals_over(keys, 1), on, seconds=seconds, warm_up=wait, source="rows", meanwhile=memory.look)
    return {"keys": keys, "median_bytes": statistics.median(memory.looks), "highest_bytes": max(memory.looks)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", default="1000,4000000", help="few and many")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="forked")
    chosen = parser.parse_args()
    few, *_, many = rows = [slots_hold(int(keys), chosen.seconds, chosen.launcher) for keys in chosen.keys.split(",")]
    more = many["keys"] - few["keys"]
    figures = {
        "engine": "snapshot-engine",
        "bytes_per_key": (many["highest_bytes"] - few["highest_bytes"]) / more,
        "median_bytes_per_key": (many["median_bytes"] - few["median_bytes"]) / more,
        "keys": [row["keys"] for row in rows],
        "highest_bytes": [row["highest_bytes"] for row in rows],
    }
    keep_figures("memory", [figures])
    print(figures)


if __name__ == "__main__":
    main()
