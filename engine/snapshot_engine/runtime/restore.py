"""From a manifest to what each subtask is given at its start. State is matched by operator uid, never by position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.runtime.exchanges.exchange_restore import LOGGED, ExchangeRestore, Results
from snapshot_engine.runtime.exchanges.stored_segments import READ, WRITTEN
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot

FRESH: Mapping[str, Any] = {
    "finished": False,
    "rescaled": False,
    "rescaled_operators": [],
    "operators": {},
    "channels": [],
    "exchanges": {},
}
"""What a subtask begins with that is not restored."""


class UnmatchedState(Exception):
    """The checkpoint and the pipeline do not fit together."""


@dataclass
class _StoredOperator:
    parallelism: int
    states: dict[int, dict[str, Any]] = field(default_factory=dict)


class Restore:
    """What a checkpoint has for each subtask of `graph`; nothing if there is no checkpoint."""

    def __init__(self, manifest: Manifest | None, execution: ExecutionGraph, allow_non_restored: bool = False) -> None:
        self.manifest = manifest
        self._graph = execution.graph
        self._exchanges = ExchangeRestore(manifest, execution)
        self._operators: dict[str, _StoredOperator] = {}
        if manifest is not None:
            self._index(manifest)
            self._check(manifest, allow_non_restored)

    @property
    def checkpoint(self) -> int | None:
        return self.manifest.checkpoint if self.manifest else None

    def for_subtask(self, subtask: SubtaskId, results: Results | None = None) -> dict[str, Any] | None:
        """The `Deploy.restore` entry of one subtask; `results` are the blocking results that it reads."""
        if self.manifest is None:
            return {**FRESH, "exchanges": self._exchanges.for_subtask(subtask, results)} if results else None
        vertex = self._graph.vertices[subtask.vertex]
        stored = self.manifest.vertices.get(subtask.vertex)
        rescaled = stored is None or stored.parallelism != vertex.parallelism
        snapshots = _relevant(stored.subtasks, subtask.index, rescaled) if stored else []
        return {
            "checkpoint": self.manifest.checkpoint,
            "rescaled": rescaled,
            "finished": all(s.finished for s in snapshots) and bool(snapshots) and self._is_same_chain(subtask.vertex),
            "rescaled_operators": [node.uid for node in vertex.operators if self._is_rescaled(node.uid)],
            "operators": {node.uid: self._states(node.uid, subtask.index) for node in vertex.operators},
            "channels": [snapshot.channels for snapshot in self._heard_by(subtask, snapshots, rescaled)],
            "exchanges": self._exchanges.for_subtask(subtask, results) | {"checkpoint": self.manifest.checkpoint},
        }

    def _heard_by(self, subtask: SubtaskId, snapshots: list[SubtaskSnapshot], rescaled: bool) -> list[SubtaskSnapshot]:
        """Whose channels a subtask's event time goes on from: its own, first, and those of all if producers changed."""
        assert self.manifest is not None
        producers = {edge.producer for edge in self._graph.inputs_of(subtask.vertex)}
        stored = {uid: self.manifest.vertices[uid].parallelism for uid in producers & self.manifest.vertices.keys()}
        changed = any(self._graph.vertices[uid].parallelism != count for uid, count in stored.items())
        if rescaled or not snapshots or not changed:
            return snapshots
        others = self.manifest.vertices[subtask.vertex].subtasks
        return snapshots + [others[index] for index in sorted(others) if index != subtask.index]

    def finished(self, subtask: SubtaskId) -> SubtaskSnapshot | None:
        """The final state of a subtask that had finished at the checkpoint and need not run again."""
        entry = self.for_subtask(subtask)
        if entry is None or not entry["finished"]:
            return None
        assert self.manifest is not None
        subtasks = self.manifest.vertices[subtask.vertex].subtasks
        final = subtasks.get(subtask.index) or SubtaskSnapshot(next(iter(subtasks.values())).attempt, finished=True)
        others = (vertex for uid, vertex in self._graph.vertices.items() if uid != subtask.vertex)
        elsewhere = {node.uid for vertex in others for node in vertex.operators}
        gone = elsewhere | self._exchanges.begun_anew(subtask.vertex)
        return replace(final, operators=tuple(state for state in final.operators if state.uid not in gone))

    def _is_same_chain(self, uid: str) -> bool:
        """Whether what the vertex has stored is the state of all its operators; of some it may be in another vertex,
        since chains change with the parallelism. Then it runs once more: its sources know that they have ended."""
        assert self.manifest is not None
        stored = self.manifest.vertices.get(uid)
        if stored is None:
            return False
        here = {state.uid for snapshot in stored.subtasks.values() for state in snapshot.operators}
        return all(node.uid in here or node.uid not in self._operators for node in self._graph.vertices[uid].operators)

    def _is_rescaled(self, uid: str) -> bool:
        """Whether an operator is given the states of all old subtasks, to take its own share out of them. That is not
        what became of its vertex: what was a vertex of its own may have joined a chain that stayed as it was."""
        stored = self._operators.get(uid)
        return stored is not None and stored.parallelism != self._parallelism_of(uid)

    def _states(self, uid: str, index: int) -> list[dict[str, Any]]:
        stored = self._operators.get(uid)
        if stored is None:
            return []
        if self._is_rescaled(uid):
            return [stored.states[old] for old in sorted(stored.states)]
        return [stored.states[index]] if index in stored.states else []

    def _parallelism_of(self, uid: str) -> int:
        for vertex in self._graph.vertices.values():
            if any(node.uid == uid for node in vertex.operators):
                return vertex.parallelism
        raise KeyError(uid)

    def _index(self, manifest: Manifest) -> None:
        for vertex in manifest.vertices.values():
            for index, snapshot in vertex.subtasks.items():
                for state in snapshot.operators:
                    if state.kind in (LOGGED, WRITTEN) or (state.kind == READ and not state.pieces):
                        continue  # nothing is lost with it
                    stored = self._operators.setdefault(state.uid, _StoredOperator(vertex.parallelism))
                    stored.states[index] = state.to_json()

    def _check(self, manifest: Manifest, allowed: bool) -> None:
        nodes = {node.uid: node for vertex in self._graph.vertices.values() for node in vertex.operators}
        unknown = sorted(self._operators.keys() - nodes.keys() - self._exchanges.names())
        # An operator of a chain that the checkpoint knows as stateless is there by its vertex, without a state.
        known = self._operators.keys() | manifest.vertices.keys()
        missing = sorted(uid for uid, node in nodes.items() if node.stateful and uid not in known and self._operators)
        if manifest.key_groups != self._graph.key_groups:
            raise UnmatchedState(
                f"{manifest.title} has {manifest.key_groups} key groups, the job now "
                f"{self._graph.key_groups}: the number of key groups can never change for a job"
            )
        if (unknown or missing) and not allowed:
            raise UnmatchedState(_explain(manifest, unknown, missing, sorted(nodes)))


def _relevant(stored: Any, index: int, rescaled: bool) -> list[SubtaskSnapshot]:
    if rescaled:
        return [stored[old] for old in sorted(stored)]
    return [stored[index]] if index in stored else []


def _explain(manifest: Manifest, unknown: list[str], missing: list[str], there: list[str]) -> str:
    lines = [f"{manifest.title} does not fit the pipeline:"]
    if unknown:
        lines.append(f"  it holds state of {', '.join(unknown)}, which the pipeline does not have")
    if missing:
        lines.append(f"  it holds no state for {', '.join(missing)}")
    lines.append(f"  operators of the pipeline: {', '.join(there)}")
    lines.append(
        "  give the operators their former uids, or start without this state: spec.allowNonRestoredState: true"
    )
    lines.append("  to begin anew without any state, give the job another metadata.name or spec.checkpoint.storage")
    return "\n".join(lines)
