"""How long a checkpoint takes, and how long it holds the job up, by the number of keys in state.

    .venv/bin/python -m benchmarks.scenarios.checkpoint_sizes --keys 100000,1000000,5000000

The state is filled first (each key once, at full speed); then the job goes on at full speed while it is measured, with
rows of all keys or of one in a hundred: increments are for the latter. What a checkpoint holds up is its synchronous
part and the alignment; all else happens beside the work.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import Figures, launcher, measure
from snapshot_engine.api import Count, Environment, Sum
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource


def rows_of(keys: int, one_in: int) -> GeneratorSource:
    """Each key once, then only those of every `one_in`-th, in an order that jumps about."""

    def key(offsets: np.ndarray) -> np.ndarray:
        later = offsets * np.uint64(2_654_435_761) % np.uint64(max(1, keys // one_in)) * np.uint64(one_in)
        return np.where(offsets < keys, offsets, later).astype(np.int64)

    return GeneratorSource({"key": key, "price": lambda offsets: (offsets % 1000).astype(np.int64)})


def totals_over(keys: int, one_in: int):
    def pipeline(env: Environment) -> None:
        totals = (
            env.from_source(rows_of(keys, one_in), uid="rows").key_by("key").aggregate(rows=Count(), total=Sum("price"))
        )
        totals.uid("totals").sink_to(DiscardSink(), uid="out")

    return pipeline


CASES = ((False, 1), (True, 1), (True, 100))
"""Incremental or not, and which part of the keys changes."""


def row_of(keys: int, incremental: bool, one_in: int, figures: Figures) -> dict[str, Any]:
    """Bytes: what the checkpoint refers to, and what was written for it; the difference is an increment's gain."""
    return {
        "keys": keys,
        "incremental": incremental,
        "changing": "all" if one_in == 1 else f"one in {one_in}",
        "checkpoints": len(figures.checkpoints),
        "median_ms": figures.median("duration"),
        "highest_ms": figures.highest("duration"),
        "highest_synchronous_ms": figures.highest("longest_sync"),
        "median_alignment_ms": figures.median("longest_alignment"),
        "median_asynchronous_ms": figures.median("longest_async"),
        "state_bytes": figures.median("bytes"),
        "written_bytes": figures.median("written"),
        "rows_per_core_s": figures.rows_per_core_second(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", default="100000,1000000,5000000")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--launcher", choices=["spark", "forked"], default="forked")
    chosen = parser.parse_args()
    rows = []
    with launcher(chosen.launcher) as on:
        for keys in map(int, chosen.keys.split(",")):
            for incremental, one_in in CASES:
                figures = measure(
                    totals_over(keys, one_in),
                    on,
                    seconds=chosen.seconds,
                    warm_up=4.0 + keys / 1e6,  # at a million rows a second or more all keys are there
                    source="rows",
                    incremental=incremental,
                )
                rows.append(row_of(keys, incremental, one_in, figures))
                print(rows[-1], flush=True)
                keep_figures("checkpoint_sizes", rows)


if __name__ == "__main__":
    main()
