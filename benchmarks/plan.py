"""Which cells are measured: one place to read what the benchmark covers."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from benchmarks.nexmark.events import Stream
from benchmarks.nexmark.queries import NEXMARK_QUERIES, QUERIES
from benchmarks.settings import Settings

EVERY_SECOND = 1_000
NO_CHECKPOINTS = 0
# Joins read few rows of each slice, so theirs are larger.
_JOIN_SLICE = 1_000_000
_KEYED_RATE = 200_000
_NEXMARK_KEYS = 10_000


@dataclass(frozen=True)
class Plan:
    """`target_seconds`: how long a measured run takes at least, unless an engine reads the largest size in less.

    `most_tries`: how many runs an engine gets at most to warm up and to show how large a run must be.
    `fresh_workers`: a new process for each repetition, so that one run's memory does not show in the next one's.

    `engines`: those that take part unless others are asked for; all, if empty.
    `most_repetitions`: how often a noisy cell is measured in the end; a median of two says little about it.
    `once`: each engine takes only the first cell of a query that it can, not those that differ in checkpoints.
    """

    name: str
    cells: tuple[Settings, ...]
    repetitions: int
    target_seconds: float
    fresh_workers: bool
    engines: tuple[str, ...] = ()
    most_repetitions: int = 0
    once: bool = False
    most_tries: int = 7


def headline(keys: int, interval: int, key_type: str = "int", parallelism: int = 2) -> Settings:
    stream = Stream(keys=keys, key_type=key_type, events_per_second=_KEYED_RATE)
    return Settings("tumbling", stream, parallelism=parallelism, checkpoint_interval_ms=interval)


def nexmark(query: str, interval: int) -> Settings:
    slice_events = _JOIN_SLICE if QUERIES[query].kind == "join" else Stream.slice_events
    stream = Stream(keys=_NEXMARK_KEYS, slice_events=slice_events)
    return Settings(query, stream, checkpoint_interval_ms=interval)


def full_plan() -> Plan:
    return Plan("full", tuple(_full_cells()), repetitions=3, target_seconds=15, fresh_workers=True, most_repetitions=5)


def quick_plan() -> Plan:
    cells = (
        headline(100_000, EVERY_SECOND),
        nexmark("q1", NO_CHECKPOINTS),
        nexmark("q3", EVERY_SECOND),
        nexmark("q11", EVERY_SECOND),
    )
    engines = ("snapshot-engine", "flink-sql-heap", "spark-hdfs-store")
    return Plan("quick", cells, repetitions=2, target_seconds=3, fresh_workers=False, engines=engines, most_tries=4)


def reach_plan() -> Plan:
    """The cells of the project's goals beside the peers that could reach them; part of `full`, in a fraction of its
    time."""
    headlines = [headline(keys, EVERY_SECOND) for keys in (1_000, 100_000, 1_000_000)]
    others = [headline(100_000, EVERY_SECOND, kind) for kind in ("string", "long-string")]
    others.append(headline(100_000, NO_CHECKPOINTS))
    queries = [nexmark(query, EVERY_SECOND if QUERIES[query].stateful else NO_CHECKPOINTS) for query in NEXMARK_QUERIES]
    engines = ("snapshot-engine", "flink-sql-heap", "spark-hdfs-store", "spark-rocksdb")
    cells = (*headlines, *others, *queries)
    return Plan("reach", cells, 2, target_seconds=5, fresh_workers=False, engines=engines, most_repetitions=5)


def topic_cells() -> tuple[Settings, ...]:
    """The same events from a Kafka topic, for the engines that have a connector."""
    cells = (nexmark("q1", EVERY_SECOND), headline(100_000, EVERY_SECOND), nexmark("q11", EVERY_SECOND))
    return tuple(replace(cell, input="topic") for cell in cells)


def topics_plan() -> Plan:
    engines = ("snapshot-engine", "flink-sql-heap")
    return Plan("topics", topic_cells(), repetitions=2, target_seconds=5, fresh_workers=False, engines=engines)


def smoke_plan() -> Plan:
    """Every engine and query once over few rows: shows that everything runs, measures nothing of worth."""
    cells = (headline(1_000, EVERY_SECOND), headline(1_000, EVERY_SECOND, "string"))
    others = tuple(nexmark(query, EVERY_SECOND) for query in NEXMARK_QUERIES)
    without = tuple(replace(cell, checkpoint_interval_ms=NO_CHECKPOINTS) for cell in cells + others)
    return Plan("smoke", cells + others + without, repetitions=1, target_seconds=0, fresh_workers=False, once=True)


def _full_cells() -> Iterator[Settings]:
    for keys in (1_000, 100_000, 1_000_000):
        for interval in (NO_CHECKPOINTS, EVERY_SECOND):
            yield headline(keys, interval)
    for kind in ("string", "long-string"):
        yield headline(100_000, EVERY_SECOND, key_type=kind)
    for parallelism in (1, 4):
        yield headline(100_000, EVERY_SECOND, parallelism=parallelism)
    yield from topic_cells()
    for query in NEXMARK_QUERIES:
        yield nexmark(query, NO_CHECKPOINTS)
        if QUERIES[query].stateful:
            yield nexmark(query, EVERY_SECOND)


PLANS = {"full": full_plan, "quick": quick_plan, "reach": reach_plan, "smoke": smoke_plan, "topics": topics_plan}
