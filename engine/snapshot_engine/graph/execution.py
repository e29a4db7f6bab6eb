"""The execution graph: subtasks, channels, regions and slots, derived from the job graph alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from snapshot_engine.graph.job_graph import JobEdge, JobGraph, Partitioning
from snapshot_engine.protocol.elements import ChannelId, SubtaskId


def channels_of(edge: JobEdge, graph: JobGraph) -> list[ChannelId]:
    """Every producer-consumer pair of subtasks that `edge` connects."""
    producers = graph.vertices[edge.producer].parallelism
    consumers = graph.vertices[edge.consumer].parallelism
    if edge.partitioning is Partitioning.FORWARD:
        return [ChannelId(edge.id, index, index) for index in range(producers)]
    return [ChannelId(edge.id, p, c) for p in range(producers) for c in range(consumers)]


@dataclass(frozen=True)
class Region:
    """A maximal set of subtasks connected by pipelined exchanges: what fails and restarts together."""

    id: int
    subtasks: frozenset[SubtaskId]

    def slots(self) -> list[int]:
        """The indexes of the slots: slot i hosts subtask i of every vertex of the region."""
        return sorted({subtask.index for subtask in self.subtasks})

    def hosted_by(self, slot: int) -> list[SubtaskId]:
        return sorted(subtask for subtask in self.subtasks if subtask.index == slot)

    def vertices(self) -> list[str]:
        return sorted({subtask.vertex for subtask in self.subtasks})


class ExecutionGraph:
    """Looked up by the runtime and by failover; nothing in it changes while a job runs."""

    def __init__(self, graph: JobGraph) -> None:
        self.graph = graph
        self.edges = {edge.id: edge for edge in graph.edges}
        self.subtasks = [
            SubtaskId(vertex.uid, index) for vertex in graph.vertices.values() for index in range(vertex.parallelism)
        ]
        self.inputs: dict[SubtaskId, list[ChannelId]] = defaultdict(list)
        self.outputs: dict[SubtaskId, list[ChannelId]] = defaultdict(list)
        for edge in graph.edges:
            for channel in channels_of(edge, graph):
                self.outputs[SubtaskId(edge.producer, channel.producer)].append(channel)
                self.inputs[SubtaskId(edge.consumer, channel.consumer)].append(channel)
        self.regions = regions_of(graph, self.subtasks)
        self.region_of = {subtask: region for region in self.regions for subtask in region.subtasks}

    def producer_of(self, channel: ChannelId) -> SubtaskId:
        return SubtaskId(self.edges[channel.edge].producer, channel.producer)

    def consumer_of(self, channel: ChannelId) -> SubtaskId:
        return SubtaskId(self.edges[channel.edge].consumer, channel.consumer)

    def sources(self) -> list[SubtaskId]:
        return [subtask for subtask in self.subtasks if self.graph.vertices[subtask.vertex].is_source]


def regions_of(graph: JobGraph, subtasks: Iterable[SubtaskId]) -> list[Region]:
    """Union-find over pipelined channels. Regions that depend on each other in a cycle are merged into one."""
    groups = _DisjointSets(subtasks)
    cuts: list[tuple[SubtaskId, SubtaskId]] = []
    for edge in graph.edges:
        for channel in channels_of(edge, graph):
            producer = SubtaskId(edge.producer, channel.producer)
            consumer = SubtaskId(edge.consumer, channel.consumer)
            if edge.exchange.cuts_regions and not edge.feedback:
                cuts.append((producer, consumer))
            else:
                groups.join(producer, consumer)
    while _merge_cycles(groups, cuts):
        pass
    members: dict[SubtaskId, set[SubtaskId]] = defaultdict(set)
    order = list(subtasks)
    for subtask in order:
        members[groups.find(subtask)].add(subtask)
    seen: dict[SubtaskId, None] = {groups.find(subtask): None for subtask in order}
    return [Region(number, frozenset(members[root])) for number, root in enumerate(seen)]


def _merge_cycles(groups: _DisjointSets, cuts: list[tuple[SubtaskId, SubtaskId]]) -> bool:
    """Join the groups of one dependency cycle; False when there is none left."""
    successors: dict[SubtaskId, set[SubtaskId]] = defaultdict(set)
    for producer, consumer in cuts:
        a, b = groups.find(producer), groups.find(consumer)
        if a != b:
            successors[a].add(b)
    for start in list(successors):
        reached = _reachable(start, successors)
        for other in reached:
            if other != start and start in _reachable(other, successors):
                groups.join(start, other)
                return True
    return False


def _reachable(start: SubtaskId, successors: dict[SubtaskId, set[SubtaskId]]) -> set[SubtaskId]:
    seen: set[SubtaskId] = set()
    frontier = list(successors.get(start, ()))
    while frontier:
        node = frontier.pop()
        if node not in seen:
            seen.add(node)
            frontier.extend(successors.get(node, ()))
    return seen


class _DisjointSets:
    def __init__(self, members: Iterable[SubtaskId]) -> None:
        self._parent = {member: member for member in members}

    def find(self, member: SubtaskId) -> SubtaskId:
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def join(self, a: SubtaskId, b: SubtaskId) -> None:
        root_a, root_b = self.find(a), self.find(b)
        if root_a != root_b:
            self._parent[root_b] = root_a
