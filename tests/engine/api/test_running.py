"""Every kind of operator, from the API to committed rows: what is planned also runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from snapshot_engine.api import (
    AggregateFunction,
    CoProcessFunction,
    Count,
    KeyedProcessFunction,
    ProcessWindowFunction,
    Session,
    Sum,
    Tumbling,
    ValueState,
    col,
)
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generated_columns import EventTimes, Sequence64
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.testing import Outcome, run_pipeline

ROWS = 400
"""One row per second of event time."""


@dataclass(frozen=True)
class Group:
    """Numbers modulo 3, as a column of their own."""

    def __call__(self, offsets):
        return (offsets % 3).astype("int64")


def numbers(count=ROWS):
    columns = {"n": Sequence64(), "group": Group(), "ts": EventTimes(per_second=1)}
    return GeneratorSource(columns, count=count, splits=2)


@dataclass
class Doubled:
    n: int
    twice: int


def doubled(row) -> Doubled:
    return Doubled(row.n, 2 * row.n)


class CountPerKey(KeyedProcessFunction):
    """Tells each tenth record of a key; the others go aside."""

    def open(self, context):
        self.seen = context.state(ValueState("seen", int, default=0))

    def process(self, record, context) -> Iterator[dict]:
        self.seen.update(self.seen.value() + 1)
        if self.seen.value() % 10 == 0:
            yield (context.current_key, self.seen.value())
        else:
            context.emit_side("others", record.n)


class SumOf(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, record, accumulator):
        return accumulator + record.n

    def get_result(self, accumulator):
        return accumulator


class WindowSize(ProcessWindowFunction):
    def process(self, key, context, records):
        return [(key, context.window.start, len(records))]


class Both(CoProcessFunction):
    """How many of each side a key has had."""

    def open(self, context):
        self.left = context.state(ValueState("left", int, default=0))
        self.right = context.state(ValueState("right", int, default=0))

    def process_left(self, record, context):
        self.left.update(self.left.value() + 1)
        yield (context.current_key, self.left.value(), self.right.value())

    def process_right(self, record, context):
        self.right.update(self.right.value() + 1)
        yield (context.current_key, self.left.value(), self.right.value())


@pytest.fixture
def run(tmp_path):
    """Run `build(env, sink)` to its end, `sink(name)` being a fresh collecting sink; the rows by name."""

    def run(build, parallelism=2):
        sinks: dict[str, CollectSink] = {}

        def pipeline(env):
            def sink(name):
                sinks[name] = CollectSink(tmp_path / name)
                return sinks[name]

            build(env, sink)

        result = run_pipeline(pipeline, storage=tmp_path / "checkpoints", parallelism=parallelism)
        assert result.outcome is Outcome.FINISHED
        return {name: sink.read_committed() for name, sink in sinks.items()}

    return run


def test_records_batches_and_expressions(run):
    def build(env, sink):
        source = env.from_source(numbers(), uid="numbers")
        source.map(doubled).filter(lambda row: row.twice % 4 == 0).sink_to(sink("doubled"), uid="doubled")
        source.flat_map(lambda row: [row.n] * (row.n % 2)).sink_to(sink("odd"), uid="odd")
        columns = source.where(col("n") < 5).with_columns(half=col("n") / 2).select("half")
        columns.rebalance().map_in_arrow(lambda batch: batch).sink_to(sink("halves"), uid="halves")
        few = source.where("n < 3").map_in_pandas(lambda frame: frame.assign(n=frame["n"] + 1))
        few.broadcast().map(lambda row: row.n).sink_to(sink("everywhere"), uid="everywhere")

    rows = run(build)
    assert sorted(row["n"] for row in rows["doubled"]) == list(range(0, ROWS, 2))
    assert sorted(rows["odd"]) == list(range(1, ROWS, 2))
    assert sorted(row["half"] for row in rows["halves"]) == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert sorted(rows["everywhere"]) == [1, 1, 2, 2, 3, 3]


def test_keyed_state_side_outputs_and_key_functions(run):
    def build(env, sink):
        source = env.from_source(numbers(), uid="numbers")
        counted = source.key_by("group").process(CountPerKey()).uid("count")
        counted.sink_to(sink("tens"), uid="tens")
        counted.side_output("others").sink_to(sink("others"), uid="others")
        reduced = source.key_by(lambda row: row.n % 2).reduce(lambda old, new: new._replace(n=old.n + new.n))
        reduced.uid("sum").sink_to(sink("sums"), uid="sums")

    rows = run(build)
    per_group = Counter(n % 3 for n in range(ROWS))
    assert Counter(key for key, _ in rows["tens"]) == {group: n // 10 for group, n in per_group.items()}
    assert len(rows["tens"]) + len(rows["others"]) == ROWS
    assert max(row["n"] for row in rows["sums"]) == sum(range(1, ROWS, 2)) and len(rows["sums"]) == ROWS


def test_windows_over_columns_and_records_and_after_each_other(run):
    def build(env, sink):
        timed = env.from_source(numbers(), uid="numbers").with_watermark("ts")
        windowed = timed.key_by("group").window(Tumbling("1m"))
        totals = windowed.aggregate(rows=Count(), total=Sum("n")).uid("totals")
        totals.sink_to(sink("totals"), uid="totals-out")
        all_groups = totals.key_by("rows").window(Tumbling("1m")).aggregate(groups=Count()).uid("groups")
        all_groups.sink_to(sink("groups"), uid="groups-out")
        windowed.aggregate_with(SumOf()).uid("sums").sink_to(sink("sums"), uid="sums-out")
        sizes = windowed.process(WindowSize()).uid("sizes")
        sizes.sink_to(sink("sizes"), uid="sizes-out")
        again = sizes.key_by(lambda record: record[1]).window(Tumbling("1m"))
        again.reduce(lambda old, new: (None, old[1], old[2] + new[2])).uid("again").sink_to(
            sink("again"), uid="again-o"
        )

    rows = run(build)
    expected = {}
    for n in range(ROWS):
        count, total = expected.get((n % 3, n // 60), (0, 0))
        expected[n % 3, n // 60] = count + 1, total + n
    found = {(row["group"], int(row["window_start"].timestamp()) // 60): row for row in utc(rows["totals"])}
    assert {key: (row["rows"], row["total"]) for key, row in found.items()} == expected
    assert sorted(rows["sums"]) == sorted(total for _, total in expected.values())
    assert sorted(rows["sizes"]) == sorted((g, w * 60_000, count) for (g, w), (count, _) in expected.items())
    assert sorted((start, size) for _, start, size in rows["again"]) == [
        (minute * 60_000, min(60, ROWS - 60 * minute)) for minute in range(-(-ROWS // 60))
    ]
    assert sum(row["groups"] for row in rows["groups"]) == len(expected)


def test_union_and_connect(run):
    def build(env, sink):
        one = env.from_source(numbers(90), uid="one")
        two = env.from_source(numbers(60), uid="two")
        one.union(two).map(lambda row: row.n).sink_to(sink("both"), uid="both")
        connected = one.connect(two).key_by("group", "group").process(Both()).uid("connected")
        connected.sink_to(sink("connected"), uid="connected-out")

    rows = run(build)
    assert Counter(rows["both"]) == Counter([*range(90), *range(60)])
    assert len(rows["connected"]) == 150
    last = {key: max((left, right) for k, left, right in rows["connected"] if k == key) for key in range(3)}
    assert {left for left, _ in last.values()} == {30}
    assert max(right for _, _, right in rows["connected"]) == 20


def test_joins_sessions_and_running_totals(run):
    def build(env, sink):
        left = env.from_source(numbers(120), uid="left").with_watermark("ts")
        right = env.from_source(numbers(60), uid="right").with_watermark("ts")
        windowed = left.join(right, how="left").on("n").window(Tumbling("1m")).uid("windowed")
        windowed.select("n", partner=col("group_right")).sink_to(sink("windowed"), uid="windowed-out")
        few = right.where(col("n") < 3)
        left.join(few).on(group="n").unbounded().uid("unbounded").sink_to(sink("unbounded"), uid="unbounded-out")
        sparse = left.where(col("n") % 20 < 10)
        sessions = sparse.key_by("group").window(Session("5s")).aggregate(rows=Count()).uid("sessions")
        sessions.sink_to(sink("sessions"), uid="sessions-out")
        left.key_by("group").aggregate(rows=Count()).uid("totals").sink_to(sink("totals"), uid="totals-out")

    rows = run(build)
    assert sorted((row["n"], row["partner"]) for row in rows["windowed"] if row["n"] < 60) == [
        (n, n % 3) for n in range(60)
    ]
    assert {row["partner"] for row in rows["windowed"] if row["n"] >= 60} == {None}
    assert Counter(row["group"] for row in rows["unbounded"]) == {0: 40, 1: 40, 2: 40}
    assert sum(row["rows"] for row in rows["sessions"]) == 60 and len(rows["sessions"]) == 6 * 3
    assert {group: max(row["rows"] for row in rows["totals"] if row["group"] == group) for group in range(3)} == {
        0: 40,
        1: 40,
        2: 40,
    }


def utc(rows):
    """Arrow's timestamps come without a zone; they are in UTC."""
    from datetime import UTC

    return [
        {name: value.replace(tzinfo=UTC) if hasattr(value, "tzinfo") else value for name, value in row.items()}
        for row in rows
    ]


def test_the_generated_rows_are_what_these_tests_think():
    assert numbers().schema == pa.schema({"n": pa.int64(), "group": pa.int64(), "ts": pa.timestamp("ms")})
