"""Declarations about regions that cannot hold."""

from __future__ import annotations

import pytest

from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.region_checks import check_cuts, check_determinism, check_strategy
from snapshot_engine.protocol.failover import Strategy


def same(row):
    return row


def hashed(env, rows, discard, exchange="pipelined"):
    keyed = env.from_source(rows(), name="orders", uid="in").exchange(exchange).key_by("city")
    keyed.map_in_arrow(same).name("count").sink_to(discard(), name="out")


def test_individual_is_refused_with_the_edge_that_forbids_it(problems, rows, discard):
    (problem,) = problems(lambda env: hashed(env, rows, discard), parallelism=2, strategy=Strategy.INDIVIDUAL)
    assert "strategy Individual is not possible" in problem and "the hash edge 'orders' -> 'count'" in problem
    assert "committed, durable or memory" in problem


def test_individual_is_allowed_where_every_slot_is_its_own_region(plan, rows, discard):
    individual = {"strategy": Strategy.INDIVIDUAL}
    assert plan(lambda env: hashed(env, rows, discard, "committed"), parallelism=2, **individual)
    assert plan(lambda env: hashed(env, rows, discard), parallelism=1, **individual)
    assert plan(
        lambda env: env.from_source(rows(), uid="in").filter(same).sink_to(discard()), parallelism=4, **individual
    )


def test_individual_is_refused_where_a_cycle_of_cuts_joins_slots(graph_of):
    graph = graph_of({"a": 2, "b": 2}, ["a hash b memory", "a forward b"])
    (problem,) = check_strategy(ExecutionGraph(graph), Strategy.INDIVIDUAL)
    assert "the hash edge 'a' -> 'b' is memory, but its regions depend on each other in a cycle" in str(problem)


@pytest.mark.parametrize("exchange", ["durable", "memory"])
def test_individual_is_refused_where_a_producer_takes_its_consumers_along(problems, rows, discard, exchange):
    individual = {"strategy": Strategy.INDIVIDUAL}
    (problem,) = problems(lambda env: hashed(env, rows, discard, exchange), parallelism=2, **individual)
    assert f"the {exchange} exchange 'orders' -> 'count' restarts its consumers with its producer" in problem


def test_batches_handed_out_in_turn_are_not_deterministic(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="in", parallelism=1).deterministic()
        stream.exchange("durable").rebalance().map_in_arrow(same).name("count").sink_to(discard(), name="out")

    (problem,) = problems(pipeline, parallelism=2)
    assert "declared deterministic, but 'orders' hands whole batches out in turn" in problem


def test_splits_that_are_read_in_turn_are_not_deterministic(problems, discard):
    def pipeline(env):
        source = GeneratorSource({"n": lambda offsets: offsets}, count=10, splits=4)
        stream = env.from_source(source, name="numbers", uid="in", parallelism=2).deterministic()
        stream.exchange("durable").filter(same).sink_to(discard(), name="out")

    (problem,) = problems(pipeline, parallelism=2)
    assert "declared deterministic, but 'numbers' reads 2 splits in turn" in problem


def test_a_deterministic_region_may_have_one_input_channel_only(problems, rows, discard):
    def pipeline(env):
        keyed = env.from_source(rows(), name="orders", uid="in").key_by("city")
        keyed.map_in_arrow(same).name("count").deterministic().sink_to(discard(), name="out")

    (problem,) = problems(pipeline, parallelism=2)
    assert "declared deterministic, but 'count' has 2 input channels" in problem and "leave out" in problem


def test_a_declaration_is_for_the_whole_region(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="in")
        parsed = stream.filter(same).name("parse").deterministic()
        parsed.sink_to(discard(), name="raw")
        parsed.exchange("durable").key_by("city").map_in_arrow(same).name("count").sink_to(discard())

    graph = plan(pipeline, parallelism=2)
    declared = {vertex.name: vertex.declared_deterministic for vertex in graph.vertices.values()}
    assert declared == {"orders -> parse": True, "raw": True, "count -> Discard": False}


def test_a_neighbour_in_the_region_can_spoil_a_declaration(problems, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="in").deterministic()
        stream.sink_to(discard(), name="raw")
        stream.key_by("city").map_in_arrow(same).name("count").sink_to(discard(), name="out")

    (problem,) = problems(pipeline, parallelism=2)
    assert "'orders': declared deterministic, but 'count' has 2 input channels" in problem


def test_reasons_inside_an_operator_are_told_with_its_line(graph_of):
    from dataclasses import replace

    graph = graph_of({"a": 1}, [], deterministic=["a"])
    (operator,) = graph.vertices["a"].operators
    timed = replace(operator, nondeterminism="it sets timers")
    graph = replace(graph, vertices={"a": replace(graph.vertices["a"], operators=(timed,))})
    (problem,) = check_determinism(ExecutionGraph(graph))
    assert "'a' at job.py:1 is not: it sets timers" in str(problem)


@pytest.mark.parametrize(("exchange", "is_error"), [("committed", False), ("memory", False), ("blocking", True)])
def test_a_cut_around_which_a_pipelined_path_leads_is_told(graph_of, exchange, is_error):
    graph = graph_of({"a": 1, "b": 1, "c": 1}, ["a hash b", "b hash c", f"a hash c {exchange}"])
    ((problem, error),) = check_cuts(ExecutionGraph(graph))
    assert f"the {exchange} exchange 'a' -> 'c' joins two ends of one region" in str(problem)
    assert error is is_error


def test_a_useless_cut_is_a_warning_of_the_plan(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="in")
        other = stream.exchange("memory").filter(same).name("other")
        stream.union(other).map_in_arrow(same).name("both").sink_to(discard(), name="out")

    graph = plan(pipeline)
    assert any("the memory exchange 'orders' -> 'other'" in warning for warning in graph.warnings)
