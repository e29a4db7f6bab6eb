"""Growth with the number of regions: the same rows through jobs of 1, 2, 4, 8 regions on the same machine.

    .venv/bin/python -m benchmarks.scenarios.regions --regions 1,2,4,8

Without a shuffle each slot is a region of its own: its own Spark job, its own control connection. What is looked for is
what a region costs: rows per core-second should stay, and checkpoints should not become slow.
"""

from __future__ import annotations

import argparse

from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink


def pipeline(env: Environment) -> None:
    """Two ways out of the source, so that it is a vertex of its own, whose rows are counted."""
    rows = env.from_source(bids(), uid="bids")
    for name, condition in (("dear", "price > 10"), ("cheap", "price <= 10")):
        rows.where(condition).uid(name).sink_to(DiscardSink(), uid=f"{name}-out")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--regions", default="1,2,4,8")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="spark")
    chosen = parser.parse_args()
    rows = []
    with launcher(chosen.launcher, 16) as on:
        for regions in map(int, chosen.regions.split(",")):
            figures = measure(pipeline, on, seconds=chosen.seconds, parallelism=regions)
            rows.append(
                {
                    "regions": regions,
                    "rows_per_s": figures.rows_per_second(),
                    "rows_per_core_s": figures.rows_per_core_second(),
                    "checkpoint_ms": figures.median("duration"),
                    "checkpoint_highest_ms": figures.highest("duration"),
                }
            )
            print(rows[-1], flush=True)
            keep_figures("regions", rows)


if __name__ == "__main__":
    main()
