"""Which shared pieces are still referred to. Pure bookkeeping; the checkpoint store does what it says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage.manifest import Manifest

_REMEMBERED_DELETIONS = 100_000


class SharedPieces:
    """References count over the retained manifests, known here by folder, and over pending checkpoints.

    While a retained manifest cannot be read, nobody knows what it refers to: then no shared piece is given up.
    """

    def __init__(self) -> None:
        self._by_manifest: dict[str, frozenset[str] | None] = {}
        self._doomed: dict[str, int] = {}
        self._deleted: dict[str, None] = {}

    def retain(self, folder: str, paths: frozenset[str] | None) -> None:
        """`paths` is None for a manifest that cannot be read."""
        self._by_manifest[folder] = paths

    def forget(self, folder: str) -> None:
        self._by_manifest.pop(folder, None)

    def knows(self, folder: str) -> bool:
        return folder in self._by_manifest

    def referenced_among(self, paths: Iterable[str]) -> set[str]:
        """Those of `paths` that a retained manifest refers to, or may refer to."""
        return set(paths) if self._blind() else set(paths) & self._referenced()

    def new_bytes(self, manifest: Manifest) -> int:
        """Bytes that no earlier retained checkpoint has: what this one cost."""
        old = self._referenced()
        return sum(handle.size for handle in manifest.handles() if handle.path not in old)

    def give_up(self, folder: str, next_checkpoint: int) -> None:
        """The manifest is gone. Its pieces wait until every checkpoint below `next_checkpoint` is settled."""
        for path in self._by_manifest.pop(folder, None) or ():
            self._doomed.setdefault(path, next_checkpoint)

    def take_doomed(self, pending: Collection[int], references: Collection[str]) -> list[str]:
        """The given-up pieces that may be deleted now."""
        if self._blind():
            return []
        oldest = min(pending, default=None)
        for path in (self._referenced() | set(references)) & self._doomed.keys():
            del self._doomed[path]
        ready = [path for path, horizon in self._doomed.items() if oldest is None or oldest >= horizon]
        for path in ready:
            del self._doomed[path]
        self._remember(ready)
        return ready

    def discardable(self, handles: Iterable[PieceHandle], references: Collection[str]) -> list[str]:
        files = [handle for handle in handles if handle.inline is None]
        shared = {handle.path for handle in files if handle.shared}
        gone = shared - self.referenced_among(shared) - set(references)
        self._remember(gone)
        return [handle.path for handle in files if not handle.shared or handle.path in gone]

    def deleted_among(self, handles: Iterable[PieceHandle]) -> Sequence[str]:
        return [handle.path for handle in handles if handle.path in self._deleted]

    def _referenced(self) -> frozenset[str]:
        return frozenset().union(*(paths for paths in self._by_manifest.values() if paths))

    def _blind(self) -> bool:
        return any(paths is None for paths in self._by_manifest.values())

    def _remember(self, paths: Iterable[str]) -> None:
        self._deleted.update(dict.fromkeys(paths))
        while len(self._deleted) > _REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]
