"""Copies of pieces on the local disk of the machine that wrote them, for a slot that restarts there.

A copy is only ever a short cut: it counts if its size and checksum are those of the handle, and whatever goes wrong
with it is as if it were not there. Worth it where storage is another machine's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path

from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage.blobs import Buffer
from snapshot_engine.storage.document import checksum

FORGOTTEN_AFTER_SECONDS = 24 * 3600.0
"""What a slot that never came back has left is swept by the next that starts here."""


class LocalCopies:
    """`folder` is shared by all slots of the job on this machine; each deletes only what it has written or read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._mine: set[str] = set()
        self.hits = 0
        """How many pieces were read here."""

    def write(self, path: str, buffers: Iterable[Buffer]) -> None:
        """A copy that cannot be written, the disk may be full, is done without."""
        target = self._folder / path
        partial = target.with_name(f"{target.name}.partial")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with partial.open("wb") as file:
                for buffer in buffers:
                    file.write(buffer)
            partial.rename(target)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        else:
            self._mine.add(path)

    def read(self, handle: PieceHandle) -> bytes | None:
        """The piece, if a copy matches the checkpoint; None otherwise."""
        try:
            data = (self._folder / handle.path).read_bytes()
        except OSError:
            return None
        self._mine.add(handle.path)
        if len(data) != handle.size or checksum(data) != handle.checksum:
            return None
        self.hits += 1
        return data

    def keep_only(self, paths: set[str]) -> None:
        """A checkpoint is complete: of this slot's copies only these are of use."""
        for path in self._mine - paths:
            self._delete(self._folder / path)
        self._mine &= paths

    def sweep(self) -> None:
        oldest = time.time() - FORGOTTEN_AFTER_SECONDS
        with contextlib.suppress(OSError):
            for file in [file for file in self._folder.rglob("*") if file.is_file()]:
                if file.stat().st_mtime < oldest:
                    self._delete(file)

    def _delete(self, copy: Path) -> None:
        """With the folders that it leaves empty. What cannot be deleted stays, and does no harm."""
        with contextlib.suppress(OSError):
            copy.unlink(missing_ok=True)
            folder = copy.parent
            while folder != self._folder:
                folder.rmdir()  # fails, and ends it, where there is something left
                folder = folder.parent
