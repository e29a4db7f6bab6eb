"""Jobs whose every record is accounted for: number n goes round n mod 7 times, then leaves with the turns it took."""

from __future__ import annotations

from collections import Counter

import numpy as np

from snapshot_engine.api import Environment, col
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource

TURNS = 7


def numbers(count: int, rate: float | None = None, splits: int = 2) -> GeneratorSource:
    columns = {
        "id": lambda offsets: offsets.astype(np.int64),
        "left": lambda offsets: (offsets % TURNS).astype(np.int64),
        "turns": lambda offsets: np.zeros(len(offsets), np.int64),
    }
    return GeneratorSource(columns, count=count, rate=rate, splits=splits)


def one_turn(rows):
    return rows.with_columns(left=col("left") - 1, turns=col("turns") + 1)


def count_down(rows):
    return one_turn(rows.where(col("left") > 0)), rows.where(col("left") == 0)


def count_down_two_ways(rows):
    """Two feedback edges: odd turns take one, even turns the other, which is a vertex longer."""
    rest = rows.where(col("left") > 0)
    odd = one_turn(rest.where(col("left") % 2 == 1))
    even = one_turn(rest.where(col("left") % 2 == 0)).rebalance().where(col("left") >= 0)
    return [odd, even], rows.where(col("left") == 0)


def keyed(sink: CollectSink, count: int, rate: float | None = None, body=count_down_two_ways, **loop):
    def pipeline(env: Environment) -> None:
        source = env.from_source(numbers(count, rate), uid="numbers")
        source.key_by("id").iterate(body, uid="loop", **loop).sink_to(sink, uid="out")

    return pipeline


def unkeyed(sink: CollectSink, count: int, rate: float | None = None, body=count_down, **loop):
    def pipeline(env: Environment) -> None:
        env.from_source(numbers(count, rate), uid="numbers").iterate(body, uid="loop", **loop).sink_to(sink, uid="out")

    return pipeline


def turns_in(sink: CollectSink) -> Counter:
    return Counter((row["id"], row["turns"]) for row in sink.read_committed())


def expected(count: int) -> Counter:
    return Counter((number, number % TURNS) for number in range(count))
