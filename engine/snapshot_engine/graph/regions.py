"""Regions: what fails and restarts together.

Works on edges instead of on channels: an all-to-all edge between two vertices of 5,000 subtasks has 25
million channels, but all it does to regions is to join 10,000 subtasks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from snapshot_engine.graph.job_graph import JobEdge, JobGraph, Partitioning
from snapshot_engine.protocol.elements import SubtaskId


@dataclass(frozen=True)
class Region:
    """A maximal set of subtasks connected by pipelined exchanges."""

    id: int
    subtasks: frozenset[SubtaskId]

    def slots(self) -> list[int]:
        """The indexes of the slots: slot i hosts subtask i of every vertex of the region."""
        return sorted({subtask.index for subtask in self.subtasks})

    def hosted_by(self, slot: int) -> list[SubtaskId]:
        return sorted(subtask for subtask in self.subtasks if subtask.index == slot)

    def vertices(self) -> list[str]:
        return sorted({subtask.vertex for subtask in self.subtasks})

    def last_vertices(self, graph: JobGraph) -> frozenset[str]:
        """Those that hand nothing on inside the region: what comes to them leaves it."""
        inside = set(self.vertices())
        handing_on = {edge.producer for edge in graph.edges if edge.consumer in inside and not edge.feedback}
        return frozenset(inside - handing_on)


def regions_of(graph: JobGraph) -> list[Region]:
    """In the order of their first subtask. Regions that depend on each other in a cycle are one."""
    numbers = _Numbering(graph)
    groups = _DisjointSets(numbers.count)
    for edge in graph.edges:
        if not cuts(edge):
            _join_ends(edge, numbers, groups)
    _merge_cycles([edge for edge in graph.edges if cuts(edge)], numbers, groups)
    members: dict[int, list[SubtaskId]] = defaultdict(list)
    for number, subtask in enumerate(numbers.subtasks()):
        members[groups.find(number)].append(subtask)
    return [Region(number, frozenset(subtasks)) for number, subtasks in enumerate(members.values())]


def cuts(edge: JobEdge) -> bool:
    """Whether the two ends of `edge` may restart apart. A loop is always one region."""
    return edge.exchange.cuts_regions and not edge.feedback


class _Numbering:
    """Subtasks as consecutive numbers, vertex by vertex."""

    def __init__(self, graph: JobGraph) -> None:
        self._graph = graph
        self._first: dict[str, int] = {}
        self.count = 0
        for vertex in graph.vertices.values():
            self._first[vertex.uid] = self.count
            self.count += vertex.parallelism

    def of(self, vertex: str) -> range:
        first = self._first[vertex]
        return range(first, first + self._graph.vertices[vertex].parallelism)

    def subtasks(self) -> Iterator[SubtaskId]:
        for vertex in self._graph.vertices.values():
            for index in range(vertex.parallelism):
                yield SubtaskId(vertex.uid, index)


def _join_ends(edge: JobEdge, numbers: _Numbering, groups: _DisjointSets) -> None:
    producers, consumers = numbers.of(edge.producer), numbers.of(edge.consumer)
    if edge.partitioning is Partitioning.FORWARD:
        for producer, consumer in zip(producers, consumers, strict=True):
            groups.join(producer, consumer)
    else:
        for member in (*producers, *consumers):
            groups.join(producers[0], member)


def _merge_cycles(cut: Iterable[JobEdge], numbers: _Numbering, groups: _DisjointSets) -> None:
    """Join the groups of every cycle of dependencies.

    An all-to-all edge becomes one node between its producers and its consumers, numbered below zero: the same
    paths with p + c arcs in place of p × c.
    """
    successors: dict[int, set[int]] = defaultdict(set)
    for number, edge in enumerate(cut):
        producers, consumers = numbers.of(edge.producer), numbers.of(edge.consumer)
        if edge.partitioning is Partitioning.FORWARD:
            for producer, consumer in zip(producers, consumers, strict=True):
                successors[groups.find(producer)].add(groups.find(consumer))
        else:
            middle = -1 - number
            for producer in producers:
                successors[groups.find(producer)].add(middle)
            successors[middle] = {groups.find(consumer) for consumer in consumers}
    for component in strongly_connected(successors):
        inside = [node for node in component if node >= 0]
        for other in inside[1:]:
            groups.join(inside[0], other)


def strongly_connected(successors: Mapping[int, Iterable[int]]) -> list[Sequence[int]]:
    """Tarjan's algorithm without recursion: the components of more than one node."""
    order: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[Sequence[int]] = []
    for root in list(successors):
        if root in order:
            continue
        work: list[tuple[int, Iterator[int]]] = [(root, iter(successors.get(root, ())))]
        order[root] = low[root] = len(order)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for following in rest:
                if following not in order:
                    order[following] = low[following] = len(order)
                    stack.append(following)
                    on_stack.add(following)
                    work.append((following, iter(successors.get(following, ()))))
                    break
                if following in on_stack:
                    low[node] = min(low[node], order[following])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == order[node]:
                    component = _pop_component(node, stack, on_stack)
                    if len(component) > 1:
                        found.append(component)
    return found


def _pop_component(root: int, stack: list[int], on_stack: set[int]) -> list[int]:
    component = []
    while True:
        node = stack.pop()
        on_stack.discard(node)
        component.append(node)
        if node == root:
            return component


class _DisjointSets:
    def __init__(self, count: int) -> None:
        self._parent = list(range(count))

    def find(self, member: int) -> int:
        parent = self._parent
        while parent[member] != member:
            parent[member] = parent[parent[member]]
            member = parent[member]
        return member

    def join(self, a: int, b: int) -> None:
        root_a, root_b = self.find(a), self.find(b)
        if root_a != root_b:
            # The smaller number is the root, so that regions are numbered in the order of their first
            # subtask.
            self._parent[max(root_a, root_b)] = min(root_a, root_b)
