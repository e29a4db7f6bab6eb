"""Checkpoint storage as the drivers see it: files, manifests, and `current`, changed only by
compare-and-swap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from snapshot_engine.protocol.committed_exchange import Segment
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.simulator.violations import Violation

ManifestKey = tuple[int, int]  # checkpoint, generation


@dataclass(frozen=True, slots=True)
class Current:
    """`current.json`: who owns the job, and which manifests count. The last one is the latest."""

    generation: int = 0
    retained: tuple[ManifestKey, ...] = ()
    next_id: int = 1
    revision: object = None
    """Unique to each attempt to write, so that a driver recognises its own."""


@dataclass(frozen=True, slots=True)
class Manifest:
    key: ManifestKey
    states: Mapping[SubtaskId, str]
    """File names."""
    finished: frozenset[SubtaskId]
    segments: Mapping[ChannelId, tuple[Segment, ...]]
    transactions: Mapping[str, tuple[str, ...]]
    """What is prepared, by sink vertex."""
    savepoint: str | None = None

    @property
    def checkpoint(self) -> int:
        return self.key[0]


@dataclass(slots=True)
class Storage:
    current: Current = field(default_factory=Current)
    version: int = 0
    files: dict[str, object] = field(default_factory=dict)
    manifests: dict[ManifestKey, Manifest] = field(default_factory=dict)

    def swap(self, wanted: Current, expected: int) -> bool:
        """Whether it was still at version `expected`."""
        if self.version != expected:
            return False
        self.current = wanted
        self.version += 1
        return True

    def read(self, name: str) -> object:
        if name not in self.files:
            raise Violation(f"{name} is needed but was deleted")
        return self.files[name]

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def latest(self) -> Manifest | None:
        return self.manifests[self.current.retained[-1]] if self.current.retained else None
