"""From a manifest to what the ends of cut edges are given at their start, also for another parallelism.

If the parallelism of either side has changed, both begin anew: logs at number 0, stored exchanges with a new lineage.
What had been sealed and not read is then dealt out among the new readers: by key group, or else by channel.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobEdge, Partitioning
from snapshot_engine.protocol.committed_exchange import Segment
from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.runtime.exchanges.stored_segments import (
    ReadState,
    StreamId,
    StreamPosition,
    publication,
    read_uid,
    written_uid,
)
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.storage.manifest import Manifest, VertexSnapshot

LOGGED = "exchange-log"

Results = Mapping[int, Mapping[StreamId, tuple[Segment, ...]]]
"""Blocking results that are whole, by edge: perhaps no manifest names them yet."""


class ExchangeRestore:
    def __init__(self, manifest: Manifest | None, graph: ExecutionGraph) -> None:
        self._manifest = manifest
        self._graph = graph

    def for_subtask(self, subtask: SubtaskId, results: Results | None = None) -> dict[str, Any]:
        outputs = self._cut(self._graph.graph.outputs_of(subtask.vertex))
        inputs = self._cut(self._graph.graph.inputs_of(subtask.vertex))
        known = results or {}
        return {
            "out": {str(edge.id): self._out(edge, subtask.index) for edge in outputs},
            "in": {str(edge.id): self._in(edge, subtask.index, known.get(edge.id, {})) for edge in inputs},
        }

    def names(self) -> set[str]:
        """The uids under which manifests of this graph name what edges keep."""
        edges = [edge for edge in self._cut(self._graph.graph.edges) if self._graph.exchange_of(edge).stored]
        return {uid for edge in edges for uid in (written_uid(edge), read_uid(edge))}

    def begun_anew(self, vertex: str) -> set[str]:
        """The uids under which a subtask that had finished counts channels that there are no more: their records are
        part of the state of whoever read them."""
        graph = self._graph.graph
        edges = self._cut([*graph.outputs_of(vertex), *graph.inputs_of(vertex)])
        logged = [edge for edge in edges if self._graph.exchange_of(edge).replays and self._rescaled(edge)]
        return {uid for edge in logged for uid in (written_uid(edge), read_uid(edge))}

    def _cut(self, edges: Iterable[JobEdge]) -> list[JobEdge]:
        return [edge for edge in edges if self._graph.exchange_of(edge) is not Exchange.PIPELINED]

    def _out(self, edge: JobEdge, index: int) -> dict[str, Any]:
        state = None if self._rescaled(edge) else _state_of(self._stored(edge.producer), index, written_uid(edge))
        numbers = state.meta["numbers"] if state is not None else []
        return {"lineage": self._lineage(edge), "numbers": numbers}

    def _in(self, edge: JobEdge, index: int, results: Mapping[StreamId, tuple[Segment, ...]]) -> dict[str, Any]:
        if self._graph.exchange_of(edge).replays:
            state = None if self._rescaled(edge) else _state_of(self._stored(edge.consumer), index, read_uid(edge))
            return {"numbers": state.meta["numbers"] if state is not None else []}
        old = self._read_states(edge)
        if self._rescaled(edge):
            positions = self._dealt_out(edge, index, old)
        else:
            positions = list(old[index].positions) if index in old else []
        segments: dict[StreamId, tuple[Segment, ...]] = {}
        for read in old.values():
            segments.update(read.segments)
        segments.update(results)  # also those that were lost since the checkpoint, and made again
        wanted = {position.stream for position in positions}
        wanted |= {stream for stream in results if stream.consumer == index}
        return {
            "lineage": self._lineage(edge),
            "positions": [position.to_json() for position in positions],
            "segments": [[*stream, publication(segments[stream])] for stream in wanted if stream in segments],
            "ended": self._rescaled(edge) and self._producers_had_finished(edge),
        }

    def _lineage(self, edge: JobEdge) -> int:
        """Changes whenever channels do, so that numbers and names are never used twice."""
        if self._manifest is None:
            return 0
        if self._rescaled(edge):
            return self._manifest.checkpoint
        consumers = self._stored(edge.consumer)
        states = _states(consumers, read_uid(edge)).values() if consumers is not None else ()
        return next((int(state.meta["lineage"]) for state in states if "lineage" in state.meta), 0)

    def _rescaled(self, edge: JobEdge) -> bool:
        if self._manifest is None:
            return False
        return any(self._parallelism_changed(vertex) for vertex in (edge.producer, edge.consumer))

    def _parallelism_changed(self, vertex: str) -> bool:
        stored = self._stored(vertex)
        return stored is None or stored.parallelism != self._graph.graph.vertices[vertex].parallelism

    def _producers_had_finished(self, edge: JobEdge) -> bool:
        stored = self._stored(edge.producer)
        return stored is not None and all(subtask.finished for subtask in stored.subtasks.values())

    def _read_states(self, edge: JobEdge) -> dict[int, ReadState]:
        states = _states(self._stored(edge.consumer), read_uid(edge))
        return {index: ReadState.from_state(state, edge.id) for index, state in states.items()}

    def _dealt_out(self, edge: JobEdge, index: int, old: Mapping[int, ReadState]) -> list[StreamPosition]:
        parallelism = self._graph.graph.vertices[edge.consumer].parallelism
        if edge.partitioning is Partitioning.HASH:
            return [
                StreamPosition(each.stream, each.position, (*each.filters, (index, parallelism)))
                for state in old.values()
                for each in state.positions
            ]
        if edge.partitioning is Partitioning.BROADCAST:
            mine = [index % len(old)] if old else []
        else:
            mine = [reader for reader in old if reader % parallelism == index]
        return [position for reader in mine if reader in old for position in old[reader].positions]

    def _stored(self, vertex: str) -> VertexSnapshot | None:
        return self._manifest.vertices.get(vertex) if self._manifest is not None else None


def _states(vertex: VertexSnapshot | None, uid: str) -> dict[int, OperatorState]:
    if vertex is None:
        return {}
    return {
        index: state for index, snapshot in vertex.subtasks.items() for state in snapshot.operators if state.uid == uid
    }


def _state_of(vertex: VertexSnapshot | None, index: int, uid: str) -> OperatorState | None:
    return _states(vertex, uid).get(index)
