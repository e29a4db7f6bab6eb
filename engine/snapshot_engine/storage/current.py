"""`current.json`: who owns the job, and which checkpoints count. Changed only by compare-and-swap."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from snapshot_engine.storage import document
from snapshot_engine.storage.errors import CorruptCheckpoint, CorruptRecord
from snapshot_engine.wire.control import FIRST_LINE

OF_MANIFEST = "manifest"
"""How the ids of restores begin that a manifest asks for by itself, without an operator. Its restores are never rolled
back: one that is asked for again, after another one, begins anew."""

CURRENT_VERSION = 1
_NAME = "current"


@dataclass(frozen=True, slots=True)
class Retained:
    """A completed checkpoint that is kept, and what its manifest must look like."""

    checkpoint: int
    generation: int
    folder: str
    """Relative to the job's folder."""
    size: int
    """Bytes of all its pieces."""
    manifest_size: int
    manifest_checksum: str
    completed_at: float

    def to_json(self) -> dict[str, Any]:
        return {
            "checkpoint": self.checkpoint,
            "generation": self.generation,
            "folder": self.folder,
            "size": self.size,
            "manifestSize": self.manifest_size,
            "manifestChecksum": self.manifest_checksum,
            "completedAt": self.completed_at,
        }

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> Retained:
        return cls(
            doc["checkpoint"],
            doc["generation"],
            doc["folder"],
            doc["size"],
            doc["manifestSize"],
            doc["manifestChecksum"],
            doc["completedAt"],
        )


@dataclass(frozen=True, slots=True)
class LeftLine:
    """A restore, with all that was completed after it, that the job has left by another restore."""

    id: str
    folder: str | None
    """Its last checkpoint, relative to the job's folder; None if nothing was completed."""
    left_at: float

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "folder": self.folder, "leftAt": self.left_at}

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> LeftLine:
        return cls(doc["id"], doc["folder"], doc["leftAt"])


@dataclass(frozen=True, slots=True)
class Current:
    job_uid: str
    generation: int
    revision: str
    """Random, new with each swap: how a driver recognises its own write when the store's answer was lost."""
    reserved_until: int
    """Checkpoint ids below this may have been used by the owner; a new owner begins here."""
    retained: tuple[Retained, ...] = ()
    """Oldest first."""
    history: tuple[Mapping[str, Any], ...] = ()
    """The last checkpoints and savepoints, completed or aborted, oldest first."""
    driver: int | None = None
    """The number that whoever launches drivers gave the owner, if drivers are numbered."""
    restore_id: str | None = None
    """The last restore that was asked for by name and has led to a completed checkpoint: it is not done again."""
    restarts: tuple[Mapping[str, Any], ...] = ()
    """The last restarts of regions, oldest first."""
    lineage: str | None = None
    """Random, given once: within it generations are counted. None: no driver that knew of it has been here yet."""
    lineage_since: int = 1
    """The first generation whose driver knew the lineage."""
    left: tuple[LeftLine, ...] = ()
    """The lines that the job has left, oldest first."""

    @property
    def line(self) -> str:
        """What the latest checkpoint goes back to."""
        return self.restore_id or FIRST_LINE

    def encode(self) -> bytes:
        body = {
            "jobUid": self.job_uid,
            "generation": self.generation,
            "revision": self.revision,
            "reservedUntil": self.reserved_until,
            "retained": [entry.to_json() for entry in self.retained],
            "history": [dict(entry) for entry in self.history],
            "driver": self.driver,
            "restoreId": self.restore_id,
            "restarts": [dict(entry) for entry in self.restarts],
            "lineage": self.lineage,
            "lineageSince": self.lineage_since,
            "left": [line.to_json() for line in self.left],
        }
        return document.encode(_NAME, CURRENT_VERSION, body)

    @classmethod
    def decode(cls, data: bytes, path: str) -> Current:
        """Raises CorruptRecord or UnknownVersion, naming `path`."""
        try:
            doc = document.decode(_NAME, CURRENT_VERSION, data, path)
        except CorruptCheckpoint as error:
            raise CorruptRecord(error.path, error.expected, error.found) from error
        return cls(
            job_uid=doc["jobUid"],
            generation=doc["generation"],
            revision=doc["revision"],
            reserved_until=doc["reservedUntil"],
            retained=tuple(Retained.from_json(entry) for entry in doc["retained"]),
            history=tuple(doc["history"]),
            driver=doc.get("driver"),
            restore_id=doc.get("restoreId"),
            restarts=tuple(doc.get("restarts", ())),
            lineage=doc.get("lineage"),
            lineage_since=doc.get("lineageSince", 1),
            left=tuple(LeftLine.from_json(line) for line in doc.get("left", ())),
        )

    def with_history(self, entries: Iterable[Mapping[str, Any]], kept: int) -> Current:
        return replace(self, history=(*self.history, *entries)[-kept:])

    def with_restarts(self, entries: Iterable[Mapping[str, Any]], kept: int) -> Current:
        return replace(self, restarts=(*self.restarts, *entries)[-kept:])
