"""What a checkpoint each second costs at full load: bids, 100,000 keys, 10 s windows, everything discarded.

    .venv/bin/python -m benchmarks.scenarios.headline --rounds 3 --seconds 10

Runs without and with checkpoints take turns, so that both see the same machine.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import Figures, launcher, measure
from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink


def pipeline_over(keys: int):
    def pipeline(env: Environment) -> None:
        (
            env.from_source(bids(keys=keys), uid="bids")
            .with_watermark("ts", delay="1s")
            .key_by("auction")
            .window(Tumbling("10s"))
            .aggregate(bids=Count(), total=Sum("price"))
            .uid("windows")
            .sink_to(DiscardSink(), uid="out")
        )

    return pipeline


def show(name: str, figures: Figures) -> None:
    line = f"{name:8} {figures.rows_per_second() / 1e6:6.2f} M rows/s"
    line += f", {figures.rows_per_core_second() / 1e6:.2f} M per core-second"
    if figures.checkpoints:
        line += (
            f"  {len(figures.checkpoints)} checkpoints, trigger to end median {figures.median('duration'):.1f} ms"
            f" (highest {figures.highest('duration'):.1f}); medians: delay {figures.median('longest_delay'):.1f}, "
            f"alignment {figures.median('longest_alignment'):.1f}, synchronous {figures.median('longest_sync'):.2f}, "
            f"asynchronous {figures.median('longest_async'):.1f} ms; {figures.median('bytes') / 1e6:.2f} MB"
        )
    print(line, flush=True)


def row_of(keys: int, ratios: list[float], processor: list[float], last: Figures) -> dict[str, Any]:
    return {
        "keys": keys,
        "rounds": len(ratios),
        "rate_with_of_without": statistics.median(ratios),
        "all_rates": ratios,
        "by_processor_time": statistics.median(processor),
        "all_by_processor_time": processor,
        "rows_per_core_s": last.rows_per_core_second(),
        "checkpoint_ms": last.median("duration"),
        "checkpoint_highest_ms": last.highest("duration"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="spark")
    parser.add_argument("--incremental", action="store_true")
    chosen = parser.parse_args()
    pipeline = pipeline_over(chosen.keys)
    ratios, processor = [], []
    with launcher(chosen.launcher) as on:
        for _ in range(chosen.rounds):
            common = {"seconds": chosen.seconds, "parallelism": chosen.parallelism}
            without = measure(pipeline, on, interval=None, **common)
            show("without", without)
            each_second = measure(pipeline, on, interval=1.0, incremental=chosen.incremental, **common)
            show("with", each_second)
            ratios.append(each_second.rows_per_second() / without.rows_per_second())
            processor.append(each_second.rows_per_core_second() / without.rows_per_core_second())
    keep_figures("headline", [row_of(chosen.keys, ratios, processor, each_second)])
    each = ", ".join(f"{ratio:.1%}" for ratio in ratios)
    print(f"with checkpoints each second: {statistics.median(ratios):.1%} of without ({each})")
    print(f"by processor time: {statistics.median(processor):.1%}")


if __name__ == "__main__":
    main()
