"""A planned job as people and programs want to see it: what runs, how rows travel, what restarts together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from snapshot_engine.graph.drift_groups import DriftGroup
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import Exchange, JobEdge, JobGraph, JobVertex
from snapshot_engine.graph.regions import Region, cuts
from snapshot_engine.wire.quantities import format_duration


@dataclass(frozen=True)
class OperatorView:
    uid: str
    name: str
    location: str
    stateful: bool


@dataclass(frozen=True)
class VertexView:
    uid: str
    name: str
    parallelism: int
    source: bool
    deterministic: bool
    operators: tuple[OperatorView, ...]
    loop: str | None = None
    """What it is to a loop, in words: its head; None for all others."""
    drift: str | None = None
    """How far it may be ahead of the slowest source, in words; None where it need not wait."""


@dataclass(frozen=True)
class EdgeView:
    id: int
    producer: str
    consumer: str
    partitioning: str
    keys: tuple[str, ...]
    exchange: str
    cuts: bool
    latency: str | None
    """What the exchange adds, in words; None if nothing."""
    port: int
    tag: str | None
    columns: tuple[str, ...] | None
    combined: bool
    """Whether rows of one key are combined before they are sent."""
    feedback: bool


@dataclass(frozen=True)
class RegionGroup:
    """Regions with the same vertices and the same number of slots: n-way parallel pipelines have n of them."""

    regions: tuple[int, ...]
    slots: int
    """Of each of them."""
    vertices: tuple[str, ...]
    cut_by: tuple[int, ...]
    """The edges that separate them from other regions."""


@dataclass(frozen=True)
class PlanView:
    job: str
    key_groups: int
    slots: int
    """Of all regions together: what the cluster must have free."""
    vertices: tuple[VertexView, ...]
    edges: tuple[EdgeView, ...]
    groups: tuple[RegionGroup, ...]
    latency: str | None
    """What the exchanges of the longest path add together, in words."""
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def vertex(self, uid: str) -> VertexView:
        return next(vertex for vertex in self.vertices if vertex.uid == uid)


def view_of(graph: JobGraph) -> PlanView:
    execution = ExecutionGraph(graph)
    interval = graph.options.get("checkpoint_interval")
    return PlanView(
        job=graph.name,
        key_groups=graph.key_groups,
        slots=sum(len(region.slots()) for region in execution.regions),
        vertices=tuple(_vertex_view(vertex, execution.drift_groups) for vertex in graph.vertices.values()),
        edges=tuple(_edge_view(edge, interval) for edge in graph.edges),
        groups=tuple(_groups(graph, execution.regions)),
        latency=_path_latency(graph, interval),
        warnings=graph.warnings,
    )


def _vertex_view(vertex: JobVertex, drift_groups: Iterable[DriftGroup]) -> VertexView:
    operators = tuple(
        OperatorView(operator.uid, operator.name, str(operator.location), operator.stateful)
        for operator in vertex.operators
    )
    return VertexView(
        vertex.uid,
        vertex.name,
        vertex.parallelism,
        vertex.is_source,
        vertex.declared_deterministic,
        operators,
        None if vertex.loop is None else f"head of a loop{' with rounds' if vertex.loop.rounds else ''}",
        next((_drift(group) for group in drift_groups if vertex.uid in group.vertices), None),
    )


def _drift(group: DriftGroup) -> str:
    return f"at most {format_duration(group.drift_ms / 1000)} ahead of the slowest"


def _edge_view(edge: JobEdge, interval: float | None) -> EdgeView:
    return EdgeView(
        edge.id,
        edge.producer,
        edge.consumer,
        edge.partitioning.value,
        edge.key_columns,
        edge.exchange.value,
        cuts(edge),
        _latency(edge.exchange, interval),
        edge.port,
        edge.tag,
        edge.columns,
        edge.combining is not None,
        edge.feedback,
    )


def _latency(exchange: Exchange, interval: float | None) -> str | None:
    if exchange is Exchange.COMMITTED:
        return f"up to one checkpoint interval{_in_seconds(1, interval)}"
    if exchange is Exchange.BLOCKING:
        return "the time until the producer has ended"
    return None


def _path_latency(graph: JobGraph, interval: float | None) -> str | None:
    """Of the path with the most committed exchanges: each waits for a checkpoint of its own."""
    hops = most_committed_hops(graph)
    if hops == 0:
        return None
    plural = "s" if hops > 1 else ""
    return f"{hops} committed hop{plural}: up to {hops} checkpoint interval{plural}{_in_seconds(hops, interval)}"


def most_committed_hops(graph: JobGraph) -> int:
    hops = dict.fromkeys(graph.vertices, 0)
    forward = [edge for edge in graph.edges if not edge.feedback]
    for _ in graph.vertices:
        before = dict(hops)
        for edge in forward:
            added = 1 if edge.exchange is Exchange.COMMITTED else 0
            hops[edge.consumer] = max(hops[edge.consumer], hops[edge.producer] + added)
        if hops == before:
            break
    return max(hops.values(), default=0)


def _in_seconds(hops: int, interval: float | None) -> str:
    return "" if interval is None else f" ({format_duration(hops * interval)})"


def _groups(graph: JobGraph, regions: Iterable[Region]) -> Iterable[RegionGroup]:
    alike: dict[tuple[tuple[str, ...], int], list[int]] = {}
    for region in regions:
        inside = set(region.vertices())
        vertices = tuple(uid for uid in graph.vertices if uid in inside)
        alike.setdefault((vertices, len(region.slots())), []).append(region.id)
    for (vertices, slots), numbers in alike.items():
        touching = [
            edge.id for edge in graph.edges if cuts(edge) and (edge.producer in vertices or edge.consumer in vertices)
        ]
        yield RegionGroup(tuple(numbers), slots, vertices, tuple(touching))
