"""What planning refuses or warns of, each with the operator and its line."""

from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot_engine.api import Environment, Exchange
from snapshot_engine.graph.building import Input, Upstream
from snapshot_engine.graph.call_site import user_location
from snapshot_engine.graph.job_graph import Partitioning
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.logical import EdgeTraits, LogicalEdge, LogicalGraph, Step
from snapshot_engine.graph.planning import PlanOptions, plan_graph
from snapshot_engine.graph.problems import PlanError
from snapshot_engine.operators.operator import Operator
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.protocol.elements import Mode


def same(row):
    return row


def test_an_empty_pipeline_is_told_how_to_begin(problems):
    assert problems(lambda env: None) == ["the pipeline function added nothing: begin with env.from_source(...)"]


def test_a_stream_of_another_environment_is_refused(problems, rows, discard):
    def pipeline(env):
        strange = Environment().from_source(rows(), name="strange", uid="strange")
        env.from_source(rows(), name="orders", uid="orders").union(strange).filter(same).sink_to(discard(), uid="out")

    (problem,) = problems(pipeline)
    line = pipeline.__code__.co_firstlineno + 2
    assert f"test_pipeline_checks.py:{line}: 'filter same'" in problem
    assert "'strange' at" in problem and "belongs to another Environment" in problem


@pytest.mark.parametrize("name", ["__time__", "__key__", "__weight__"])
def test_a_source_has_no_column_that_the_engine_adds_itself(problems, rows, discard, name):
    """It would be taken for that: read as times, keys, or numbers of rows, and shown to nobody."""

    def pipeline(env):
        env.from_source(rows(city=pa.string(), **{name: pa.int64()}), name="orders", uid="orders").sink_to(discard())

    (problem,) = problems(pipeline)
    assert f"'orders': column {name!r}" in problem and "rename it" in problem


def test_a_timeout_for_silence_is_warned_of_where_nobody_knows_what_is_silent(rows, discard):
    def pipeline(env):
        source = env.from_source(rows(ts=pa.int64()), uid="in", parallelism=1)
        silent = source.with_watermark("ts", idle_timeout="1s").parallelism(1)
        silent.rebalance().with_watermark("ts", idle_timeout="1s").parallelism(2).sink_to(discard(), uid="out")

    warnings = plan_pipeline(pipeline, options=PlanOptions()).warnings
    (warning,) = [warning for warning in warnings if "idle_timeout" in warning]
    line = pipeline.__code__.co_firstlineno + 3
    assert f"test_pipeline_checks.py:{line}: 'with_watermark'" in warning
    assert "back pressure" in warning and "right behind the source" in warning


def test_a_stream_that_leads_nowhere_is_refused_at_its_line(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="orders")
        stream.sink_to(discard(), uid="out")
        stream.filter(same).name("forgotten")  # line of the problem

    (problem,) = problems(pipeline)
    line = pipeline.__code__.co_firstlineno + 3
    assert f"test_pipeline_checks.py:{line}: 'forgotten'" in problem
    assert "leads nowhere" in problem and "sink_to" in problem


def test_a_sink_without_an_input_is_refused(discard):
    graph = LogicalGraph()
    sink = graph.add_node("sink", user_location())
    sink.sink = discard()
    with pytest.raises(PlanError, match="'sink': this sink has no input"):
        plan_graph(graph, PlanOptions())


def test_a_forward_edge_between_different_parallelisms_is_refused(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", parallelism=2)
        stream.forward().filter(same).name("next").parallelism(3).sink_to(discard(), parallelism=3)

    (problem,) = problems(pipeline)
    assert "'next'" in problem and "forward edge from 'orders', which has parallelism 2" in problem
    assert "with 3" in problem and "rebalance()" in problem


@pytest.mark.parametrize("wrong", [0, -1, "two", True])
def test_a_parallelism_must_be_a_number_of_subtasks(problems, rows, discard, wrong):
    def pipeline(env):
        env.from_source(rows(), uid="in").filter(same).parallelism(wrong).sink_to(discard())

    assert any(f"parallelism {wrong!r} is not a number of subtasks" in problem for problem in problems(pipeline))


def test_a_sink_that_is_not_exactly_once_is_a_warning(plan, rows, discard):
    graph = plan(lambda env: env.from_source(rows(), uid="in").sink_to(discard(), name="screen"))
    (warning,) = graph.warnings
    assert "'screen'" in warning and "ExactlyOnce, but this sink is not" in warning and "AtLeastOnce" in warning


def test_a_sink_that_is_not_exactly_once_is_an_error_where_that_is_required(problems, rows, discard):
    def pipeline(env):
        env.from_source(rows(), uid="in").sink_to(discard(), name="screen")

    (problem,) = problems(pipeline, require_exactly_once_sinks=True)
    assert "'screen'" in problem and "ExactlyOnce, but this sink is not" in problem


def test_at_least_once_asks_nothing_of_sinks(plan, rows, discard):
    graph = plan(
        lambda env: env.from_source(rows(), uid="in").sink_to(discard()),
        mode=Mode.AT_LEAST_ONCE,
        require_exactly_once_sinks=True,
    )
    assert graph.warnings == ()


def test_a_budget_belongs_to_an_exchange_that_keeps_a_log(problems, rows, discard):
    def pipeline(env):
        env.from_source(rows(), uid="in").exchange("committed", budget="1Mi").filter(same).sink_to(discard())

    (problem,) = problems(pipeline)
    assert "the committed exchange from 'Rows'" in problem and "only memory and durable" in problem
    assert "test_pipeline_checks.py" in problem


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("comitted", None), "'comitted' is not an exchange: use pipelined, memory"), (("memory", "lots"), "not a size")],
)
def test_an_exchange_that_is_none(problems, rows, discard, arguments, words):
    kind, budget = arguments

    def pipeline(env):
        env.from_source(rows(), uid="in").exchange(kind, budget=budget).filter(same).sink_to(discard())

    (problem,) = problems(pipeline)
    assert "'exchange'" in problem and words in problem and "test_pipeline_checks.py" in problem


def test_an_empty_budget_is_refused(problems, rows, discard):
    def pipeline(env):
        env.from_source(rows(), uid="in").exchange("memory", budget="0Mi").filter(same).sink_to(discard())

    (problem,) = problems(pipeline)
    assert "budget must be more than 0" in problem


def test_a_blocking_exchange_needs_an_end_of_its_input(problems, plan, rows, discard):
    def pipeline(env, bounded):
        stream = env.from_source(rows(bounded=bounded), name="orders", uid="in").filter(same)
        stream.exchange(Exchange.BLOCKING).filter(same).sink_to(discard())

    assert plan(lambda env: pipeline(env, True)).edges[0].exchange is Exchange.BLOCKING
    (problem,) = problems(lambda env: pipeline(env, False))
    assert "the blocking exchange" in problem and "would wait for ever" in problem
    assert "source 'orders' at" in problem and "has none" in problem


def test_state_by_key_behind_an_edge_without_key_is_refused(rows, discard):
    """The API cannot build it; whoever builds a logical graph otherwise is told."""
    graph = LogicalGraph()
    type = StreamType(pa.schema({"x": pa.int64()}))
    source, keyed, sink = (graph.add_node(kind, user_location()) for kind in ("source", "count", "sink"))
    source.source, keyed.keyed, sink.sink = rows(), True, discard()
    for node in (source, keyed, sink):
        node.step = Step(Operator, type)
    rebalanced = EdgeTraits(partitioning=Partitioning.REBALANCE)
    graph.edges.append(LogicalEdge(source, keyed, rebalanced, type))
    graph.edges.append(LogicalEdge(keyed, sink, EdgeTraits(), type))
    with pytest.raises(PlanError, match="'count': it keeps state by key, but its input from 'source' is not keyed"):
        plan_graph(graph, PlanOptions())


def test_a_feedback_edge_must_be_pipelined(rows, discard):
    env = Environment()
    stream = env.from_source(rows(), name="in").filter(same).name("head")
    head = env.graph.nodes[-1]
    body = stream.filter(same).name("body")
    body.sink_to(discard())
    node = body._end.upstreams[0].node
    traits = EdgeTraits(partitioning=Partitioning.REBALANCE, exchange=Exchange.COMMITTED)
    env.graph.edges.append(LogicalEdge(node, head, traits, node.output, feedback=True))
    with pytest.raises(PlanError, match="feedback edge: a loop is always one region"):
        plan_graph(env.graph, PlanOptions())


def test_a_feedback_edge_ends_chains_and_is_marked(rows, discard):
    env = Environment()
    stream = env.from_source(rows(), name="in").filter(same).name("head")
    head = env.graph.nodes[-1]
    body = stream.filter(same).name("body")
    body.sink_to(discard(), name="out")
    node = body._end.upstreams[0].node
    env.graph.edges.append(LogicalEdge(node, head, EdgeTraits(), node.output, feedback=True))
    graph = plan_graph(env.graph, PlanOptions())
    assert [vertex.name for vertex in graph.vertices.values()] == ["in", "head -> body", "out"]
    assert [(edge.producer, edge.consumer) for edge in graph.edges if edge.feedback] == [("head-1", "head-1")]


def test_all_problems_are_told_at_once_in_the_order_of_the_file(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="x")
        stream.key_by("ctiy").map_in_arrow(same).sink_to(discard(), uid="x")
        stream.map_in_arrow(42).sink_to(discard())
        stream.sink_to(discard)
        stream.filter(same).name("forgotten")

    found = problems(pipeline)
    assert len(found) == 5
    for text, words in zip(
        found,
        ["did you mean 'city'?", "uid 'x' is also", "needs a function, not 42", "is a class", "leads nowhere"],
        strict=True,
    ):
        assert words in text
    lines = [int(text.split(":")[1]) for text in found]
    assert lines == sorted(lines)


def test_what_follows_from_a_problem_is_not_told_again(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), uid="in").map_in_arrow(42)
        stream.select("nothing").key_by("nowhere").map_in_arrow(same).sink_to(discard())

    (problem,) = problems(pipeline)
    assert "needs a function" in problem


def test_the_error_reads_as_a_list(plan, rows):
    with pytest.raises(PlanError) as caught:
        plan(lambda env: env.from_source(rows(), name="orders"), job="shop")
    assert str(caught.value).startswith("the pipeline of 'shop' cannot be planned: 1 problem\n  - ")


def test_inputs_know_their_traits_per_stream(rows):
    """A union's edges may differ."""
    env = Environment()
    node = env.from_source(rows())._end.upstreams[0].node
    both = Input((Upstream(node), Upstream(node)), None).with_traits(exchange=Exchange.MEMORY)
    assert [upstream.traits.exchange for upstream in both.upstreams] == [Exchange.MEMORY] * 2
