"""Which operators become one vertex, and what the edges between vertices are."""

from __future__ import annotations

import pytest

from snapshot_engine.graph.job_graph import Exchange, Partitioning


def shape(graph):
    """Vertices as their operators' names, edges as (producer, consumer, partitioning)."""
    names = {uid: vertex.name for uid, vertex in graph.vertices.items()}
    edges = [(names[edge.producer], names[edge.consumer], edge.partitioning.value) for edge in graph.edges]
    return list(names.values()), edges


def same(row):
    return row


def test_a_straight_pipeline_is_one_vertex(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders")
        stream.map_in_arrow(same).filter(same).sink_to(discard(), name="out")

    assert shape(plan(pipeline)) == (["orders -> map_in_arrow same -> filter same -> out"], [])


def test_a_key_ends_a_chain(plan, rows, discard):
    def pipeline(env):
        keyed = env.from_source(rows(), name="orders").filter(same).key_by("city")
        keyed.map_in_arrow(same).name("count").sink_to(discard(), name="out")

    graph = plan(pipeline, parallelism=2)
    assert shape(graph) == (
        ["orders -> filter same", "count -> out"],
        [("orders -> filter same", "count -> out", "hash")],
    )
    assert graph.edges[0].key_columns == ("city",)
    assert graph.edges[0].schema == rows().schema


def test_two_consumers_end_a_chain(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders")
        stream.filter(same).name("a").sink_to(discard(), name="out a")
        stream.filter(same).name("b").sink_to(discard(), name="out b")

    vertices, edges = shape(plan(pipeline, parallelism=3))
    assert vertices == ["orders", "a -> out a", "b -> out b"]
    assert edges == [("orders", "a -> out a", "forward"), ("orders", "b -> out b", "forward")]


def test_a_union_is_several_edges_into_one_port(plan, rows, discard):
    def pipeline(env):
        one, two = env.from_source(rows(), name="one"), env.from_source(rows(), name="two")
        one.union(two).filter(same).name("both").sink_to(discard(), name="out")

    graph = plan(pipeline, parallelism=2)
    assert shape(graph)[0] == ["one", "two", "both -> out"]
    assert [(edge.producer, edge.port, edge.partitioning) for edge in graph.edges] == [
        ("one-1", 0, Partitioning.FORWARD),
        ("two-1", 0, Partitioning.FORWARD),
    ]


def test_another_parallelism_ends_a_chain_and_rebalances(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", parallelism=1)
        stream.filter(same).parallelism(4).sink_to(discard(), name="out", parallelism=4)

    graph = plan(pipeline, parallelism=2)
    assert shape(graph) == (
        ["orders", "filter same -> out"],
        [("orders", "filter same -> out", "rebalance")],
    )
    assert [vertex.parallelism for vertex in graph.vertices.values()] == [1, 4]


@pytest.mark.parametrize("method", ["rebalance", "broadcast"])
def test_partitioning_that_was_asked_for_ends_a_chain(plan, rows, discard, method):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders")
        getattr(stream, method)().filter(same).sink_to(discard(), name="out")

    assert shape(plan(pipeline, parallelism=2))[1] == [("orders", "filter same -> out", method)]


def test_an_exchange_ends_a_chain_and_applies_to_the_next_edge_only(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders")
        kept = stream.exchange(Exchange.DURABLE, budget="64Mi").filter(same).name("next")
        kept.filter(same).name("after").sink_to(discard(), name="out")

    graph = plan(pipeline)
    assert shape(graph)[0] == ["orders", "next -> after -> out"]
    (edge,) = graph.edges
    assert (edge.exchange, edge.budget_bytes) == (Exchange.DURABLE, 64 * 2**20)
    assert edge.partitioning is Partitioning.FORWARD


def test_an_exchange_can_be_given_before_or_after_the_key(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders")
        stream.exchange("committed").key_by("city").map_in_arrow(same).sink_to(discard(), name="a")
        stream.key_by("city").exchange("committed").map_in_arrow(same).sink_to(discard(), name="b")

    graph = plan(pipeline)
    assert [(edge.partitioning, edge.exchange) for edge in graph.edges] == [(Partitioning.HASH, Exchange.COMMITTED)] * 2


def test_each_stream_of_a_union_keeps_its_own_exchange(plan, rows, discard):
    def pipeline(env):
        one, two = env.from_source(rows(), name="one"), env.from_source(rows(), name="two")
        one.exchange("committed").union(two).key_by("city").map_in_arrow(same).sink_to(discard())

    assert [edge.exchange for edge in plan(pipeline).edges] == [Exchange.COMMITTED, Exchange.PIPELINED]


def test_the_default_exchange_is_for_edges_that_move_rows(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders").filter(same)
        stream.key_by("city").map_in_arrow(same).sink_to(discard(), name="out")

    graph = plan(pipeline, exchange=Exchange.MEMORY)
    assert shape(graph)[0] == ["orders -> filter same", "map_in_arrow same -> out"]
    assert graph.edges[0].exchange is Exchange.MEMORY


def test_every_operator_keeps_its_own_uid_in_a_chain(plan, rows, discard):
    def pipeline(env):
        stream = env.from_source(rows(), name="orders", uid="orders")
        stream.filter(same).uid("only-good").sink_to(discard(), uid="out")

    (vertex,) = plan(pipeline).vertices.values()
    assert vertex.uid == "orders" and vertex.is_source
    assert [operator.uid for operator in vertex.operators] == ["orders", "only-good", "out"]
    assert [operator.stateful for operator in vertex.operators] == [True, False, False]


def test_the_sink_object_is_with_its_operator_for_the_commits(plan, rows, transactional):
    sink = transactional()
    graph = plan(lambda env: env.from_source(rows()).sink_to(sink, uid="out"))
    assert next(iter(graph.vertices.values())).operators[-1].sink is sink
