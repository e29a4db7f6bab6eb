"""Blobs in this process's memory, for tests and the simulator. Its `swap` is a comparison under a lock."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from snapshot_engine.storage.blobs import Buffer, SwapConflict


@dataclass(slots=True)
class _Blob:
    data: bytes
    version: str
    modified: float


class MemoryBlobs:
    def __init__(self, uri: str = "memory://", clock: Callable[[], float] = time.time) -> None:
        self.uri = uri
        self._clock = clock
        self._blobs: dict[str, _Blob] = {}
        self._lock = threading.RLock()
        self._versions = 0

    def write(self, path: str, buffers: Iterable[Buffer], *, exclusive: bool = False) -> int:
        data = b"".join(buffers)
        with self._lock:
            if exclusive and path in self._blobs:
                raise FileExistsError(path)
            self._put(path, data)
        return len(data)

    def read(self, path: str) -> bytes:
        with self._lock:
            if path not in self._blobs:
                raise FileNotFoundError(path)
            return self._blobs[path].data

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        with self._lock:
            blob = self._blobs.get(path)
            return (blob.data, blob.version) if blob else None

    def whereabouts(self, path: str, version: str | None = None) -> str:
        return f"{self.uri}/{path}"

    def swap(self, path: str, data: bytes, expected: str | None) -> str:
        with self._lock:
            blob = self._blobs.get(path)
            if (blob.version if blob else None) != expected:
                raise SwapConflict(path)
            return self._put(path, bytes(data))

    def list(self, prefix: str) -> Sequence[tuple[str, float]]:
        with self._lock:
            below = prefix.rstrip("/") + "/" if prefix else ""
            return sorted((path, blob.modified) for path, blob in self._blobs.items() if path.startswith(below))

    def delete(self, paths: Iterable[str]) -> None:
        with self._lock:
            for path in paths:
                self._blobs.pop(path, None)

    def copy(self, source: str, target: str) -> None:
        self.write(target, [self.read(source)])

    def _put(self, path: str, data: bytes) -> str:
        self._versions += 1
        self._blobs[path] = _Blob(data, str(self._versions), self._clock())
        return str(self._versions)


_shared: dict[str, MemoryBlobs] = {}


def shared_memory_blobs(uri: str) -> MemoryBlobs:
    """The one store of this process that has the name `uri`: it outlives a driver, not the process."""
    return _shared.setdefault(uri, MemoryBlobs(uri))
