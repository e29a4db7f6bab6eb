"""The execution graph: subtasks, channels, regions and slots, derived from the job graph alone."""

from __future__ import annotations

from snapshot_engine.graph.drift_groups import drift_groups
from snapshot_engine.graph.job_graph import JobEdge, JobGraph, Partitioning
from snapshot_engine.graph.loops import edges_inside_loops, edges_with_rounds
from snapshot_engine.graph.regions import Region as Region
from snapshot_engine.graph.regions import regions_of
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.exchanges import Exchange


def channels_of(edge: JobEdge, graph: JobGraph) -> list[ChannelId]:
    """Every producer-consumer pair of subtasks that `edge` connects."""
    producers = graph.vertices[edge.producer].parallelism
    return [channel for producer in range(producers) for channel in channels_from(edge, graph, producer)]


def channels_from(edge: JobEdge, graph: JobGraph, producer: int) -> list[ChannelId]:
    """The channels of `edge` that leave the producer's subtask `producer`, in the order of the consumers."""
    if edge.partitioning is Partitioning.FORWARD:
        return [ChannelId(edge.id, producer, producer)]
    return [ChannelId(edge.id, producer, c) for c in range(graph.vertices[edge.consumer].parallelism)]


def channels_to(edge: JobEdge, graph: JobGraph, consumer: int) -> list[ChannelId]:
    """The channels of `edge` that enter the consumer's subtask `consumer`, in the order of the producers."""
    if edge.partitioning is Partitioning.FORWARD:
        return [ChannelId(edge.id, consumer, consumer)]
    return [ChannelId(edge.id, p, consumer) for p in range(graph.vertices[edge.producer].parallelism)]


class InputChannels(dict[SubtaskId, list[ChannelId]]):
    """The input channels of each subtask, listed when they are first asked for.

    A job of 10,000 subtasks may have 25 million channels; a slot needs those of its own subtasks only, and
    the graph is shipped to every slot.
    """

    def __init__(self, graph: JobGraph) -> None:
        super().__init__()
        self._graph = graph

    def __missing__(self, subtask: SubtaskId) -> list[ChannelId]:
        edges = self._graph.inputs_of(subtask.vertex)
        self[subtask] = [channel for edge in edges for channel in channels_to(edge, self._graph, subtask.index)]
        return self[subtask]

    def __reduce__(self) -> tuple[type[InputChannels], tuple[JobGraph]]:
        return (InputChannels, (self._graph,))


class OutputChannels(dict[SubtaskId, list[ChannelId]]):
    """The output channels of each subtask, listed when they are first asked for."""

    def __init__(self, graph: JobGraph) -> None:
        super().__init__()
        self._graph = graph

    def __missing__(self, subtask: SubtaskId) -> list[ChannelId]:
        edges = self._graph.outputs_of(subtask.vertex)
        self[subtask] = [channel for edge in edges for channel in channels_from(edge, self._graph, subtask.index)]
        return self[subtask]

    def __reduce__(self) -> tuple[type[OutputChannels], tuple[JobGraph]]:
        return (OutputChannels, (self._graph,))


class ExecutionGraph:
    """Looked up by the runtime and by failover; nothing in it changes while a job runs."""

    def __init__(self, graph: JobGraph) -> None:
        self.graph = graph
        self.edges = {edge.id: edge for edge in graph.edges}
        self.subtasks = [
            SubtaskId(vertex.uid, index) for vertex in graph.vertices.values() for index in range(vertex.parallelism)
        ]
        self.inputs = InputChannels(graph)
        self.outputs = OutputChannels(graph)
        self.regions = regions_of(graph)
        self.drift_groups = drift_groups(graph)
        self.round_edges = edges_with_rounds(graph)
        self.loop_vertices = frozenset(edge.consumer for edge in edges_inside_loops(graph.edges))
        self.region_of = {subtask: region for region in self.regions for subtask in region.subtasks}

    def __reduce__(self) -> tuple[type[ExecutionGraph], tuple[JobGraph]]:
        """Shipped as the job graph alone: the rest follows from it."""
        return (ExecutionGraph, (self.graph,))

    def producer_of(self, channel: ChannelId) -> SubtaskId:
        return SubtaskId(self.edges[channel.edge].producer, channel.producer)

    def consumer_of(self, channel: ChannelId) -> SubtaskId:
        return SubtaskId(self.edges[channel.edge].consumer, channel.consumer)

    def exchange_of(self, edge: JobEdge) -> Exchange:
        """What the edge really does: one whose two ends are in one region all the same has nothing to keep."""
        producer, consumer = SubtaskId(edge.producer, 0), SubtaskId(edge.consumer, 0)
        within = self.region_of[producer] is self.region_of[consumer]
        return Exchange.PIPELINED if within else edge.exchange

    def aligned_inputs(self, subtask: SubtaskId) -> list[ChannelId]:
        """The input channels that bring barriers: those of stored exchanges do not."""
        edges = self.graph.inputs_of(subtask.vertex)
        crossed = {edge.id for edge in edges if not self.exchange_of(edge).stored}
        return [channel for channel in self.inputs[subtask] if channel.edge in crossed]

    def barriers_from(self, subtask: SubtaskId) -> set[SubtaskId]:
        """Whose barriers a subtask's snapshot waits for. A loop's own way back is not waited for."""
        channels = self.aligned_inputs(subtask)
        return {self.producer_of(channel) for channel in channels if not self.edges[channel.edge].feedback}

    def triggered(self) -> list[SubtaskId]:
        """Where checkpoints begin: sources, and subtasks that read nothing but stored exchanges."""
        crossed = [edge for edge in self.graph.edges if not edge.feedback and not self.exchange_of(edge).stored]
        aligned = {edge.consumer for edge in crossed}
        return [subtask for subtask in self.subtasks if subtask.vertex not in aligned]
