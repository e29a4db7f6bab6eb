"""What a driver reads in storage before it starts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from snapshot_engine.runtime.embedded import open_job_store
from snapshot_engine.runtime.job_settings import JobSettings, settings_of
from snapshot_engine.runtime.starting_checkpoint import goes_on, readable_manifests, starting_checkpoint
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.errors import NoSuchCheckpoint
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.pieces import StorageConfig
from snapshot_engine.wire.control import FIRST_LINE
from snapshot_engine.wire.manifest import load_manifest

STORAGE = StorageConfig("/nowhere", Layout("ns", "job"))


def _manifest(store: CheckpointStore) -> Manifest:
    return Manifest(
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


def test_a_savepoint_that_is_deleted_after_it_was_listed_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = CheckpointStore(LocalBlobs(tmp_path), "ns", "job")
    store.acquire("uid")
    for name in ("gone", "kept"):
        manifest = _manifest(store)
        store.complete_savepoint(manifest, name)
    listed = store.savepoints()
    monkeypatch.setattr(store, "savepoints", lambda: listed)
    store.delete_savepoint("gone")
    assert [found.checkpoint for found in readable_manifests(store)] == [manifest.checkpoint]


def _completed(store: CheckpointStore) -> int:
    manifest = _manifest(store)
    for replaced in store.complete(manifest, retained=1):
        store.delete_checkpoint(replaced)
    return manifest.checkpoint


def _driver(folder: Path, restore_id: str | None, **wishes: Any) -> tuple[CheckpointStore, JobSettings]:
    store = CheckpointStore(LocalBlobs(folder), "ns", "job")
    store.acquire("uid", restore_id=restore_id)
    return store, JobSettings("job", "ns", "uid", STORAGE, restore_id=restore_id, **wishes)


def test_a_stateless_restore_that_is_rolled_back_starts_from_what_was_before_it(tmp_path: Path) -> None:
    old, settings = _driver(tmp_path, None)
    _completed(old)
    before = _completed(old)
    new, settings = _driver(tmp_path, "stateless-2", ignore_state=True)
    assert starting_checkpoint(settings, new) is None and not goes_on(settings, new)
    after = _completed(new)
    again, settings = _driver(tmp_path, "stateless-2", ignore_state=True)
    found = starting_checkpoint(settings, again)
    assert found is not None and found.checkpoint == after and goes_on(settings, again), "a restart loses nothing"
    back, settings = _driver(tmp_path, FIRST_LINE)
    found = starting_checkpoint(settings, back)
    assert found is not None and found.checkpoint == before and goes_on(settings, back)


def test_one_that_had_started_from_a_savepoint_does_not_start_there_once_more(tmp_path: Path) -> None:
    old, settings = _driver(tmp_path, "upgrade-2", restore_from="savepoints/gone-by-now")
    before = _completed(old)
    _completed(_driver(tmp_path, "stateless-3", ignore_state=True)[0])
    back, settings = _driver(tmp_path, "upgrade-2", restore_from="savepoints/gone-by-now")
    found = starting_checkpoint(settings, back)
    assert found is not None and found.checkpoint == before


def test_no_other_state_is_taken_for_what_was_before_any_restore(tmp_path: Path) -> None:
    """As where an engine has completed the restore that did not keep what it left."""
    _completed(_driver(tmp_path, "stateless-2", ignore_state=True)[0])
    store, settings = _driver(tmp_path, FIRST_LINE)
    store._update(lambda current: replace(current, left=()))
    assert store.left_line is None
    with pytest.raises(NoSuchCheckpoint, match=r"before its first restore.*restoreFrom"):
        starting_checkpoint(settings, store)


def _by_manifest(folder: Path, spec: str) -> tuple[JobSettings, CheckpointStore]:
    """As `streamingjob run` starts it, and the driver that it makes."""
    manifest = folder / "job.yaml"
    head = "apiVersion: streamingjob.dev/v1alpha1\nkind: StreamingJob\nmetadata: {name: job}\n"
    manifest.write_text(f"{head}spec: {{pipeline: {{entrypoint: 'job.py:pipeline'}}{spec}}}\n")
    settings = settings_of(load_manifest(manifest), str(folder / "ck"))
    driver = open_job_store(settings)
    driver.acquire(settings.uid, restore_id=settings.restore_id)
    return settings, driver


def test_a_restore_that_the_manifest_asks_for_is_done_once(tmp_path: Path) -> None:
    settings, driver = _by_manifest(tmp_path, "")
    saved = _manifest(driver)
    driver.complete_savepoint(saved, "before")
    before = _completed(driver)
    assert starting_checkpoint(settings, driver).checkpoint == before

    settings, driver = _by_manifest(tmp_path, ", restoreFrom: before")
    assert starting_checkpoint(settings, driver).checkpoint == saved.checkpoint, "the savepoint of that name"
    after = _completed(driver)
    settings, driver = _by_manifest(tmp_path, ", restoreFrom: before")
    assert starting_checkpoint(settings, driver).checkpoint == after, "the job is not rewound once more"
    assert starting_checkpoint(settings, open_job_store(settings)).checkpoint == after, "nor does a look say so"
    driver.delete_savepoint("before")
    assert starting_checkpoint(settings, open_job_store(settings)).checkpoint == after, "nobody needs it any more"

    settings, driver = _by_manifest(tmp_path, "")
    assert starting_checkpoint(settings, driver).checkpoint == after


def test_another_nonce_or_another_restore_in_between_has_it_done_again(tmp_path: Path) -> None:
    _, driver = _by_manifest(tmp_path, "")
    saved = {name: _manifest(driver) for name in ("a", "b")}
    for name, manifest in saved.items():
        driver.complete_savepoint(manifest, name)
    for wanted, nonce in (("a", 1), ("a", 2), ("b", 2), ("a", 2)):
        settings, driver = _by_manifest(tmp_path, f", restoreFrom: {wanted}, restoreNonce: {nonce}")
        assert starting_checkpoint(settings, driver).checkpoint == saved[wanted].checkpoint
        _completed(driver)


def test_an_older_checkpoint_in_place_of_a_damaged_one_is_told(tmp_path: Path) -> None:
    store, settings = _driver(tmp_path, None, allow_older_checkpoint=True)
    before, latest = _manifest(store), _manifest(store)
    for manifest in (before, latest):
        store.complete(manifest, retained=2)
    file = tmp_path / "ns" / "job" / "checkpoints" / f"{latest.checkpoint}-1" / "manifest.json"
    file.write_bytes(file.read_bytes()[:-9])
    told: list[str] = []
    found = starting_checkpoint(settings, store, told.append)
    assert found is not None and found.checkpoint == before.checkpoint
    (said,) = told
    assert said.startswith(f"checkpoint {latest.checkpoint} is damaged ({file.as_uri()}: expected ")
    assert f"going back to checkpoint {before.checkpoint}" in said and "output since then is written again" in said
    assert "naming it" not in said, "nothing is left to be done"


def test_a_restore_of_something_older_than_the_latest_is_told(tmp_path: Path) -> None:
    store, settings = _driver(tmp_path, None, restore_from="savepoints/before")
    store.complete_savepoint(_manifest(store), "before")
    latest = _completed(store)
    store.complete_savepoint(_manifest(store), "after")
    told: list[str] = []
    starting_checkpoint(settings, store, told.append)
    starting_checkpoint(replace(settings, restore_from="savepoints/after"), store, told.append)
    starting_checkpoint(replace(settings, restore_from=None), store, told.append)
    assert told == [
        f"restoring savepoint before (checkpoint 1), which is older than checkpoint {latest}: "
        "output since is written again",
        "restoring savepoint after (checkpoint 3)",
    ]
