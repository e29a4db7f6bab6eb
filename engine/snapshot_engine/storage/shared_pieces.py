"""Which shared pieces are still referred to. Pure bookkeeping; the checkpoint store does what it says."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage.manifest import Manifest

_REMEMBERED_DELETIONS = 100_000


class SharedPieces:
    """References count over the retained manifests, known here by folder, and over pending checkpoints."""

    def __init__(self) -> None:
        self._by_manifest: dict[str, frozenset[str]] = {}
        self._doomed: dict[str, int] = {}
        self._deleted: dict[str, None] = {}

    def retain(self, folder: str, paths: frozenset[str]) -> None:
        self._by_manifest[folder] = paths

    def forget(self, folder: str) -> None:
        self._by_manifest.pop(folder, None)

    def known(self, folder: str) -> frozenset[str] | None:
        return self._by_manifest.get(folder)

    def referenced(self) -> frozenset[str]:
        return frozenset().union(*self._by_manifest.values())

    def new_bytes(self, manifest: Manifest) -> int:
        """Bytes that no earlier retained checkpoint has: what this one cost."""
        old = self.referenced()
        return sum(handle.size for handle in manifest.handles() if handle.path not in old)

    def give_up(self, paths: Iterable[str], next_checkpoint: int) -> None:
        """A manifest that named `paths` is gone.

        They wait until every checkpoint below `next_checkpoint` is settled.
        """
        for path in paths:
            self._doomed.setdefault(path, next_checkpoint)

    def take_doomed(self, pending: Collection[int], references: Collection[str]) -> list[str]:
        """The given-up pieces that may be deleted now."""
        oldest = min(pending, default=None)
        keep = self.referenced() | set(references)
        for path in keep & self._doomed.keys():
            del self._doomed[path]
        ready = [path for path, horizon in self._doomed.items() if oldest is None or oldest >= horizon]
        for path in ready:
            del self._doomed[path]
        self._remember(ready)
        return ready

    def discardable(self, handles: Iterable[PieceHandle], references: Collection[str]) -> list[str]:
        keep = self.referenced() | set(references)
        files = [handle for handle in handles if handle.inline is None]
        paths = [handle.path for handle in files if not (handle.shared and handle.path in keep)]
        self._remember(handle.path for handle in files if handle.shared and handle.path not in keep)
        return paths

    def deleted_among(self, handles: Iterable[PieceHandle]) -> Sequence[str]:
        return [handle.path for handle in handles if handle.path in self._deleted]

    def _remember(self, paths: Iterable[str]) -> None:
        self._deleted.update(dict.fromkeys(paths))
        while len(self._deleted) > _REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]
