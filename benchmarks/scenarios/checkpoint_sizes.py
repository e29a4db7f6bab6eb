"""How long a checkpoint takes, and how long it holds the job up, by the number of keys in state.

    .venv/bin/python -m benchmarks.scenarios.checkpoint_sizes --keys 100000,1000000,5000000

The state is filled first (each key once, at full speed); then the job goes on at full speed while it is measured. What
a checkpoint holds up is its synchronous part and the alignment; all else happens beside the work.
"""

from __future__ import annotations

import argparse

from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import Count, Environment, Sum
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink


def totals_over(keys: int):
    def pipeline(env: Environment) -> None:
        (
            env.from_source(bids(keys=keys), uid="bids")
            .key_by("auction")
            .aggregate(bids=Count(), total=Sum("price"))
            .uid("totals")
            .sink_to(DiscardSink(), uid="out")
        )

    return pipeline


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", default="100000,1000000,5000000")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="forked")
    chosen = parser.parse_args()
    print("| keys | incremental | state | checkpoint, median | synchronous, highest | alignment, median | written in |")
    print("|---:|---|---:|---:|---:|---:|---:|")
    with launcher(chosen.launcher) as on:
        for keys in map(int, chosen.keys.split(",")):
            for incremental in (False, True):
                # Uniform keys: after about 14 rows per key all but one in a million have been seen.
                warm_up = 3.0 + 14 * keys / 3e6
                figures = measure(
                    totals_over(keys), on, seconds=chosen.seconds, warm_up=warm_up, incremental=incremental
                )
                print(
                    f"| {keys:,} | {'yes' if incremental else 'no'} | {figures.median('bytes') / 1e6:.1f} MB "
                    f"| {figures.median('duration'):.0f} ms | {figures.highest('longest_sync'):.1f} ms "
                    f"| {figures.median('longest_alignment'):.1f} ms | {figures.median('longest_async'):.0f} ms |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
