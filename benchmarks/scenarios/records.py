"""Rows per second and core of functions on single records: map and reduce, with what makes them dear.

    .venv/bin/python -m benchmarks.scenarios.records

One slot; rows by the processor time that it used, the source's share included.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import DataStream, Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink


class Priced(NamedTuple):
    auction: int
    price: int


def _to_priced(bid) -> Priced:
    return Priced(bid.auction, bid.price * 2)


def _doubled(bid):
    return bid._replace(price=2 * bid.price)


def _newest(_old, new):
    return new


def _highest(old, new):
    return new if new.price > old.price else old


def _sum_up(old, new):
    return old._replace(price=old.price + new.price)


CASES: dict[str, tuple[int, Callable[[DataStream], DataStream]]] = {
    "map to a named tuple": (100_000, lambda stream: stream.map(_to_priced)),
    "map with _replace": (100_000, lambda stream: stream.map(_doubled, schema=_ALL)),
    "reduce, 1,000 keys": (1_000, lambda stream: stream.key_by("auction").reduce(_highest)),
    "reduce, 100,000 keys": (100_000, lambda stream: stream.key_by("auction").reduce(_highest)),
    "reduce with _replace": (100_000, lambda stream: stream.key_by("auction").reduce(_sum_up)),
    "reduce, keys ever new": (4_000_000_000, lambda stream: stream.key_by("auction").reduce(_newest)),
}
_ALL = "auction bigint, bidder bigint, price bigint, ts timestamp"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="forked")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    chosen = parser.parse_args()
    rows = []
    with launcher(chosen.launcher) as on:
        for name, (keys, build) in CASES.items():
            if chosen.only not in name:
                continue

            def pipeline(env: Environment, keys=keys, build=build) -> None:
                build(env.from_source(bids(keys=keys), uid="bids").rebalance()).uid("records").sink_to(
                    DiscardSink(), uid="out"
                )

            figures = measure(pipeline, on, seconds=chosen.seconds, warm_up=2.0, interval=None, parallelism=1)
            rows.append({"function": name, "rows_per_core_s": figures.rows_per_core_second()})
            keep_figures("records", rows)
            print(f"{name:24} {figures.rows_per_core_second() / 1e6:5.2f} M rows/s per core", flush=True)


if __name__ == "__main__":
    main()
