"""Blocking results that are gone although a checkpoint says that their producers have finished.

Such a producer is not started from the checkpoint, where it has nothing left to do, but from its beginning. That must
not show anywhere else: nothing but blocking results may leave it, and what its readers had taken from the result before
the checkpoint must come again in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobEdge
from snapshot_engine.graph.region_checks import edge_name
from snapshot_engine.graph.regions import Region
from snapshot_engine.protocol.committed_exchange import BEGINNING
from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.runtime.exchanges.stored_segments import ReadState, read_uid
from snapshot_engine.storage.manifest import Manifest, VertexSnapshot


def had_finished(subtask: SubtaskId, manifest: Manifest) -> bool:
    """If not, a restart from the checkpoint makes again what is lost."""
    stored = manifest.vertices.get(subtask.vertex)
    return stored is not None and subtask.index in stored.subtasks and stored.subtasks[subtask.index].finished


def why_not_from_the_beginning(
    region: Region, manifest: Manifest, graph: ExecutionGraph, deterministic: bool
) -> str | None:
    """Why the region's blocking results cannot be made again; None if they can."""
    return next(_reasons(region, manifest, graph, deterministic), None)


def _reasons(region: Region, manifest: Manifest, graph: ExecutionGraph, deterministic: bool) -> Iterator[str]:
    inside = set(region.vertices())
    cut = [edge for edge in graph.graph.edges if graph.exchange_of(edge) is not Exchange.PIPELINED]
    inputs = [edge for edge in cut if edge.consumer in inside]
    if not all(had_finished(subtask, manifest) for subtask in region.subtasks):
        yield "only a part of its producer's region had finished"
    for uid in sorted(inside):
        for node in graph.graph.vertices[uid].operators:
            if node.sink is not None:
                yield f"its producer would run again, and {node.name!r} with it, which has shown its rows already"
    for edge in inputs:
        if graph.exchange_of(edge) is not Exchange.BLOCKING:
            yield f"what its producer has read through {edge_name(graph.graph, edge)} is not there any more"
    for edge in (edge for edge in cut if edge.producer in inside):
        if graph.exchange_of(edge) is not Exchange.BLOCKING:
            yield f"its producer would run again, and send twice what goes through {edge_name(graph.graph, edge)}"
        else:
            yield from _reasons_of_readers(edge, region, manifest, graph, deterministic and not inputs)


def _reasons_of_readers(
    edge: JobEdge, region: Region, manifest: Manifest, graph: ExecutionGraph, comes_again_the_same: bool
) -> Iterator[str]:
    readers = manifest.vertices.get(edge.consumer)
    for vertex in (edge.producer, edge.consumer):
        stored = manifest.vertices.get(vertex)
        if stored is None or stored.parallelism != graph.graph.vertices[vertex].parallelism:
            yield f"the parallelism of {vertex!r} was changed since it was made"
    for at in (at for state in _unfinished(readers, edge) for at in state.positions):
        read = SubtaskId(edge.producer, at.stream.producer) in region.subtasks and at.position != BEGINNING
        if at.stream.lineage:
            yield f"the parallelism of {edge.producer!r} or {edge.consumer!r} was changed since it was made"
        elif read and not comes_again_the_same:
            yield (
                f"{edge.consumer!r} had read a part of it, and what its producer makes again may come in another order "
                "(only one that reads nothing but sources, and is declared deterministic(), can be run again then)"
            )


def _unfinished(readers: VertexSnapshot | None, edge: JobEdge) -> Iterator[ReadState]:
    for snapshot in readers.subtasks.values() if readers is not None else ():
        for state in snapshot.operators:
            if state.uid == read_uid(edge) and not snapshot.finished:
                yield ReadState.from_state(state, edge.id)
