"""Which checkpoint a driver starts from. Everything here blocks while storage is asked."""

from __future__ import annotations

import contextlib
import logging

from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.current import Retained
from snapshot_engine.storage.errors import CorruptCheckpoint
from snapshot_engine.storage.manifest import Manifest

log = logging.getLogger(__name__)


def starting_checkpoint(settings: JobSettings, store: CheckpointStore) -> Manifest | None:
    """The one that was asked for, unless that restore is done; else the latest. Raises CorruptCheckpoint."""
    if not store.restore_is_done:
        if settings.ignore_state:
            return None
        if settings.restore_from is not None:
            return store.load(settings.restore_from)
    if store.latest() is None:
        return None
    try:
        return store.load()
    except CorruptCheckpoint as error:
        return _older_one(settings, store, error)


def _older_one(settings: JobSettings, store: CheckpointStore, error: CorruptCheckpoint) -> Manifest:
    """An older checkpoint repeats output that is out already: only with the user's consent."""
    if not settings.allow_older_checkpoint:
        raise error
    for entry in reversed(store.list()[:-1]):
        with contextlib.suppress(CorruptCheckpoint):
            manifest = store.load(entry)
            log.warning("%s; going back to checkpoint %d as allowed", error, manifest.checkpoint)
            return manifest
    raise error


def readable_manifests(store: CheckpointStore) -> list[Manifest]:
    """Of all retained checkpoints and savepoints that can be read: what they name must not be swept."""
    manifests = []
    every: list[Retained | str] = [*store.list(), *store.savepoints()]
    for which in every:
        with contextlib.suppress(CorruptCheckpoint):
            manifests.append(store.load(which))
    return manifests
