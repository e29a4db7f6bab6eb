"""What stored exchanges add to a manifest: the segments that its readers still need, each with its reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobEdge
from snapshot_engine.protocol.committed_exchange import Segment, SegmentPosition, segments_of_manifest
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.runtime.exchanges.stored_segments import (
    ReadState,
    StreamId,
    WrittenState,
    read_uid,
    written_uid,
)
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot

Snapshots = dict[SubtaskId, SubtaskSnapshot]
ByStream = dict[StreamId, tuple[Segment, ...]]


@dataclass(frozen=True, slots=True)
class Placed:
    snapshots: Snapshots
    published: Mapping[ChannelId, tuple[Segment, ...]]
    """What becomes visible with this checkpoint, and was not before."""


def place_segments(snapshots: Snapshots, latest: Manifest | None, graph: ExecutionGraph) -> Placed:
    """Move what writers have sealed to its readers, with what `latest` named and they have not read."""
    changed = dict(snapshots)
    published: dict[ChannelId, tuple[Segment, ...]] = {}
    for edge in graph.graph.edges:
        if graph.exchange_of(edge).stored:
            _place_edge(edge, graph, changed, _visible(edge, latest), published)
    return Placed(changed, published)


def sealed_by(snapshot: SubtaskSnapshot, edge: JobEdge, producer: int) -> ByStream:
    """What one writer names, by stream."""
    state = _operator(snapshot, written_uid(edge))
    if state is None:
        return {}
    written = WrittenState.from_state(state, edge.id, producer)
    found: ByStream = {}
    for segment in written.sealed:
        stream = StreamId(producer, segment.channel.consumer, written.lineage)
        found[stream] = (*found.get(stream, ()), segment)
    return found


def _place_edge(
    edge: JobEdge,
    graph: ExecutionGraph,
    snapshots: Snapshots,
    visible: ByStream,
    published: dict[ChannelId, tuple[Segment, ...]],
) -> None:
    sealed: ByStream = {}
    for index in range(graph.graph.vertices[edge.producer].parallelism):
        writer = SubtaskId(edge.producer, index)
        sealed.update(sealed_by(snapshots[writer], edge, index))
        if edge.exchange is not Exchange.BLOCKING:  # a whole result stays: Spark may be asked for it at any time
            snapshots[writer] = _without_sealed(snapshots[writer], edge, index)
    for index in range(graph.graph.vertices[edge.consumer].parallelism):
        reader = SubtaskId(edge.consumer, index)
        named = _named(snapshots[reader], edge, visible, sealed)
        snapshots[reader] = _with_segments(snapshots[reader], edge, named)
        for stream in named.keys() & sealed.keys():
            known = {segment.number for segment in visible.get(stream, ())}
            new = tuple(segment for segment in named[stream] if segment.number not in known)
            published[ChannelId(edge.id, stream.producer, stream.consumer)] = new


def _visible(edge: JobEdge, latest: Manifest | None) -> ByStream:
    """What the latest completed checkpoint named, whichever reader it belongs to: a change of parallelism moves it."""
    vertex = latest.vertices.get(edge.consumer) if latest is not None else None
    merged: dict[StreamId, dict[int, Segment]] = {}
    for snapshot in vertex.subtasks.values() if vertex is not None else ():
        state = _operator(snapshot, read_uid(edge))
        for stream, segments in ReadState.from_state(state, edge.id).segments.items() if state is not None else ():
            merged.setdefault(stream, {}).update({segment.number: segment for segment in segments})
    return {stream: tuple(numbered[n] for n in sorted(numbered)) for stream, numbered in merged.items()}


def _named(snapshot: SubtaskSnapshot, edge: JobEdge, visible: ByStream, sealed: ByStream) -> ByStream:
    """The segments that this reader has not read to their end."""
    state = _operator(snapshot, read_uid(edge))
    positions: dict[StreamId, SegmentPosition] = {}
    for each in ReadState.from_state(state, edge.id).positions if state is not None else ():
        # Of one stream, read with several filters, the furthest behind counts.
        positions[each.stream] = min(each.position, positions.get(each.stream, each.position))
    return segments_of_manifest(visible, sealed, positions)


def _with_segments(snapshot: SubtaskSnapshot, edge: JobEdge, named: ByStream) -> SubtaskSnapshot:
    state = _operator(snapshot, read_uid(edge))
    if state is None:
        return snapshot
    return _replaced(snapshot, replace(ReadState.from_state(state, edge.id), segments=named).to_state(state.uid))


def _without_sealed(snapshot: SubtaskSnapshot, edge: JobEdge, producer: int) -> SubtaskSnapshot:
    state = _operator(snapshot, written_uid(edge))
    if state is None:
        return snapshot
    written = WrittenState.from_state(state, edge.id, producer)
    return _replaced(snapshot, replace(written, sealed=()).to_state(state.uid))


def _operator(snapshot: SubtaskSnapshot, uid: str) -> OperatorState | None:
    return next((state for state in snapshot.operators if state.uid == uid), None)


def _replaced(snapshot: SubtaskSnapshot, new: OperatorState) -> SubtaskSnapshot:
    operators = tuple(new if state.uid == new.uid else state for state in snapshot.operators)
    return replace(snapshot, operators=operators)
