"""What a checkpoint each second costs at full load: bids, 100,000 keys, 10 s windows, everything discarded.

    .venv/bin/python -m benchmarks.scenarios.headline --pairs 16

One job runs all the time; its checkpoints go on and off every few seconds: two jobs differ by more than checkpoints
cost, neighbouring stretches of one job do not. Event time runs some 20 times as fast as the clock. The sources keep
together (`max_drift`): of those that run flat out the quicker one is ever further ahead, and with it the state grows.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import Figures, launcher, measure
from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.runtime.embedded import RunningJob


def pipeline_over(keys: int, max_drift: str | None):
    def pipeline(env: Environment) -> None:
        (
            env.from_source(bids(keys=keys), uid="bids")
            .with_watermark("ts", delay="1s", max_drift=max_drift)
            .key_by("auction")
            .window(Tumbling("10s"))
            .aggregate(bids=Count(), total=Sum("price"))
            .uid("windows")
            .sink_to(DiscardSink(), uid="out")
        )

    return pipeline


class CheckpointsByStretches:
    """A checkpoint each second for a stretch, then a stretch without; knows when it was which."""

    def __init__(self, stretch: float) -> None:
        self._stretch = stretch
        self._next = 0.0
        self.changed: list[tuple[float, bool]] = []
        """Moments, and whether there were checkpoints from then on."""

    def tick(self, job: RunningJob) -> None:
        now = time.monotonic()
        if not self.changed or now - self.changed[-1][0] >= self._stretch:
            self.changed.append((now, not self.changed[-1][1] if self.changed else True))
            self._next = now
        if self.changed[-1][1] and now >= self._next:
            self._next += 1.0
            job.master.checkpoints.request_checkpoint()


def show(figures: Figures) -> None:
    print(
        f"{figures.rows_per_second() / 1e6:.2f} M rows/s, "
        f"{figures.rows_per_core_second() / 1e6:.2f} M per core-second; "
        f"{len(figures.checkpoints)} checkpoints, trigger to end median {figures.median('duration'):.1f} ms"
        f" (highest {figures.highest('duration'):.1f}); medians: delay {figures.median('longest_delay'):.1f}, "
        f"alignment {figures.median('longest_alignment'):.1f}, synchronous {figures.median('longest_sync'):.2f}, "
        f"asynchronous {figures.median('longest_async'):.1f} ms; {figures.median('bytes') / 1e6:.2f} MB",
        flush=True,
    )


def row_of(keys: int, ratios: list[float], figures: Figures) -> dict[str, Any]:
    return {
        "keys": keys,
        "pairs": len(ratios),
        "rate_with_of_without": statistics.median(ratios),
        "all_rates": ratios,
        "rows_per_core_s": figures.rows_per_core_second(),
        "checkpoint_ms": figures.median("duration"),
        "checkpoint_highest_ms": figures.highest("duration"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--stretch", type=float, default=4.0, help="seconds with, then as many without checkpoints")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument(
        "--max-drift", default="5s", help="of event time between the sources; 'none' for as much as it gets"
    )
    parser.add_argument("--launcher", choices=["spark", "forked"], default="spark")
    parser.add_argument("--incremental", action="store_true")
    chosen = parser.parse_args()
    stretches = CheckpointsByStretches(chosen.stretch)
    with launcher(chosen.launcher) as on:
        figures = measure(
            pipeline_over(chosen.keys, None if chosen.max_drift == "none" else chosen.max_drift),
            on,
            seconds=(chosen.pairs + 2) * chosen.stretch,
            interval=None,
            parallelism=chosen.parallelism,
            incremental=chosen.incremental,
            meanwhile=stretches.tick,
        )
    show(figures)
    ratios = figures.ratios(stretches.changed)
    keep_figures("headline", [row_of(chosen.keys, ratios, figures)])
    each = ", ".join(f"{ratio:.1%}" for ratio in sorted(ratios))
    print(f"with checkpoints each second: {statistics.median(ratios):.1%} of without, median of neighbours ({each})")


if __name__ == "__main__":
    main()
