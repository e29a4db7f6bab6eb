"""What a checkpoint says about state: handles to pieces, and one operator's state made of them. All JSON-able."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PieceHandle:
    """A written piece of state: a file in checkpoint storage, or its bytes themselves when it is small.

    `path` is relative to the job's storage root. `shared` pieces live in `shared/` and are counted by reference over
    all retained manifests; others live and die with their checkpoint's folder.
    """

    path: str
    size: int
    checksum: str
    shared: bool = False
    inline: bytes | None = None

    def to_json(self) -> dict[str, Any]:
        doc: dict[str, Any] = {"path": self.path, "size": self.size, "checksum": self.checksum}
        if self.shared:
            doc["shared"] = True
        if self.inline is not None:
            doc["inline"] = base64.b64encode(self.inline).decode("ascii")
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> PieceHandle:
        inline = base64.b64decode(doc["inline"]) if "inline" in doc else None
        return cls(doc["path"], doc["size"], doc["checksum"], doc.get("shared", False), inline)


@dataclass(frozen=True, slots=True)
class OperatorState:
    """One operator's share of one subtask's snapshot."""

    uid: str
    kind: str
    """What kind of state this is, e.g. `window-aggregate`; restoring into another kind is refused."""
    schema: Mapping[str, Any] = field(default_factory=dict)
    """Types of keys and values, compared at restore: a changed type is an error, not a silent cast."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Small JSON values: source positions, watermarks, counters."""
    pieces: tuple[PieceHandle, ...] = ()
    """In the order in which they must be applied: a base, then its deltas."""
    committables: tuple[Mapping[str, Any], ...] = ()
    """Prepared and not known to be committed, of this checkpoint and of earlier ones of its lineage."""

    def to_json(self) -> dict[str, Any]:
        doc: dict[str, Any] = {"uid": self.uid, "kind": self.kind}
        if self.schema:
            doc["schema"] = dict(self.schema)
        if self.meta:
            doc["meta"] = dict(self.meta)
        if self.pieces:
            doc["pieces"] = [piece.to_json() for piece in self.pieces]
        if self.committables:
            doc["committables"] = [dict(committable) for committable in self.committables]
        return doc

    @classmethod
    def from_json(cls, doc: Mapping[str, Any]) -> OperatorState:
        return cls(
            doc["uid"],
            doc["kind"],
            doc.get("schema", {}),
            doc.get("meta", {}),
            tuple(PieceHandle.from_json(piece) for piece in doc.get("pieces", ())),
            tuple(doc.get("committables", ())),
        )
