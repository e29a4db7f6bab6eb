"""What a driver reads in storage before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_engine.runtime.starting_checkpoint import readable_manifests
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.manifest import Manifest


def test_a_savepoint_that_is_deleted_after_it_was_listed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(LocalBlobs(tmp_path), "ns", "job")
    store.acquire("uid")
    for name in ("gone", "kept"):
        manifest = Manifest(
            checkpoint=store.next_checkpoint_id(),
            generation=store.generation,
            job="job",
            job_uid="uid",
            triggered_at=0.0,
            completed_at=1.0,
            key_groups=128,
            vertices={},
            critical_path=(),
        )
        store.complete_savepoint(manifest, name)
    listed = store.savepoints()
    monkeypatch.setattr(store, "savepoints", lambda: listed)
    store.delete_savepoint("gone")
    assert [found.checkpoint for found in readable_manifests(store)] == [manifest.checkpoint]
