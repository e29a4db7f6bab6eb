"""Windows: types, columns sent, late rows, and what cannot be a window."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from snapshot_engine.api import (
    AggregateFunction,
    Count,
    ProcessWindowFunction,
    Session,
    Sliding,
    Sum,
    Tumbling,
    col,
)
from snapshot_engine.operators.session_aggregate import SessionAggregateOperator
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime
from snapshot_engine.operators.window_aggregate import WindowAggregateOperator
from snapshot_engine.operators.window_process import WindowProcessOperator

MILLISECONDS = pa.timestamp("ms")


@dataclass
class Total:
    city: str
    total: float


class Totals(AggregateFunction):
    def create_accumulator(self):
        return 0.0

    def add(self, record, accumulator):
        return accumulator + record.price

    def get_result(self, accumulator) -> Total:
        return Total("?", accumulator)


class MergingTotals(Totals):
    def merge(self, left, right):
        return left + right


class Listing(ProcessWindowFunction):
    def process(self, key, context, records):
        return [len(records)]


def add(old, new):
    return new


def type_of(stream):
    return stream._end.type


def edge_into(graph, uid):
    (edge,) = graph.inputs_of(uid)
    return edge


@pytest.mark.parametrize("window", [Tumbling("10s"), Sliding("10s", "2s"), Session("5s")])
def test_aggregates_have_keys_window_and_results(timed, window):
    stream = timed.key_by("city").window(window).aggregate(n=Count(), total=Sum("price"))
    assert type_of(stream).schema == pa.schema(
        {
            "city": pa.string(),
            "window_start": MILLISECONDS,
            "window_end": MILLISECONDS,
            "n": pa.int64(),
            "total": pa.float64(),
        }
    )
    assert type_of(stream).event_time == EventTime("window_end", -1)


@pytest.mark.parametrize(
    ("window", "kind"), [(Sliding("10s", "2s"), WindowAggregateOperator), (Session("5s"), SessionAggregateOperator)]
)
def test_each_shape_has_its_operator(timed, operator_named, window, kind):
    stream = timed.key_by("city").window(window).allowed_lateness("1m").aggregate(n=Count()).uid("w")
    assert isinstance(operator_named("window aggregate", stream), kind)


def test_only_the_columns_that_are_needed_are_sent(timed, planned):
    stream = timed.key_by("city").window(Tumbling("10s")).aggregate(n=Count(), total=Sum("price")).uid("w")
    edge = edge_into(planned(stream), "w")
    assert edge.columns == ("city", "price", "ts")
    assert edge.schema == type_of(timed).schema and edge.event_time == EventTime("ts")


def test_late_rows_come_out_as_they_came_in(timed, planned):
    windowed = timed.key_by("city").window(Tumbling("10s")).late_output("late")
    stream = windowed.aggregate(n=Count()).uid("w")
    late = stream.side_output("late")
    assert type_of(late) == type_of(timed)
    graph = planned(stream, late)
    assert edge_into(graph, "w").columns is None
    assert [edge.tag for edge in graph.outputs_of("w")] == [None, "late"]
    assert not any("late" in warning for warning in graph.warnings)


def test_late_rows_that_nobody_reads_are_a_warning(timed, planned):
    graph = planned(timed.key_by("city").window(Tumbling("10s")).late_output("late").aggregate(n=Count()).uid("w"))
    assert any("late_output('late') is never read" in warning for warning in graph.warnings)


def test_windows_over_records_have_the_time_of_their_window(timed):
    windowed = timed.key_by("city").window(Session("5s"))
    reduced = type_of(windowed.reduce(add))
    assert reduced.schema.names == [*type_of(timed).schema.names, HIDDEN_TIME]
    assert type_of(windowed.aggregate_with(MergingTotals())).schema.names == ["city", "total", HIDDEN_TIME]
    listed = windowed.process(Listing())
    assert type_of(listed).plain
    for stream in (windowed.reduce(add), listed):
        assert type_of(stream).event_time == EventTime(HIDDEN_TIME)


def test_windows_over_records_have_one_operator(timed, operator_named):
    stream = timed.key_by(len).window(Tumbling("5s")).process(Listing()).uid("w")
    assert isinstance(operator_named("window process", stream), WindowProcessOperator)


def test_windows_can_follow_windows(timed, planned):
    per_city = timed.key_by("city").window(Tumbling("10s")).aggregate(n=Count()).uid("a")
    stream = per_city.key_by("n").window(Tumbling("1m")).aggregate(cities=Count()).uid("b")
    assert type_of(stream).schema.names == ["n", "window_start", "window_end", "cities"]
    assert edge_into(planned(stream), "b").columns == ("window_end", "n")


def test_windows_are_not_deterministic(timed, refused):
    timed.env.parallelism = 1
    problem = refused(timed.key_by("city").window(Tumbling("10s")).aggregate(n=Count()).uid("w").deterministic())
    assert "'window aggregate' at" in problem and "output comes with watermarks" in problem


def test_event_time_that_was_lost_is_told_with_the_place(timed, refused):
    stream = timed.select("city", x=col("price")).key_by("city").window(Tumbling("10s")).aggregate(n=Count())
    problem = refused(stream)
    assert "windows need event time" in problem and "'select' at" in problem
    assert "does not keep its column 'ts'" in problem


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.window(Tumbling("10s")).aggregate(n=Count()), "state belongs to a key: call key_by(...)"),
        (lambda s: s.key_by("city").window("10s").aggregate(n=Count()), "give Tumbling, Sliding or Session"),
        (lambda s: s.key_by("city").window(Tumbling("10")).aggregate(n=Count()), "is not a duration"),
        (
            lambda s: s.key_by("city").window(Tumbling("1s")).allowed_lateness("x").aggregate(n=Count()),
            "is not a duration",
        ),
        (lambda s: s.key_by("city").window(Tumbling("1s")).aggregate(n=Sum("pirce")), "did you mean 'price'?"),
        (
            lambda s: s.key_by("city").window(Tumbling("1s")).aggregate(window_end=Count()),
            "a column 'window_end' of its own; rename yours",
        ),
        (lambda s: s.key_by("city").window(Tumbling("1s")).reduce(3), "reduce needs a function"),
        (lambda s: s.key_by("city").window(Tumbling("1s")).process(Listing), "write Listing(...)"),
        (lambda s: s.key_by("city").window(Tumbling("1s")).process(add), "subclass of ProcessWindowFunction"),
        (lambda s: s.key_by("city").window(Tumbling("1s")).aggregate_with(Count()), "subclass of AggregateFunction"),
        (
            lambda s: s.key_by("city").window(Session("1s")).aggregate_with(Totals()),
            "Totals needs merge() to be used in session windows",
        ),
    ],
)
def test_what_cannot_be_a_window_is_told(timed, refused, build, words):
    problem = refused(build(timed))
    assert words in problem and "test_windowed.py:" in problem


def test_a_window_without_event_time_is_told_what_to_call(orders, refused):
    problem = refused(orders.key_by("city").window(Tumbling("10s")).aggregate(n=Count()))
    assert "'window aggregate'" in problem and 'with_watermark("column", delay="2s") before key_by' in problem
