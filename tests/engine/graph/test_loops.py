"""Loops in the plan: where feedback leads, what lies inside, and what is refused."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest

from snapshot_engine.api import Environment, KeyedProcessFunction
from snapshot_engine.graph.job_graph import Exchange, Partitioning
from snapshot_engine.graph.logical import NOTHING_SAID, LogicalEdge
from snapshot_engine.graph.loops import edges_inside_loops, edges_with_rounds
from snapshot_engine.graph.plan_dot import plan_as_dot
from snapshot_engine.graph.plan_svg import plan_as_svg
from snapshot_engine.graph.plan_text import plan_as_text
from snapshot_engine.graph.plan_view import view_of
from snapshot_engine.graph.planning import PlanOptions, plan_graph
from snapshot_engine.graph.problems import PlanError


def same(row):
    return row


class Remember(KeyedProcessFunction):
    def process(self, record, context):
        yield record


def orders(env, rows):
    return env.from_source(rows(bounded=True), name="orders", uid="orders")


def round_and_out(stream):
    return stream.filter(same).uid("again"), stream.filter(same).uid("leave")


def feedback_of(graph):
    return [edge for edge in graph.edges if edge.feedback]


def test_what_the_body_returns_first_leads_back_to_the_head(plan, rows, discard):
    def pipeline(env):
        orders(env, rows).iterate(round_and_out, uid="loop").sink_to(discard(), uid="out")

    graph = plan(pipeline, parallelism=2)
    (feedback,) = feedback_of(graph)
    assert (feedback.producer, feedback.consumer) == ("again", "loop")
    assert graph.vertices["loop"].loop is not None
    assert [vertex.uid for vertex in graph.vertices.values()] == ["orders", "loop", "again", "leave"]


def test_several_streams_may_lead_back_to_one_head(plan, rows, discard):
    def body(stream):
        return [stream.filter(same).uid("some"), stream.filter(same).uid("others")], stream

    def pipeline(env):
        orders(env, rows).iterate(body, uid="loop").sink_to(discard(), uid="out")

    assert sorted(edge.producer for edge in feedback_of(plan(pipeline))) == ["others", "some"]


def test_a_loop_inside_a_loop_has_a_head_of_its_own(plan, rows, discard):
    def outer(stream):
        inside = stream.iterate(round_and_out, uid="inner")
        return inside.filter(same).uid("outer-again"), inside

    def pipeline(env):
        orders(env, rows).iterate(outer, uid="outer").sink_to(discard(), uid="out")

    graph = plan(pipeline)
    assert {edge.consumer for edge in feedback_of(graph)} == {"inner", "outer"}
    assert {uid for uid, vertex in graph.vertices.items() if vertex.loop} == {"inner", "outer"}


def test_what_goes_round_a_keyed_loop_comes_back_by_key_and_the_body_needs_no_shuffle(plan, rows, discard):
    def body(stream):
        kept = stream.process(Remember(), schema="city string, amount long, ts long").uid("remember")
        return kept.filter(same).uid("again"), kept

    def pipeline(env):
        orders(env, rows).key_by("city").iterate(body, uid="loop").sink_to(discard(), uid="out")

    graph = plan(pipeline, parallelism=2)
    (feedback,) = feedback_of(graph)
    assert (feedback.partitioning, feedback.key_columns) == (Partitioning.HASH, ("city",))
    assert [node.uid for node in graph.vertices["loop"].operators] == ["loop", "remember"]


def test_a_body_of_another_parallelism_is_sent_rows_by_key(plan, rows, discard):
    def body(stream):
        kept = stream.process(Remember(), schema="city string, amount long, ts long").uid("remember").parallelism(3)
        return kept.filter(same).uid("again"), kept

    def pipeline(env):
        orders(env, rows).key_by("city").iterate(body, uid="loop").sink_to(discard(), uid="out")

    graph = plan(pipeline, parallelism=2)
    (inside,) = [edge for edge in graph.edges if edge.consumer == "remember"]
    assert inside.partitioning is Partitioning.HASH


def test_a_key_worked_out_by_a_function_is_worked_out_again_for_what_comes_back(plan, rows, discard):
    def pipeline(env):
        keyed = orders(env, rows).key_by(lambda row: row.city)
        keyed.iterate(round_and_out, uid="loop").sink_to(discard(), uid="out")

    (feedback,) = feedback_of(plan(pipeline, parallelism=2))
    assert feedback.partitioning is Partitioning.HASH


def test_feedback_may_be_broadcast(plan, rows, discard):
    def body(stream):
        return stream.filter(same).broadcast(), stream

    def pipeline(env):
        orders(env, rows).iterate(body, uid="loop").sink_to(discard(), uid="out")

    (feedback,) = feedback_of(plan(pipeline, parallelism=2))
    assert feedback.partitioning is Partitioning.BROADCAST


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (lambda stream: stream, "return again, out"),
        (lambda stream: ([], stream), "no stream at all"),
        (lambda stream: (7, stream), "not int"),
        (lambda stream: (stream.select("city"), stream), "what goes round again is not what came in"),
    ],
)
def test_a_body_that_returns_something_else_is_refused_at_its_line(problems, rows, discard, body, told):
    def pipeline(env):
        orders(env, rows).iterate(body, uid="loop").sink_to(discard(), uid="out")

    told_here = [problem for problem in problems(pipeline) if told in problem]
    assert len(told_here) == 1
    assert f"test_loops.py:{pipeline.__code__.co_firstlineno + 1}: 'iterate" in told_here[0]


def test_a_stream_from_elsewhere_cannot_go_round(problems, rows, discard):
    def pipeline(env):
        other = env.from_source(rows(bounded=True), name="others", uid="others")
        orders(env, rows).iterate(lambda stream: (other, stream), uid="loop").sink_to(discard(), uid="out")

    assert any("'others' at" in problem and "does not come from this loop" in problem for problem in problems(pipeline))


def test_a_keyed_loop_must_not_come_back_by_another_key(problems, rows, discard):
    def pipeline(env):
        keyed = orders(env, rows).key_by("city")
        keyed.iterate(lambda stream: (stream.key_by("ts"), stream), uid="loop").sink_to(discard(), uid="out")

    assert any("keyed by city, but what goes round again by ts" in problem for problem in problems(pipeline))


def test_a_keyed_loop_cannot_be_broadcast(problems, rows, discard):
    def pipeline(env):
        keyed = orders(env, rows).key_by("city")
        keyed.iterate(lambda s: (s.filter(same).broadcast(), s), uid="loop").sink_to(discard(), uid="out")

    assert any("is not keyed" in problem for problem in problems(pipeline))


def test_an_exchange_inside_a_loop_is_refused_and_named(problems, rows, discard):
    def body(stream):
        cut = stream.filter(same).uid("before").exchange("committed").key_by("city").map_in_arrow(same).uid("after")
        return cut, cut

    def pipeline(env):
        orders(env, rows).iterate(body, uid="loop").sink_to(discard(), uid="out")

    (problem,) = [problem for problem in problems(pipeline) if "inside a loop" in problem]
    assert "committed exchange 'filter same' -> 'map_in_arrow same'" in problem
    assert f"test_loops.py:{body.__code__.co_firstlineno + 1}" in problem


def test_the_jobs_own_exchange_is_for_edges_outside_of_loops(plan, rows, discard):
    def body(stream):
        shuffled = stream.rebalance().map_in_arrow(same).uid("body")
        return shuffled, shuffled

    def pipeline(env):
        leaving = orders(env, rows).rebalance().iterate(body, uid="loop")
        leaving.rebalance().map_in_arrow(same).uid("behind").sink_to(discard(), uid="out")

    graph = plan(pipeline, parallelism=2, exchange=Exchange.COMMITTED)
    kinds = {(edge.producer, edge.consumer): edge.exchange for edge in graph.edges}
    assert kinds["orders", "loop"] is Exchange.COMMITTED
    assert kinds["loop", "body"] is Exchange.PIPELINED
    assert kinds["body", "behind"] is Exchange.COMMITTED


def test_a_cycle_that_no_loop_closes_is_refused_with_its_operators_and_lines(rows, discard):
    env = Environment()
    first = env.from_source(rows(bounded=True), uid="orders").map_in_arrow(same).name("first")
    second = first.map_in_arrow(same).name("second")
    second.sink_to(discard(), uid="out")
    back = LogicalEdge(second._end.upstreams[0].node, first._end.upstreams[0].node, NOTHING_SAID, second._end.type)
    env.graph.edges.append(back)
    with pytest.raises(PlanError) as refused:
        plan_graph(env.graph, PlanOptions())
    assert "takes part in a cycle" in str(refused.value)
    assert "'first' at" in str(refused.value) and "'second' at" in str(refused.value)


def test_rounds_need_inputs_that_end(problems, rows, discard):
    def pipeline(env):
        endless = env.from_source(rows(), name="endless", uid="endless")
        endless.iterate(round_and_out, rounds=True, uid="loop").sink_to(discard(), uid="out")

    assert any("its rounds would never begin" in p and "'endless' at" in p for p in problems(pipeline))


def test_two_loops_with_rounds_in_one_region_are_refused(problems, rows, discard):
    def pipeline(env):
        first = orders(env, rows).iterate(lambda s: (s.filter(same), s.filter(same)), rounds=True, uid="one")
        second = first.iterate(lambda s: (s.filter(same), s.filter(same)), rounds=True, uid="two")
        second.sink_to(discard(), uid="out")

    assert any("a second loop with rounds in one region" in problem for problem in problems(pipeline))


def test_a_budget_of_nothing_is_refused(problems, rows, discard):
    def pipeline(env):
        orders(env, rows).iterate(round_and_out, budget=0, uid="loop").sink_to(discard(), uid="out")

    assert any("no room at all" in problem for problem in problems(pipeline))


@pytest.fixture
def looped(plan, rows, discard):
    def pipeline(env):
        leaving = orders(env, rows).iterate(round_and_out, rounds=True, uid="loop")
        leaving.map_in_arrow(same).uid("behind").sink_to(discard(), uid="out")

    return plan(pipeline, parallelism=2)


def test_what_lies_inside_a_loop(looped):
    ends = {(edge.producer, edge.consumer) for edge in edges_inside_loops(looped.edges)}
    assert ends == {("loop", "again"), ("again", "loop")}


def test_the_end_of_a_round_is_told_to_all_that_lies_behind_the_head(looped):
    ends = {(edge.producer, edge.consumer) for edge in looped.edges if edge.id in edges_with_rounds(looped)}
    assert ends == {("loop", "again"), ("again", "loop"), ("loop", "leave")}


def test_every_form_of_the_plan_shows_feedback(looped):
    view = view_of(looped)
    assert "again -> loop: forward, pipelined, feedback" in plan_as_text(view)
    assert "loop ×2 (head of a loop with rounds)" in plan_as_text(view)
    assert [edge["feedback"] for edge in json.loads(json.dumps(view.to_json()))["edges"]].count(True) == 1
    assert '"again" -> "loop" [label="forward\\nfeedback", style=dashed]' in plan_as_dot(view)
    drawn = ElementTree.fromstring(plan_as_svg(view))
    assert any(text.text == "feedback" for text in drawn.iter("{http://www.w3.org/2000/svg}text"))
