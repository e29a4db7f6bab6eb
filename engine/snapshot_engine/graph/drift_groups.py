"""Which sources keep together in event time: those with a `max_drift` whose rows may meet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from snapshot_engine.graph.job_graph import Exchange, JobGraph, JobVertex, OperatorNode, Partitioning
from snapshot_engine.graph.problems import Problem


@dataclass(frozen=True)
class DriftGroup:
    vertices: frozenset[str]
    drift_ms: int
    """The smallest that was declared among them."""


def drift_groups(graph: JobGraph) -> list[DriftGroup]:
    """Sources are together when edges lead from one to the other, in whatever direction; across a blocking exchange
    nobody runs at the same time.
    """
    parent = {uid: uid for uid in graph.vertices}

    def find(uid: str) -> str:
        while parent[uid] != uid:
            uid = parent[uid]
        return uid

    for edge in graph.edges:
        if edge.exchange is not Exchange.BLOCKING:
            parent[find(edge.consumer)] = find(edge.producer)
    drifts: dict[str, dict[str, int]] = {}
    for uid, vertex in graph.vertices.items():
        if vertex.is_source and (declared := _declaring(vertex)):
            drifts.setdefault(find(uid), {})[uid] = min(node.max_drift_ms or 0 for node in declared)
    return [DriftGroup(frozenset(group), min(group.values())) for group in drifts.values()]


def check_drifts(graph: JobGraph) -> Iterator[Problem]:
    """A drift holds a source back, so it has to be declared where the source is, and nobody may wait for its end."""
    for vertex in graph.vertices.values():
        declared = _declaring(vertex)
        for node in declared:
            if not vertex.is_source:
                yield _problem(
                    node,
                    "max_drift makes the splits of a source wait for each other, but this operator is not in one "
                    "chain with a source: call with_watermark right behind the source, with its parallelism",
                )
        if len(declared) > 1:
            yield _problem(declared[1], f"{declared[0].name!r} has declared a max_drift for this source already")
        if declared and vertex.is_source and _feeds_blocking(graph, vertex.uid):
            yield _problem(
                declared[0],
                "max_drift would have this source wait for others, while they may wait for the blocking result that "
                "it feeds: leave max_drift out, or use another exchange",
            )


def check_split_times(graph: JobGraph) -> Iterator[Problem]:
    """Splits are read at different speeds: the time of their rows taken together is that of the quickest one."""
    for vertex in graph.vertices.values():
        first = next((node for node in vertex.operators if node.makes_watermarks), None)
        if first is None or vertex.is_source or not (source := _untimed_source(graph, vertex)):
            continue
        yield _problem(
            first,
            f"{_why_apart(graph, source, vertex)}, so with_watermark is not in one chain with the source and its "
            "splits have no watermark of their own: rows of a split that is behind the others are late, and windows "
            "drop them. Call with_watermark once, right behind the source, with its parallelism, and branch behind it",
        )


def _untimed_source(graph: JobGraph, vertex: JobVertex) -> JobVertex | None:
    """One whose rows come to `vertex` without a watermark."""
    seen = {vertex.uid}
    waiting = [vertex]
    while waiting:
        for edge in graph.inputs_of(waiting.pop().uid):
            producer = graph.vertices[edge.producer]
            if producer.uid in seen or any(node.makes_watermarks for node in producer.operators):
                continue
            if producer.is_source:
                return producer
            seen.add(producer.uid)
            waiting.append(producer)
    return None


def _why_apart(graph: JobGraph, source: JobVertex, vertex: JobVertex) -> str:
    between = [edge for edge in graph.inputs_of(vertex.uid) if edge.producer == source.uid]
    if between and between[0].partitioning is Partitioning.FORWARD and len(graph.outputs_of(source.uid)) > 1:
        return f"{source.operators[-1].name!r} has another consumer"
    if between and source.parallelism != vertex.parallelism:
        return f"{source.name!r} has another parallelism"
    return f"{source.name!r} is behind an exchange"


def check_idleness(graph: JobGraph) -> Iterator[Problem]:
    """Only where the source is it is known whether it was asked for rows."""
    for vertex in graph.vertices.values():
        for node in vertex.operators:
            if node.takes_silence_for_idle and not vertex.is_source:
                yield _problem(
                    node,
                    "idle_timeout would take back pressure for silence here, and a source that is being restarted too: "
                    "rows that come afterwards may be late. Call with_watermark right behind the source, with its "
                    "parallelism, and branch behind it",
                )


def _declaring(vertex: JobVertex) -> list[OperatorNode]:
    return [node for node in vertex.operators if node.max_drift_ms is not None]


def _feeds_blocking(graph: JobGraph, vertex: str) -> bool:
    seen: set[str] = set()
    waiting = [vertex]
    while waiting:
        uid = waiting.pop()
        if uid in seen:
            continue
        seen.add(uid)
        for edge in graph.outputs_of(uid):
            if edge.exchange is Exchange.BLOCKING:
                return True
            waiting.append(edge.consumer)
    return False


def _problem(node: OperatorNode, message: str) -> Problem:
    return Problem(message, node.name, node.location)
