"""Which checkpoint a driver starts from. Everything here blocks while storage is asked."""

from __future__ import annotations

import contextlib
import logging

from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.current import Retained
from snapshot_engine.storage.errors import CorruptCheckpoint, LostCheckpoints, NoSuchCheckpoint
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.pieces import PieceReader
from snapshot_engine.wire.control import FIRST_LINE

log = logging.getLogger(__name__)


def refuse_lost_checkpoints(settings: JobSettings, store: CheckpointStore) -> None:
    """Raises LostCheckpoints if earlier drivers have completed some and the storage holds none.

    The latest one is never deleted, whatever the job was restored from or rolled back to since.
    """
    if settings.expected_checkpoint is not None and store.latest() is None:
        raise LostCheckpoints(f"{store.blobs.uri}/{store.where.job_folder}", settings.expected_checkpoint)


def starting_checkpoint(settings: JobSettings, store: CheckpointStore) -> Manifest | None:
    """The one that was asked for, unless that restore is done; else the latest. Raises CorruptCheckpoint.

    If that restore was done, and left by another one, the last one from before that.
    """
    if not store.restore_is_done:
        if (left := store.left_line) is not None:
            return store.end_of(left)
        if settings.ignore_state:
            return None
        if settings.restore_from is not None:
            return store.load(settings.restore_from)
        if settings.restore_id == FIRST_LINE:
            raise NoSuchCheckpoint(
                "the job is to go back to what it was before its first restore, of which the storage knows nothing; "
                "what it has completed since is another state. Name a savepoint in restoreFrom"
            )
    if store.latest() is None:
        return None
    return _newest_whole(settings, store) if settings.allow_older_checkpoint else store.load()


def goes_on(settings: JobSettings, store: CheckpointStore) -> bool:
    """Whether it starts from a checkpoint. Nothing is read for it."""
    if not store.restore_is_done:
        if (left := store.left_line) is not None:
            return left.folder is not None
        if settings.ignore_state or settings.restore_from is not None:
            return not settings.ignore_state
    return store.latest() is not None


def _newest_whole(settings: JobSettings, store: CheckpointStore) -> Manifest:
    """An older checkpoint repeats output that is out already: only with the user's consent, and only if the newer
    ones are damaged, which is found out by reading all of them.
    """
    newest, *older = reversed(store.list())
    reader = settings.storage.reader(store.blobs)
    try:
        return _verified(store.load(newest), reader)
    except CorruptCheckpoint as damage:
        for entry in older:
            with contextlib.suppress(CorruptCheckpoint):
                manifest = _verified(store.load(entry), reader)
                log.warning("%s; going back to checkpoint %d as allowed", damage, manifest.checkpoint)
                return manifest
        raise


def _verified(manifest: Manifest, reader: PieceReader) -> Manifest:
    for handle in manifest.handles():
        reader.read_bytes(handle)
    return manifest


def readable_manifests(store: CheckpointStore) -> list[Manifest]:
    """Of all retained checkpoints and savepoints that can be read: what they name must not be swept.

    A user may delete a savepoint at any time, also between its being listed and being read.
    """
    manifests = []
    every: list[Retained | str] = [*store.list(), *store.savepoints()]
    for which in every:
        with contextlib.suppress(CorruptCheckpoint, NoSuchCheckpoint):
            manifests.append(store.load(which))
    return manifests
