"""Whether checkpoint storage can be used: asked before anything is started, rather than when the first one fails."""

from __future__ import annotations

import uuid

from snapshot_engine.storage.errors import UnusableStorage
from snapshot_engine.storage.pieces import StorageConfig


def refuse_unusable(storage: StorageConfig) -> None:
    """Writes and deletes a small file. Raises UnusableStorage."""
    blobs = storage.open()
    path = storage.where.absolute(f"probe-{uuid.uuid4().hex}")
    try:
        blobs.write(path, [b"may be deleted at any time"])
        blobs.delete([path])
    except OSError as error:
        raise UnusableStorage(blobs.uri, error) from error
