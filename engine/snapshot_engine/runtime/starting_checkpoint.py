"""Which checkpoint a driver starts from. Everything here blocks while storage is asked."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable

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


def starting_checkpoint(
    settings: JobSettings, store: CheckpointStore, say: Callable[[str], object] = log.warning
) -> Manifest | None:
    """The one that was asked for, unless that restore is done; else the latest. Raises CorruptCheckpoint.

    If that restore was done, and left by another one, the last one from before that. Any but the latest is told with
    `say`: nobody goes back in time unawares.
    """
    if not store.restore_is_done:
        if (left := store.left_line) is not None:
            return _told(store.end_of(left), settings, store, say)
        if settings.ignore_state:
            return None
        if settings.restore_from is not None:
            return _told(store.load(settings.restore_from), settings, store, say)
        if settings.restore_id == FIRST_LINE:
            raise NoSuchCheckpoint(
                "the job is to go back to what it was before its first restore, of which the storage knows nothing; "
                "what it has completed since is another state. Name a savepoint in restoreFrom"
            )
    if store.latest() is None:
        return None
    return _newest_whole(settings, store, say) if settings.allow_older_checkpoint else store.load()


def goes_on(settings: JobSettings, store: CheckpointStore) -> bool:
    """Whether it starts from a checkpoint. Nothing is read for it."""
    if not store.restore_is_done:
        if (left := store.left_line) is not None:
            return left.folder is not None
        if settings.ignore_state or settings.restore_from is not None:
            return not settings.ignore_state
    return store.latest() is not None


def _told(
    manifest: Manifest | None, settings: JobSettings, store: CheckpointStore, say: Callable[[str], object]
) -> Manifest | None:
    """Ids of another job's checkpoints are in no order with this one's."""
    latest = store.latest()
    if manifest is None:
        return None
    which = f"{manifest.title} of {manifest.job}" if manifest.job != settings.name else manifest.title
    if manifest.savepoint is not None:
        which += f" (checkpoint {manifest.checkpoint})"
    older = latest is not None and manifest.job_uid == settings.uid and manifest.checkpoint < latest.checkpoint
    if older and latest is not None:
        say(f"restoring {which}, which is older than checkpoint {latest.checkpoint}: output since is written again")
    else:
        say(f"restoring {which}")
    return manifest


def _newest_whole(settings: JobSettings, store: CheckpointStore, say: Callable[[str], object]) -> Manifest:
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
                say(
                    f"checkpoint {newest.checkpoint} is damaged ({damage.path}: expected {damage.expected}, found "
                    f"{damage.found}); going back to checkpoint {manifest.checkpoint}, as "
                    "spec.recovery.allowOlderCheckpoint: true allows: output since then is written again"
                )
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
