"""What lies inside a loop: worked out from the feedback edges, for logical graphs and job graphs alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Protocol, TypeVar

from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.graph.logical import LogicalGraph, LogicalNode


class _Edge(Protocol):
    @property
    def producer(self) -> Hashable: ...
    @property
    def consumer(self) -> Hashable: ...
    @property
    def feedback(self) -> bool: ...


E = TypeVar("E", bound=_Edge)


def edges_inside_loops(edges: Collection[E]) -> list[E]:
    """The edges on some way from a head to one of its feedback edges, and these themselves."""
    after = _neighbours((edge.producer, edge.consumer) for edge in edges if not edge.feedback)
    before = _neighbours((edge.consumer, edge.producer) for edge in edges if not edge.feedback)
    inside: list[E] = []
    for feedback in [edge for edge in edges if edge.feedback]:
        on_the_way = reachable(feedback.consumer, after) & reachable(feedback.producer, before)
        inside += [
            edge
            for edge in edges
            if edge is feedback or (not edge.feedback and edge.producer in on_the_way and edge.consumer in on_the_way)
        ]
    return inside


def edges_with_rounds(graph: JobGraph) -> frozenset[int]:
    """The edges that are told the end of a round: all behind the head of a loop with rounds, and back to it."""
    heads = {vertex.uid for vertex in graph.vertices.values() if vertex.loop is not None and vertex.loop.rounds}
    stay = [edge for edge in graph.edges if not edge.exchange.cuts_regions]
    after = _neighbours((edge.producer, edge.consumer) for edge in stay if not edge.feedback)
    behind = {vertex for head in heads for vertex in reachable(head, after)}
    return frozenset(edge.id for edge in stay if edge.producer in behind)


def comes_from(graph: LogicalGraph, node: LogicalNode, head: LogicalNode) -> bool:
    """Whether `node` is `head`, or lies behind it."""
    return head in reachable(node, _neighbours((e.consumer, e.producer) for e in graph.edges if not e.feedback))


def reachable(start: Hashable, neighbours: Mapping[Hashable, Iterable[Hashable]]) -> set[Hashable]:
    """`start` and all that can be reached from it."""
    seen: set[Hashable] = set()
    waiting = [start]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(neighbours.get(node, ()))
    return seen


def _neighbours(arcs: Iterable[tuple[Hashable, Hashable]]) -> Mapping[Hashable, list[Hashable]]:
    found: dict[Hashable, list[Hashable]] = defaultdict(list)
    for start, end in arcs:
        found[start].append(end)
    return found
