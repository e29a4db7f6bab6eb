"""One driver at a time: generations, lost answers, and drivers that come back from a long sleep."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time as clock
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from snapshot_engine.storage.blobs import BlobStore, OutcomeUnknown
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.current import Current
from snapshot_engine.storage.errors import (
    BelongsToAnotherJob,
    CorruptCheckpoint,
    OwnershipLost,
    StorageError,
    StorageUnavailable,
    UnknownVersion,
)
from snapshot_engine.storage.faulty import Fault, FaultyBlobs
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.memory import MemoryBlobs

CURRENT = "ns/job/current.json"


def test_generations_go_up(job: Any, blobs: BlobStore) -> None:
    assert [job.store(blobs).acquire("uid-1") for _ in range(3)] == [1, 2, 3]


def test_the_older_driver_learns_of_its_loss_from_its_next_swap(job: Any, blobs: BlobStore) -> None:
    old = job.acquired(blobs)
    new = job.acquired(blobs)
    job.checkpoint(new)
    number = old.next_checkpoint_id()
    with pytest.raises(OwnershipLost, match=r"generation 1.*names generation 2"):
        old.complete(job.manifest(old, number), 2)
    with pytest.raises(OwnershipLost):
        old.sweep()
    with pytest.raises(OwnershipLost):
        old.complete_savepoint(job.manifest(old, number), "mine")
    latest = new.latest()
    assert latest is not None
    assert latest.generation == 2
    assert new.savepoints() == []


def test_the_lineage_stays_with_the_storage_and_is_no_other_jobs(job: Any, blobs: BlobStore, tmp_path: Path) -> None:
    first = job.acquired(blobs).lineage
    taken_over = job.store(blobs)
    taken_over.acquire("uid-2", take_over=True)
    assert taken_over.lineage == first
    namesake = job.acquired(LocalBlobs(tmp_path / "another storage")).lineage
    in_another_namespace = CheckpointStore(blobs, "other", "job")
    in_another_namespace.acquire("uid-1")
    assert len({first.id, namesake.id, in_another_namespace.lineage.id}) == 3


def test_a_copy_of_the_storage_is_another_lineage(job: Any, tmp_path: Path) -> None:
    """Original and copy count the same generations."""
    original = job.acquired(LocalBlobs(tmp_path / "original"))
    shutil.copytree(tmp_path / "original", tmp_path / "copy")
    assert job.acquired(LocalBlobs(tmp_path / "copy")).lineage.id != original.lineage.id


def test_storage_that_earlier_versions_have_had_says_up_to_which_generation(job: Any, blobs: BlobStore) -> None:
    job.acquired(blobs)
    found = blobs.read_versioned(CURRENT)
    assert found is not None
    earlier = replace(Current.decode(found[0], CURRENT), lineage=None, lineage_since=1)
    blobs.swap(CURRENT, earlier.encode(), found[1])
    assert [job.acquired(blobs).lineage.since for _ in range(2)] == [2, 2]


def test_another_jobs_storage_is_refused_unless_allowed(job: Any, blobs: BlobStore) -> None:
    job.checkpoint(job.acquired(blobs))
    with pytest.raises(BelongsToAnotherJob, match=r"current\.json belongs to the job with uid uid-1, not.*uid-2"):
        job.store(blobs).acquire("uid-2")
    taken = job.store(blobs)
    assert taken.acquire("uid-2", take_over=True) == 2
    assert taken.latest() is not None
    with pytest.raises(BelongsToAnotherJob):
        job.store(blobs).acquire("uid-1")


def test_who_may_take_over_anothers_state_is_told_how_it_is_named(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    for _ in range(2):
        job.checkpoint(store)
    told = r'write restoreFrom: "2" to take this state over \(checkpoints there: 1, 2\)'
    with pytest.raises(BelongsToAnotherJob, match=told):
        job.store(blobs).acquire("uid-2")
    taken = job.store(blobs)
    taken.acquire("uid-2", take_over=True)
    assert taken.load("2").checkpoint == 2


def test_where_another_job_has_completed_nothing_there_is_no_checkpoint_to_name(job: Any, blobs: BlobStore) -> None:
    job.acquired(blobs)
    told = r"name one of its savepoints in restoreFrom \(checkpoints there: none"
    with pytest.raises(BelongsToAnotherJob, match=told):
        job.store(blobs).acquire("uid-2")


@pytest.mark.parametrize("after", [False, True])
def test_an_acquisition_of_unknown_outcome_is_resolved(job: Any, blobs: BlobStore, after: bool) -> None:
    faulty = FaultyBlobs(blobs, Fault(1, after=after, error=OutcomeUnknown))
    store = job.store(faulty)
    assert store.acquire("uid-1") == 1
    job.checkpoint(store)
    assert "swap" in faulty.calls[1]


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("lasts", [1, 5])
def test_a_completion_of_unknown_outcome_is_resolved(job: Any, blobs: BlobStore, after: bool, lasts: int) -> None:
    faulty = FaultyBlobs(blobs)
    store = job.acquired(faulty)
    job.checkpoint(store)
    number = store.next_checkpoint_id()
    manifest = job.manifest(store, number)
    # The manifest's write is the first call; then the swap and every reading back fail for a while.
    faulty.faults.append(Fault(len(faulty.calls) + 1, after=after, error=OSError, lasts=lasts))
    store.complete(manifest, 2)
    faulty.faults.clear()
    assert [ref.checkpoint for ref in job.store(blobs).list()] == [1, number]
    job.checkpoint(store)


def test_a_swap_that_arrives_late_is_recognised(job: Any, time: Any) -> None:
    """The put is reported as unknown, is not there when read back, and takes effect only then."""

    class Late(MemoryBlobs):
        delayed: tuple[str, bytes, str | None] | None = None
        delay = False

        def swap(self, path: str, data: bytes, expected: str | None) -> str:
            if self.delay:
                self.delay = False
                self.delayed = (path, data, expected)
                raise OutcomeUnknown(path)
            if self.delayed is not None:
                arriving, self.delayed = self.delayed, None
                super().swap(*arriving)
            return super().swap(path, data, expected)

    late = Late(clock=time)
    store = job.acquired(late)
    late.delay = True
    job.checkpoint(store)
    job.checkpoint(store)
    assert [ref.checkpoint for ref in store.list()] == [1, 2]


def test_a_store_that_stays_silent_ends_the_driver(job: Any, blobs: BlobStore) -> None:
    faulty = FaultyBlobs(blobs)
    store = job.acquired(faulty)
    number = store.next_checkpoint_id()
    faulty.faults.append(Fault(len(faulty.calls) + 1, error=OSError, lasts=10_000))
    with pytest.raises(StorageUnavailable, match="has not answered for 60 s"):
        store.complete(job.manifest(store, number), 2)


def test_a_definite_failure_leaves_the_checkpoint_incomplete(job: Any, blobs: BlobStore) -> None:
    faulty = FaultyBlobs(blobs)
    store = job.acquired(faulty)
    number = store.next_checkpoint_id()
    faulty.faults.append(Fault(len(faulty.calls), error=OSError))
    with pytest.raises(OSError, match=r"write .*manifest"):
        store.complete(job.manifest(store, number), 2)
    assert store.list() == ()
    job.checkpoint(store)


def test_storage_that_cannot_be_written_is_said_at_once(job: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StorageError, match=r"cannot be used: .*file.*may read and write"):
        job.store(LocalBlobs(tmp_path / "file"), patience=0).acquire("uid-1")


def test_a_driver_that_was_replaced_names_a_file_that_is_there(job: Any, tmp_path: Path) -> None:
    old = job.acquired(LocalBlobs(tmp_path))
    job.acquired(LocalBlobs(tmp_path))
    with pytest.raises(OwnershipLost) as lost:
        old.sweep()
    named = re.search(r"file://(\S+)", str(lost.value))
    assert named is not None and Path(named[1]).is_file()


def test_an_altered_current_is_reported_and_not_taken_for_an_empty_storage(job: Any, blobs: MemoryBlobs) -> None:
    job.checkpoint(job.acquired(blobs))
    data = blobs.read(CURRENT)
    for altered in (data[:-10], data.replace(b'"generation":1', b'"generation":7'), b""):
        blobs.write(CURRENT, [altered])
        with pytest.raises(CorruptCheckpoint, match=r"current\.json is corrupt"):
            job.store(blobs).acquire("uid-1")


def test_a_current_of_a_newer_release_is_refused(job: Any, blobs: MemoryBlobs) -> None:
    job.acquired(blobs)
    blobs.write(CURRENT, [blobs.read(CURRENT).replace(b'"version":1', b'"version":9')])
    with pytest.raises(UnknownVersion, match="format version 9, but this release knows versions up to 1"):
        job.store(blobs).acquire("uid-1")


DRIVER = """
import sys, time
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.errors import OwnershipLost
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.manifest import Manifest

store = CheckpointStore(LocalBlobs(sys.argv[1]), "ns", "job")
generation = store.acquire("uid-1")
try:
    while True:
        number = store.next_checkpoint_id()
        manifest = Manifest(number, generation, "job", "uid-1", time.time(), time.time(), 128)
        for replaced in store.complete(manifest, 3):
            store.delete_checkpoint(replaced)
        print(number, flush=True)
except OwnershipLost as error:
    print("lost", error.found, flush=True)
"""


def _start_driver(root: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(DRIVER), str(root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("pause", [0.0, 0.003, 0.011])
def test_a_driver_that_is_stopped_replaced_and_resumed_does_no_harm(tmp_path: Path, job: Any, pause: float) -> None:
    driver = _start_driver(tmp_path)
    assert driver.stdout is not None
    try:
        for _ in range(5):
            driver.stdout.readline()
        clock.sleep(pause)
        os.kill(driver.pid, signal.SIGSTOP)
        new = job.acquired(LocalBlobs(tmp_path))
        made = [job.checkpoint(new, retained=3).checkpoint for _ in range(20)]
        os.kill(driver.pid, signal.SIGCONT)
        lines = driver.stdout.read().split("\n")
        assert driver.wait(30) == 0
    finally:
        driver.kill()
        driver.stdout.close()
    assert lines[-2] == "lost 2"
    old = [int(line) for line in lines if line.isdigit()]
    assert not set(old) & set(made)
    assert [ref.checkpoint for ref in new.list()] == made[-3:]
    for ref in new.list():
        assert new.load(ref).checkpoint == ref.checkpoint
    job.checkpoint(new)


def test_a_numbered_driver_that_starts_late_does_not_take_the_storage_from_its_successor(
    job: Any, blobs: BlobStore
) -> None:
    job.store(blobs).acquire("uid-1", driver=4)
    with pytest.raises(OwnershipLost):
        job.store(blobs).acquire("uid-1", driver=3)
    with pytest.raises(OwnershipLost):
        job.store(blobs).acquire("uid-1", driver=4)
    assert job.store(blobs).acquire("uid-1", driver=5) == 2


def test_drivers_of_a_job_that_takes_the_state_over_are_numbered_anew(job: Any, blobs: BlobStore) -> None:
    job.store(blobs).acquire("uid-1", driver=7)
    assert job.store(blobs).acquire("uid-2", take_over=True, driver=1) == 2
