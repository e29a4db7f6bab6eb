"""Small jobs: vertices, edges with their exchanges, and the regions they make."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.exchanges import Exchange


class Kind(Enum):
    SOURCE = "source"
    STEP = "step"  # counts in its state what passes through; with two inputs, a connect or a union
    WINDOW = "window"  # keeps records until the watermark has passed their window's end
    SINK = "sink"
    HEAD = "head"  # of a loop: a step that feedback edges return to
    BODY = "body"  # of a loop: sends round again what has not gone round often enough


class Split(Enum):
    """Which consumer subtask gets a record."""

    FORWARD = "forward"
    HASH = "hash"
    REBALANCE = "rebalance"  # whole batches in turn: not the same after a restart
    BROADCAST = "broadcast"


@dataclass(frozen=True)
class Vertex:
    name: str
    kind: Kind
    parallelism: int


@dataclass(frozen=True)
class Edge:
    id: int
    producer: Vertex
    consumer: Vertex
    split: Split
    exchange: Exchange
    feedback: bool = False

    def channels(self) -> list[ChannelId]:
        return self._channels

    @cached_property
    def _channels(self) -> list[ChannelId]:
        if self.split is Split.FORWARD:
            return [ChannelId(self.id, index, index) for index in range(self.producer.parallelism)]
        consumers = range(self.consumer.parallelism)
        return [ChannelId(self.id, p, c) for p in range(self.producer.parallelism) for c in consumers]


@dataclass
class Topology:
    vertices: list[Vertex]
    edges: list[Edge]
    multiplicity: dict[str, dict[str, int]] = field(default_factory=dict)
    """How often each record of a source (or marker of a window) passes through a vertex."""

    def __post_init__(self) -> None:
        self.subtasks = [SubtaskId(v.name, i) for v in self.vertices for i in range(v.parallelism)]
        self.vertex = {v.name: v for v in self.vertices}
        self.inputs: dict[SubtaskId, list[tuple[Edge, ChannelId]]] = defaultdict(list)
        self.outputs: dict[SubtaskId, list[Edge]] = defaultdict(list)
        for edge in self.edges:
            for channel in edge.channels():
                self.inputs[SubtaskId(edge.consumer.name, channel.consumer)].append((edge, channel))
            for index in range(edge.producer.parallelism):
                self.outputs[SubtaskId(edge.producer.name, index)].append(edge)
        self.region_of = _regions(self)
        self.regions: dict[int, list[SubtaskId]] = defaultdict(list)
        for subtask, region in self.region_of.items():
            self.regions[region].append(subtask)
        self._count_multiplicity()

    def aligned_inputs(self, subtask: SubtaskId) -> list[ChannelId]:
        """The channels that bring barriers: those of a committed edge do not."""
        inputs = self.inputs[subtask]
        return [c for edge, c in inputs if edge.exchange is not Exchange.COMMITTED and not edge.feedback]

    def feedback_inputs(self, subtask: SubtaskId) -> list[ChannelId]:
        return [c for edge, c in self.inputs[subtask] if edge.feedback]

    def loop_heads(self) -> list[Vertex]:
        return [vertex for vertex in self.vertices if vertex.kind is Kind.HEAD]

    def loop_regions(self) -> list[int]:
        """Regions with a loop inside."""
        heads = {vertex.name for vertex in self.loop_heads()}
        return sorted({region for subtask, region in self.region_of.items() if subtask.vertex in heads})

    def triggered(self) -> list[SubtaskId]:
        """Sources, and subtasks that read nothing but committed edges."""
        return [subtask for subtask in self.subtasks if not self.aligned_inputs(subtask)]

    def slots(self, region: int) -> list[int]:
        return sorted({subtask.index for subtask in self.regions[region]})

    def cut_edges(self) -> list[tuple[Edge, ChannelId, int, int]]:
        """Every channel between two regions, with the regions of its producer and its consumer."""
        return self._cut_edges

    @cached_property
    def _cut_edges(self) -> list[tuple[Edge, ChannelId, int, int]]:
        found = []
        for edge in self.edges:
            if edge.exchange is Exchange.PIPELINED:
                continue
            for channel in edge.channels():
                producer = self.region_of[SubtaskId(edge.producer.name, channel.producer)]
                consumer = self.region_of[SubtaskId(edge.consumer.name, channel.consumer)]
                if producer != consumer:
                    found.append((edge, channel, producer, consumer))
        return found

    def slot_keeps_logs(self, region: int, slot: int) -> bool:
        return any(
            edge.exchange.replays and SubtaskId(edge.producer.name, slot) in self.regions[region] for edge in self.edges
        )

    def deterministic_regions(self) -> list[int]:
        """Where planning would accept the declaration: one input channel throughout, nothing that depends on
        when watermarks come, no whole batches handed out in turn.
        """
        return [region for region, subtasks in self.regions.items() if all(map(self._is_deterministic, subtasks))]

    def _is_deterministic(self, subtask: SubtaskId) -> bool:
        if self.vertex[subtask.vertex].kind in (Kind.WINDOW, Kind.HEAD) or len(self.inputs[subtask]) > 1:
            return False
        return all(edge.split is not Split.REBALANCE for edge in self.outputs[subtask])

    def _count_multiplicity(self) -> None:
        for vertex in self.vertices:  # in topological order
            if vertex.kind is Kind.SOURCE:
                self.multiplicity[vertex.name] = {vertex.name: 1}
                continue
            times: dict[str, int] = defaultdict(int)
            for edge in self.edges:
                if edge.consumer is vertex and not edge.feedback:
                    copies = vertex.parallelism if edge.split is Split.BROADCAST else 1
                    for source, count in self.multiplicity[edge.producer.name].items():
                        times[source] += count * copies
            if vertex.kind is Kind.WINDOW:
                times[vertex.name] = 1  # its markers begin here
            self.multiplicity[vertex.name] = dict(times)

    def describe(self) -> str:
        edges = [
            f"{e.producer.name}({e.producer.parallelism})-{'feedback/' if e.feedback else ''}"
            f"{e.split.value}/{e.exchange.value}->"
            f"{e.consumer.name}({e.consumer.parallelism})"
            for e in self.edges
        ]
        return f"{'; '.join(edges)}; {len(self.regions)} regions"


def _regions(topology: Topology) -> dict[SubtaskId, int]:
    """Union-find over pipelined channels; regions that depend on each other in a cycle become one."""
    parent = {subtask: subtask for subtask in topology.subtasks}

    def find(subtask: SubtaskId) -> SubtaskId:
        while parent[subtask] != subtask:
            subtask = parent[subtask]
        return subtask

    cuts = []
    for edge in topology.edges:
        for channel in edge.channels():
            ends = SubtaskId(edge.producer.name, channel.producer), SubtaskId(edge.consumer.name, channel.consumer)
            if edge.exchange is Exchange.PIPELINED:
                parent[find(ends[1])] = find(ends[0])
            else:
                cuts.append(ends)
    while (cycle := _cycle([(find(p), find(c)) for p, c in cuts])) is not None:
        parent[find(cycle[1])] = find(cycle[0])
    numbers: dict[SubtaskId, int] = {}
    return {subtask: numbers.setdefault(find(subtask), len(numbers)) for subtask in topology.subtasks}


def _cycle(arrows: list[tuple[SubtaskId, SubtaskId]]) -> tuple[SubtaskId, SubtaskId] | None:
    """Two different groups that reach each other, if there are any."""
    successors: dict[SubtaskId, set[SubtaskId]] = defaultdict(set)
    for producer, consumer in arrows:
        if producer != consumer:
            successors[producer].add(consumer)
    reach = {start: _reachable(start, successors) for start in list(successors)}
    for start, reached in reach.items():
        for other in reached:
            if other != start and start in reach.get(other, ()):
                return start, other
    return None


def _reachable(start: SubtaskId, successors: dict[SubtaskId, set[SubtaskId]]) -> set[SubtaskId]:
    seen: set[SubtaskId] = set()
    frontier = [start]
    while frontier:
        for after in successors.get(frontier.pop(), ()):
            if after not in seen:
                seen.add(after)
                frontier.append(after)
    return seen
