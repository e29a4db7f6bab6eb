"""How long this engine takes until all slots run again after user code raised: the counterpart of `flink_recovery`.

    .venv/bin/python -m benchmarks.scenarios.exception_recovery

The same job as Flink's: a keyed sum over a generated sequence fails at one row. Each restart goes back to the last
checkpoint and meets that row again.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import statistics
import time
from typing import Any

from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import launcher
from benchmarks.scenarios.poisoned_sums import pipeline
from benchmarks.scenarios.recovery import Watch, run_watched
from snapshot_engine.runtime.embedded import RunningJob

PATIENCE_SECONDS = 90.0


class Restarts(Watch):
    """Seconds from each exception until every slot of its region ran again."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self._raised: float | None = None

    def region_failed(self, run: Any, cause: str, message: str, traceback: str, silent: float) -> None:
        self._raised = float(re.search(r"raised at ([0-9.]+[0-9])", message)[1])

    def region_running(self, run: Any) -> None:
        if self._raised is not None:
            self.seconds.append(time.monotonic() - self._raised)
            self._raised = None


def restart_times(restarts: int) -> list[float]:
    watch = Restarts()

    async def until_enough(_job: RunningJob, _watch: Watch) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(watch.seconds) < restarts and time.monotonic() < deadline:
            await asyncio.sleep(0.02)

    with launcher("spark", 4) as on:
        run_watched(pipeline, on, until_enough, interval=1.0, watch=watch)
    return watch.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restarts", type=int, default=8)
    chosen = parser.parse_args()
    seconds = restart_times(chosen.restarts)
    keep_figures("exception_recovery", [{"median_s": statistics.median(seconds), "all_s": seconds}])
    print(f"until all slots ran again: {', '.join(f'{each:.2f}' for each in seconds)} s")


if __name__ == "__main__":
    main()
