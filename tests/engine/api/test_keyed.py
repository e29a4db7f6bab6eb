"""Keys, and what keeps state behind them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from snapshot_engine.api import (
    Avg,
    BatchKeyedProcessFunction,
    Count,
    KeyedProcessFunction,
    Sum,
)
from snapshot_engine.graph.job_graph import Partitioning
from snapshot_engine.operators.key_extract import KeyExtractOperator
from snapshot_engine.operators.keyed_aggregate import KeyedAggregateOperator
from snapshot_engine.operators.keyed_process import BatchKeyedProcessOperator, KeyedProcessOperator
from snapshot_engine.operators.row_reduce import RowReduceOperator
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME


@dataclass
class Alert:
    city: str


class Watch(KeyedProcessFunction):
    def process(self, record, context) -> Iterator[Alert]:
        yield Alert(record.city)


class WatchWithTimer(Watch):
    def on_timer(self, timestamp, context):
        return None


class WatchBatches(BatchKeyedProcessFunction):
    def process(self, batch, context):
        yield batch


def add(old, new):
    return new


def type_of(stream):
    return stream._end.type


def into(graph, name):
    """The edge into the vertex that begins with the operator of that name."""
    (vertex,) = [vertex for vertex in graph.vertices.values() if vertex.operators[0].name == name]
    (edge,) = graph.inputs_of(vertex.uid)
    return edge


def test_keys_are_columns_and_rows_go_by_their_hash(orders, planned):
    edge = into(planned(orders.key_by("city", "amount").reduce(add).uid("r")), "reduce")
    assert edge.partitioning is Partitioning.HASH and edge.key_columns == ("city", "amount")
    assert edge.columns is None


def test_a_key_function_runs_before_the_edge(orders, planned):
    graph = planned(orders.key_by(lambda row: row.city[:1]).reduce(add).uid("r"))
    assert graph.vertices["orders"].name == "orders -> key_by"
    assert isinstance(graph.vertices["orders"].operators[1].factory(), KeyExtractOperator)
    edge = into(graph, "reduce")
    assert edge.key_columns == (HIDDEN_KEY,) and edge.schema.names[-1] == HIDDEN_KEY


def test_an_exchange_before_a_key_function_is_for_the_edge_behind_it(orders, planned):
    graph = planned(orders.exchange("memory", budget="1Mi").key_by(len).reduce(add).uid("r"))
    assert graph.vertices["orders"].name == "orders -> key_by"
    edge = into(graph, "reduce")
    assert edge.exchange.value == "memory" and edge.budget_bytes == 2**20


def test_the_hidden_key_does_not_come_out_again(orders):
    assert type_of(orders.key_by(len).reduce(add)) == type_of(orders)


def test_a_second_key_function_replaces_the_first(orders):
    twice = orders.key_by(len).filter(add).key_by(len)
    assert type_of(twice).schema.names.count(HIDDEN_KEY) == 1


def test_reduce_keeps_the_type_and_has_state(timed, operator_named, planned):
    stream = timed.key_by("city").reduce(add).uid("last")
    assert type_of(stream) == type_of(timed)
    assert isinstance(operator_named("reduce", stream), RowReduceOperator)


def test_running_aggregates_and_only_the_columns_they_need(orders, planned):
    stream = orders.key_by("city").aggregate(n=Count(), total=Sum("amount"), mean=Avg("price")).uid("totals")
    schema = type_of(stream).schema
    assert schema.names == ["city", "n", "total", "mean"]
    assert [schema.field(name).type for name in ("n", "total", "mean")] == [pa.int64(), pa.int64(), pa.float64()]
    graph = planned(stream)
    edge = into(graph, "aggregate")
    assert edge.columns == ("city", "amount", "price") and edge.schema == type_of(orders).schema
    operator = next(iter(graph.vertices["totals"].operators)).factory()
    assert isinstance(operator, KeyedAggregateOperator)


def test_running_aggregates_need_no_event_time_and_have_none(timed, planned):
    stream = timed.key_by("city").aggregate(n=Count()).uid("totals")
    assert type_of(stream).event_time is None
    assert into(planned(stream), "aggregate").columns == ("city",)


def test_a_process_function_has_its_annotated_schema(orders, planned, operator_named):
    stream = orders.key_by("city").process(Watch()).uid("watch")
    assert type_of(stream).schema == pa.schema({"city": pa.string()})
    assert isinstance(operator_named("process Watch", stream), KeyedProcessOperator)


def test_a_process_function_keeps_event_time_hidden(timed):
    assert type_of(timed.key_by("city").process(Watch())).schema.names == ["city", HIDDEN_TIME]


def test_a_batch_function_keeps_the_columns(timed, operator_named):
    stream = timed.key_by("city").process(WatchBatches()).uid("batches")
    assert type_of(stream) == type_of(timed)
    assert isinstance(operator_named("process WatchBatches", stream), BatchKeyedProcessOperator)


def test_side_outputs_of_a_process_function_end_its_chain(orders, planned):
    watched = orders.key_by("city").process(Watch()).uid("watch")
    graph = planned(watched, watched.side_output("odd", schema="city string, why string"))
    assert [(edge.tag, edge.producer) for edge in graph.edges] == [
        (None, "orders"),
        (None, "watch"),
        ("odd", "watch"),
    ]
    assert graph.edges[2].schema.names == ["city", "why"]
    assert graph.vertices["watch"].name == "process Watch"


def test_timers_are_not_deterministic(env, orders, refused):
    env.parallelism = 1
    stream = orders.parallelism(1).key_by("city").process(WatchWithTimer()).uid("w").parallelism(1)
    problem = refused(stream.deterministic())
    assert "'process WatchWithTimer' at" in problem and "it sets timers" in problem


def test_output_for_each_batch_is_not_deterministic(env, orders, refused):
    """The same rows come in other batches when they take another time."""
    env.parallelism = 1
    stream = orders.parallelism(1).key_by("city").aggregate(n=Count()).uid("totals").parallelism(1)
    assert "batches are cut differently each time" in refused(stream.deterministic())


def test_a_function_without_timers_may_be(env, orders, planned):
    env.parallelism = 1
    one = orders.parallelism(1).key_by("city").process(Watch()).uid("w").parallelism(1).deterministic()
    graph = planned(one)
    assert graph.vertices["w"].declared_deterministic and graph.vertices["orders"].declared_deterministic


@pytest.mark.parametrize("method", ["reduce", "aggregate", "process"])
def test_state_without_a_key_is_refused(orders, refused, method):
    argument = {"reduce": (add,), "aggregate": (), "process": (Watch(),)}[method]
    problem = refused(getattr(orders, method)(*argument))
    assert f"'{method}'" in problem and "state belongs to a key: call key_by(...)" in problem
    assert "test_keyed.py:" in problem


def test_more_subtasks_than_key_groups_are_refused(orders, refused):
    problem = refused(orders.key_by("city").reduce(add).uid("r").parallelism(200))
    assert "parallelism 200 is more than the job's 128 key groups" in problem and ".parallelism(128)" in problem


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.key_by("ctiy").reduce(add), "'key_by': the stream has no column 'ctiy'; did you mean 'city'?"),
        (lambda s: s.key_by().reduce(add), "no key given: name columns, or give a function"),
        (lambda s: s.key_by("city", 3).reduce(add), "3 is not a column's name"),
        (lambda s: s.key_by("city", "amount", "city").reduce(add), "'key_by': it names column 'city' twice"),
        (lambda s: s.map(add).key_by("city").reduce(add), "the records have none: give a function of the record"),
        (
            lambda s: s.map(add, schema="tags array<string>").key_by("tags").reduce(add),
            "column 'tags' of type list<item: string> cannot be a key",
        ),
        (lambda s: s.key_by("city").reduce(3), "reduce needs a function, not 3"),
        (lambda s: s.key_by("city").aggregate(), "aggregate needs at least one aggregate"),
        (lambda s: s.key_by("city").aggregate(n=Sum("amuont")), "no column 'amuont'; did you mean 'amount'?"),
        (lambda s: s.key_by("city").aggregate(n=Sum("city")), "column 'city' is string, not a number"),
        (lambda s: s.key_by("city").aggregate(n="amount"), "n='amount' is not an aggregate"),
        (lambda s: s.key_by("city").aggregate(city=Count()), "calls a result 'city' like a key column"),
        (lambda s: s.key_by(len).aggregate(n=Count()), "a key worked out by a function has none"),
        (lambda s: s.map(add).key_by(len).aggregate(n=Count()), "aggregate works on columns"),
        (lambda s: s.key_by("city").process(Watch), "process needs an object: write Watch(...)"),
        (lambda s: s.key_by("city").process(add), "process needs a KeyedProcessFunction"),
        (
            lambda s: s.map(add).key_by(len).process(WatchBatches()),
            "a BatchKeyedProcessFunction works on columns",
        ),
        (
            lambda s: s.key_by("city").reduce(add).side_output("late"),
            "'side_output': 'reduce' has no side output 'late' (side outputs: none)",
        ),
        (lambda s: s.rebalance().side_output("late"), "'side_output': it does not follow an operator"),
    ],
)
def test_what_cannot_work_is_told(orders, refused, build, words):
    problem = refused(build(orders))
    assert words in problem and "test_keyed.py:" in problem
