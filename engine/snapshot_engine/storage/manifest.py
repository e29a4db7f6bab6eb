"""The manifest: what a completed checkpoint or savepoint consists of.

It names everything that a restore needs: each subtask's operator states with the handles of their pieces, the
watermark of every input channel, and the committables (inside the operator states). Vertices are named by
uid, never by position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.storage import document

MANIFEST_VERSION = 1
_NAME = "manifest"


@dataclass(frozen=True, slots=True)
class Timings:
    """Where one subtask's share of a checkpoint spent its time, in seconds."""

    start_delay: float = 0.0
    alignment: float = 0.0
    sync: float = 0.0
    async_: float = 0.0

    def to_json(self) -> dict[str, float]:
        return {
            "startDelay": self.start_delay,
            "alignment": self.alignment,
            "sync": self.sync,
            "async": self.async_,
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, float]) -> Timings:
        return cls(doc["startDelay"], doc["alignment"], doc["sync"], doc["async"])


@dataclass(frozen=True, slots=True)
class SubtaskSnapshot:
    """What one subtask acknowledged."""

    attempt: Attempt
    operators: tuple[OperatorState, ...] = ()
    finished: bool = False
    """The subtask had ended: this is its final state, and it is not started again from here."""
    channels: Mapping[str, Any] = field(default_factory=dict)
    """The event time of the input channels at the barrier, as `runtime.channel_times` writes it."""
    timings: Timings = Timings()

    def to_json(self) -> dict[str, Any]:
        return {
            "attempt": list(self.attempt),
            "finished": self.finished,
            "operators": [operator.to_json() for operator in self.operators],
            "channels": dict(self.channels),
            "timings": self.timings.to_json(),
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> SubtaskSnapshot:
        return cls(
            Attempt(*doc["attempt"]),
            tuple(OperatorState.from_json(operator) for operator in doc["operators"]),
            doc["finished"],
            doc["channels"],
            Timings.from_json(doc["timings"]),
        )

    def handles(self) -> Iterator[PieceHandle]:
        for operator in self.operators:
            yield from operator.pieces


@dataclass(frozen=True, slots=True)
class VertexSnapshot:
    parallelism: int
    subtasks: Mapping[int, SubtaskSnapshot]

    def to_json(self) -> dict[str, Any]:
        subtasks = {str(index): subtask.to_json() for index, subtask in self.subtasks.items()}
        return {"parallelism": self.parallelism, "subtasks": subtasks}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> VertexSnapshot:
        subtasks = {int(index): SubtaskSnapshot.from_json(subtask) for index, subtask in doc["subtasks"].items()}
        return cls(doc["parallelism"], subtasks)


@dataclass(frozen=True, slots=True)
class PathStep:
    """One subtask on the critical path:

    the chain of subtasks that made the checkpoint take as long as it did.
    """

    subtask: str
    timings: Timings

    def to_json(self) -> dict[str, Any]:
        return {"subtask": self.subtask, **self.timings.to_json()}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> PathStep:
        return cls(doc["subtask"], Timings.from_json(doc))


@dataclass(frozen=True, slots=True)
class Manifest:
    checkpoint: int
    generation: int
    job: str
    job_uid: str
    triggered_at: float
    """Epoch seconds, by the coordinator's clock; so is `completed_at`."""
    completed_at: float
    key_groups: int
    vertices: Mapping[str, VertexSnapshot] = field(default_factory=dict)
    savepoint: str | None = None
    """The savepoint's name: then all paths are relative to the manifest's own folder."""
    critical_path: tuple[PathStep, ...] = ()

    @property
    def title(self) -> str:
        """As its owner calls it."""
        return f"savepoint {self.savepoint}" if self.savepoint else f"checkpoint {self.checkpoint}"

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.checkpoint,
            "generation": self.generation,
            "job": self.job,
            "jobUid": self.job_uid,
            "triggeredAt": self.triggered_at,
            "completedAt": self.completed_at,
            "keyGroups": self.key_groups,
            "savepoint": self.savepoint,
            "criticalPath": [step.to_json() for step in self.critical_path],
            "vertices": {uid: vertex.to_json() for uid, vertex in self.vertices.items()},
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Manifest:
        return cls(
            checkpoint=doc["checkpoint"],
            generation=doc["generation"],
            job=doc["job"],
            job_uid=doc["jobUid"],
            triggered_at=doc["triggeredAt"],
            completed_at=doc["completedAt"],
            key_groups=doc["keyGroups"],
            savepoint=doc["savepoint"],
            critical_path=tuple(PathStep.from_json(step) for step in doc["criticalPath"]),
            vertices={uid: VertexSnapshot.from_json(vertex) for uid, vertex in doc["vertices"].items()},
        )

    def encode(self) -> bytes:
        return document.encode(_NAME, MANIFEST_VERSION, self.to_json())

    @classmethod
    def decode(cls, data: bytes, path: str) -> Manifest:
        return cls.from_json(document.decode(_NAME, MANIFEST_VERSION, data, path))

    def subtasks(self) -> Iterator[tuple[str, int, SubtaskSnapshot]]:
        for uid, vertex in self.vertices.items():
            for index, subtask in vertex.subtasks.items():
                yield uid, index, subtask

    def handles(self) -> Iterator[PieceHandle]:
        for _, _, subtask in self.subtasks():
            yield from subtask.handles()

    def shared_paths(self) -> frozenset[str]:
        return frozenset(handle.path for handle in self.handles() if handle.shared)

    def size(self) -> int:
        """Bytes of all pieces, also of those that an earlier checkpoint wrote."""
        return sum(handle.size for handle in self.handles())

    def with_handles(self, change: Callable[[PieceHandle], PieceHandle]) -> Manifest:
        """The same manifest with every handle replaced by `change(handle)`."""
        return replace(self, vertices={uid: _change_vertex(v, change) for uid, v in self.vertices.items()})


def _change_vertex(vertex: VertexSnapshot, change: Callable[[PieceHandle], PieceHandle]) -> VertexSnapshot:
    subtasks = {index: _change_subtask(subtask, change) for index, subtask in vertex.subtasks.items()}
    return replace(vertex, subtasks=subtasks)


def _change_subtask(subtask: SubtaskSnapshot, change: Callable[[PieceHandle], PieceHandle]) -> SubtaskSnapshot:
    operators = tuple(replace(op, pieces=tuple(change(piece) for piece in op.pieces)) for op in subtask.operators)
    return replace(subtask, operators=operators)
