"""Which operators run together as one subtask, and how rows get from one vertex to the next."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from snapshot_engine.graph.job_graph import Exchange, Partitioning
from snapshot_engine.graph.logical import LogicalEdge, LogicalGraph, LogicalNode
from snapshot_engine.graph.loops import edges_inside_loops


@dataclass(frozen=True)
class ResolvedEdge:
    """A logical edge with everything decided that the user left open."""

    logical: LogicalEdge
    partitioning: Partitioning
    exchange: Exchange


def resolve_edges(graph: LogicalGraph, parallelism: dict[LogicalNode, int], default: Exchange) -> list[ResolvedEdge]:
    inside = {id(edge) for edge in edges_inside_loops(graph.edges)}
    return [
        ResolvedEdge(
            edge,
            _partitioning(edge, parallelism),
            edge.traits.exchange or _default_exchange(edge, Exchange.PIPELINED if id(edge) in inside else default),
        )
        for edge in graph.edges
    ]


def _partitioning(edge: LogicalEdge, parallelism: dict[LogicalNode, int]) -> Partitioning:
    same = parallelism[edge.producer] == parallelism[edge.consumer]
    if edge.traits.already_keyed and same:
        return Partitioning.FORWARD
    if edge.traits.partitioning is not None:
        return edge.traits.partitioning
    return Partitioning.FORWARD if same else Partitioning.REBALANCE


def _default_exchange(edge: LogicalEdge, default: Exchange) -> Exchange:
    """The job's default is for edges where rows change their subtask: elsewhere it would only break up
    chains."""
    moves = edge.traits.partitioning not in (None, Partitioning.FORWARD)
    return default if moves else Exchange.PIPELINED


def chains_of(graph: LogicalGraph, edges: list[ResolvedEdge]) -> list[list[LogicalNode]]:
    """Every node in exactly one chain, chains in the order of their first operator in the pipeline.

    Two operators are chained if a forward, pipelined edge is all that leaves the one and all that enters the
    other. An operator whose side output is read ends its chain: rows leave a chain only at its last operator.
    """
    leaving: dict[LogicalNode, list[ResolvedEdge]] = defaultdict(list)
    entering: dict[LogicalNode, list[ResolvedEdge]] = defaultdict(list)
    for edge in edges:
        leaving[edge.logical.producer].append(edge)
        entering[edge.logical.consumer].append(edge)
    following = {
        node: out[0].logical.consumer
        for node, out in leaving.items()
        if len(out) == 1 and len(entering[out[0].logical.consumer]) == 1 and _can_chain(out[0])
    }
    continued = set(following.values())
    return [_follow(node, following) for node in graph.nodes if node not in continued]


def _can_chain(edge: ResolvedEdge) -> bool:
    return (
        edge.partitioning is Partitioning.FORWARD
        and edge.exchange is Exchange.PIPELINED
        and edge.logical.tag is None
        and edge.logical.port == 0
        and not edge.logical.feedback
    )


def _follow(node: LogicalNode, following: dict[LogicalNode, LogicalNode]) -> list[LogicalNode]:
    chain = [node]
    while chain[-1] in following:
        chain.append(following[chain[-1]])
    return chain
