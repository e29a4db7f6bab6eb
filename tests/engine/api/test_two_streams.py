"""connect and the joins."""

from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot_engine.api import CoProcessFunction, Session, Tumbling
from snapshot_engine.graph.job_graph import Partitioning
from snapshot_engine.operators.connect import CoProcessOperator
from snapshot_engine.operators.interval_join import IntervalJoinOperator
from snapshot_engine.operators.keyed_join import KeyedJoinOperator
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, EventTime
from snapshot_engine.operators.window_join import WindowJoinOperator


class Apply(CoProcessFunction):
    def process_left(self, record, context):
        yield record

    def process_right(self, record, context):
        yield record


@pytest.fixture
def payments(env, source):
    columns = {"city": pa.string(), "order": pa.int64(), "paid": pa.timestamp("ms")}
    return env.from_source(source(**columns), name="payments", uid="payments")


@pytest.fixture
def paid(payments):
    return payments.with_watermark("paid")


def type_of(stream):
    return stream._end.type


def test_connect_has_two_keyed_inputs(orders, payments, planned):
    stream = orders.connect(payments).key_by("amount", "order").process(Apply(), schema="x bigint").uid("both")
    graph = planned(stream)
    assert [(edge.producer, edge.port, edge.partitioning, edge.key_columns) for edge in graph.inputs_of("both")] == [
        ("orders", 0, Partitioning.HASH, ("amount",)),
        ("payments", 1, Partitioning.HASH, ("order",)),
    ]
    assert isinstance(graph.vertices["both"].operators[0].factory(), CoProcessOperator)
    assert graph.vertices["both"].operators[0].stateful


def test_connect_takes_streams_that_are_keyed_already(orders, payments, planned):
    stream = orders.key_by("city").connect(payments.key_by("city")).process(Apply()).uid("both")
    assert [edge.key_columns for edge in planned(stream).inputs_of("both")] == [("city",), ("city",)]


def test_connect_by_several_columns_or_functions(orders, payments, planned):
    several = orders.connect(payments).key_by(["city", "amount"], ["city", "order"]).process(Apply()).uid("a")
    functions = orders.connect(payments).key_by(len, len).process(Apply()).uid("b")
    graph = planned(several, functions)
    assert [edge.key_columns for edge in graph.inputs_of("a")] == [("city", "amount"), ("city", "order")]
    assert [edge.key_columns for edge in graph.inputs_of("b")] == [(HIDDEN_KEY,), (HIDDEN_KEY,)]


def test_a_window_join_by_columns_of_both_names(timed, paid, planned):
    stream = timed.join(paid, how="left").on(amount="order").window(Tumbling("10s")).uid("j")
    names = ["amount", "window_start", "window_end", "city", "price", "ts", "city_right", "paid"]
    assert type_of(stream).schema.names == names
    graph = planned(stream)
    assert [(edge.port, edge.key_columns) for edge in graph.inputs_of("j")] == [(0, ("amount",)), (1, ("order",))]
    assert isinstance(graph.vertices["j"].operators[0].factory(), WindowJoinOperator)


def test_a_window_joins_result_has_event_time(timed, paid):
    assert type_of(timed.join(paid).on("city").window(Tumbling("10s"))).event_time is not None


def test_a_join_within_a_time_has_the_event_time_of_the_later_row(timed, paid, planned):
    stream = timed.join(paid).on("city").within(before="5s", after="20s").uid("j")
    graph = planned(stream)
    assert isinstance(graph.vertices["j"].operators[0].factory(), IntervalJoinOperator)
    assert type_of(stream).event_time == EventTime(HIDDEN_TIME)
    assert type_of(stream).schema.names == ["city", "amount", "price", "ts", "order", "paid", HIDDEN_TIME]


def test_an_unbounded_join(orders, payments, planned):
    stream = orders.join(payments).on("city").unbounded().uid("j")
    graph = planned(stream)
    assert isinstance(graph.vertices["j"].operators[0].factory(), KeyedJoinOperator)
    assert [edge.key_columns for edge in graph.inputs_of("j")] == [("city",), ("city",)]


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda a, b: a.connect(b).process(Apply()), "the left stream has none; write left.connect(right).key_by"),
        (lambda a, b: a.key_by("city").connect(b).process(Apply()), "the right stream has none"),
        (lambda a, b: a.connect(b).key_by("city", "city").process(len), "an object of a CoProcessFunction"),
        (
            lambda a, b: a.connect(b).key_by("city", "order").process(Apply()),
            "key 'city' of the left stream is string, 'order' of the right one is int64",
        ),
        (
            lambda a, b: a.connect(b).key_by(["city", "amount"], "city").process(Apply()),
            "the left key has 2 columns and the right one 1",
        ),
        (lambda a, b: a.join(b).on("amount").unbounded(), "the right stream has no column 'amount'"),
        (lambda a, b: a.join(b).on("ciyt").unbounded(), "the left stream has no column 'ciyt'; did you mean 'city'?"),
        (lambda a, b: a.join(b).on().unbounded(), "a join needs the columns that must be equal"),
        (lambda a, b: a.join(b, how="left").on("city").unbounded(), "an unbounded join is always inner"),
        (lambda a, b: a.join(b, how="semi").on("city").window(Tumbling("1s")), "none of inner, left, right, outer"),
        (
            lambda a, b: a.with_watermark("ts").join(b).on("city").window(Tumbling("1s")),
            "windows need event time, and the right stream has none",
        ),
        (
            lambda a, b: a.with_watermark("ts").join(b).on("city").within(after="1s"),
            "an interval join needs event time, and the right stream has none",
        ),
        (lambda a, b: a.join(b, how="outer").on("city").within(after="1s"), "an interval join is always inner"),
        (
            lambda a, b: a.with_watermark("ts").join(b.with_watermark("paid")).on("city").window("1s"),
            "give Tumbling, Sliding or Session",
        ),
        (
            lambda a, b: a.with_watermark("ts").join(b.with_watermark("paid")).on("city").window(Session("1s")),
            "a join needs tumbling or sliding windows",
        ),
        (lambda a, b: a.map(len).join(b).on("city").unbounded(), "a join's left side works on columns"),
    ],
)
def test_what_cannot_be_joined_is_told(orders, payments, refused, build, words):
    problem = refused(build(orders, payments))
    assert words in problem and "test_two_streams.py:" in problem
