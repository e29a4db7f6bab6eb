"""Event time, and several streams as one."""

from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime
from snapshot_engine.operators.watermarks import WatermarkOperator


def same(value):
    return value


def type_of(stream):
    return stream._end.type


def test_event_time_from_a_column(orders, operator_named):
    stream = orders.with_watermark("ts", delay="2s", idle_timeout="1m")
    assert type_of(stream).event_time == EventTime("ts")
    operator = operator_named("with_watermark", stream)
    assert isinstance(operator, WatermarkOperator)
    assert (operator.delay_ms, operator.idle_timeout_ms, operator.extract) == (2_000, 60_000, None)


def test_event_time_from_a_function_is_hidden(orders, operator_named):
    stream = orders.map(same).with_watermark(len)
    assert type_of(stream).plain and type_of(stream).event_time == EventTime(HIDDEN_TIME)
    assert operator_named("with_watermark", stream).extract is len


def test_a_watermark_takes_its_uid_from_its_input_and_warns_of_nothing(timed, planned):
    graph = planned(timed)
    assert [operator.uid for operator in graph.vertices["orders"].operators][1] == "orders.with-watermark-1"
    assert not any("uid" in warning for warning in graph.warnings)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.with_watermark("tss"), "no column 'tss'; did you mean 'ts'?"),
        (lambda s: s.with_watermark("city"), "event time column 'city' is string; it must be int64"),
        (lambda s: s.with_watermark("ts", delay="2"), "is not a duration"),
        (lambda s: s.with_watermark("ts", idle_timeout="0s"), "idle_timeout must be longer than 0"),
        (lambda s: s.with_watermark(42), "with_watermark needs a function, not 42"),
        (lambda s: s.map(same).with_watermark("ts"), "the records have none: give a function of the record"),
    ],
)
def test_event_times_that_cannot_be(orders, refused, build, words):
    problem = refused(build(orders))
    assert words in problem and "'with_watermark'" in problem and "test_time_and_unions.py:" in problem


def test_a_union_has_the_type_of_its_streams(env: Environment, source):
    one, two, three = (env.from_source(source(), uid=uid).with_watermark("ts") for uid in "abc")
    assert type_of(one.union(two, three)) == type_of(one)


def test_a_union_of_different_columns_shows_both(env: Environment, source, refused):
    one = env.from_source(source(a=pa.int64()), uid="one")
    two = env.from_source(source(a=pa.string()), uid="two")
    problem = refused(one.union(two))
    assert "'union': the streams have different columns: (a int64) and (a string)" in problem
    assert "test_time_and_unions.py:" in problem


def test_a_union_of_rows_and_plain_records(env: Environment, source, refused):
    one, two = env.from_source(source(), uid="one"), env.from_source(source(), uid="two").map(same)
    assert "one stream has columns and the other plain records" in refused(one.union(two))


def test_a_union_of_different_event_times(env: Environment, source, refused):
    one, two = env.from_source(source(), uid="one"), env.from_source(source(), uid="two").with_watermark("ts")
    problem = refused(one.union(two))
    assert "different event times: none and column 'ts'" in problem and "or on their union" in problem
