"""Completing, keeping, deleting and restoring checkpoints, with a crash at every step."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.checkpoint_store import WAY_BACK_SECONDS, CheckpointStore
from snapshot_engine.storage.errors import CorruptCheckpoint, NoIdsLeft, NoSuchCheckpoint, StorageError
from snapshot_engine.storage.faulty import Crashed, Fault, FaultyBlobs
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.memory import MemoryBlobs
from snapshot_engine.storage.pieces import PieceReader
from snapshot_engine.wire.control import FIRST_LINE

Paths = Callable[[BlobStore], list[str]]


def _verify(store: CheckpointStore) -> None:
    """Whatever the store lists can be restored, piece by piece."""
    reader = PieceReader(store.blobs, store.where)
    for ref in store.list():
        manifest = store.load(ref)
        assert manifest.checkpoint == ref.checkpoint
        for handle in manifest.handles():
            reader.read_table(handle)


def test_only_the_newest_checkpoints_are_kept(job: Any, blobs: BlobStore, paths: Paths) -> None:
    store = job.acquired(blobs)
    for _ in range(5):
        job.checkpoint(store, retained=2)
    assert [ref.checkpoint for ref in store.list()] == [4, 5]
    assert {path.split("/")[1] for path in paths(blobs)} == {"4-1", "5-1"}
    _verify(store)


def test_ids_that_have_run_out_are_reserved_again(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    taken = [store.next_checkpoint_id() for _ in range(16)]
    assert store.ids_run_out
    with pytest.raises(NoIdsLeft, match="no new checkpoint ids since 16"):
        store.next_checkpoint_id()
    store.reserve_ids()
    assert not store.ids_run_out
    assert store.next_checkpoint_id() == taken[-1] + 1


def test_why_there_are_no_new_ids_is_told(job: Any, blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store = job.acquired(blobs)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(store, "_update", refuse)
        with pytest.raises(OSError):
            store.reserve_ids()
    with pytest.raises(NoIdsLeft, match=r"no new checkpoint ids since 16: .*No space left on device"):
        for _ in range(17):
            store.next_checkpoint_id()


def test_a_pinned_checkpoint_outlives_the_limit(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    for _ in range(3):
        number = store.next_checkpoint_id()
        store.complete(job.manifest(store, number), 1, pinned={1})
    assert [ref.checkpoint for ref in store.list()] == [1, 3]


def test_a_retained_checkpoint_cannot_be_deleted(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    job.checkpoint(store)
    with pytest.raises(ValueError, match="checkpoint 1 is retained"):
        store.delete_checkpoint(store.latest())


def test_checkpoints_complete_in_the_order_of_their_ids(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    first, second = store.next_checkpoint_id(), store.next_checkpoint_id()
    store.complete(job.manifest(store, second), 2)
    with pytest.raises(ValueError, match="checkpoint 1 after 2"):
        store.complete(job.manifest(store, first), 2)


def test_ids_are_never_used_twice_by_any_driver(job: Any, blobs: BlobStore) -> None:
    used: list[int] = []
    for driver in range(6):
        store = job.acquired(blobs)
        for step in range(7 * driver):
            used.append(store.next_checkpoint_id())
            if step % 5 == 4:
                store.complete(job.manifest(store, used[-1]), 2)
    assert len(used) == len(set(used))
    assert used == sorted(used)


def test_a_driver_that_ends_in_good_order_leaves_no_gap(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    used = [store.next_checkpoint_id() for _ in range(3)]
    store.release()
    assert [*used, job.acquired(blobs).next_checkpoint_id()] == [1, 2, 3, 4]


def test_a_new_driver_sees_what_the_old_one_completed(job: Any, blobs: BlobStore) -> None:
    job.checkpoint(job.acquired(blobs))
    new = job.acquired(blobs)
    assert new.load().vertices["count"].subtasks[0].operators[0].meta == {"checkpoint": 1}
    _verify(new)


STEPS = 7
"""How many calls a checkpoint with its deletion of the one before makes to the store."""
SWAP = 2
"""Which of them makes it complete."""


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(STEPS))
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
def test_a_crash_at_any_step_leaves_the_old_or_the_new_checkpoint(
    job: Any, blobs: BlobStore, paths: Paths, step: int, after: bool, shared: bool
) -> None:
    faulty = FaultyBlobs(blobs)
    store = job.acquired(faulty)
    job.checkpoint(store, retained=1, shared=shared)
    faulty.faults.append(Fault(len(faulty.calls) + step, after=after, error=Crashed))
    with pytest.raises(Crashed):
        job.checkpoint(store, retained=1, shared=shared)
    new = job.acquired(blobs)
    completed = step > SWAP or (step == SWAP and after)
    assert [ref.checkpoint for ref in new.list()] == ([2] if completed else [1])
    _verify(new)
    job.time.now += 7200
    new.sweep()
    _verify(new)
    kept = new.load()
    wanted = {handle.path for handle in kept.handles()} | {f"checkpoints/{kept.checkpoint}-1/manifest.json"}
    assert set(paths(blobs)) == wanted


def test_the_crash_points_above_are_all_there_are(job: Any, blobs: BlobStore) -> None:
    faulty = FaultyBlobs(blobs)
    store = job.acquired(faulty)
    job.checkpoint(store, retained=1)
    before = len(faulty.calls)
    job.checkpoint(store, retained=1)
    assert len(faulty.calls) - before == STEPS
    assert faulty.calls[before + SWAP] == "swap ns/job/current.json"


def test_an_aborted_checkpoint_is_discarded_with_what_nobody_acknowledged(
    job: Any, blobs: BlobStore, paths: Paths
) -> None:
    store = job.acquired(blobs)
    kept = job.checkpoint(store, shared=True)
    number = store.next_checkpoint_id()
    writer = job.writer(store, number)
    writer.write_bytes("never acknowledged", b"x" * 100)
    own = writer.write_bytes("shared", b"x" * 100, shared=True)
    store.discard([own, *kept.handles()], checkpoint=number)
    _verify(store)
    assert {path.split("/")[0] for path in paths(blobs)} == {"checkpoints", "shared"}
    assert not any(path.startswith(f"checkpoints/{number}-") for path in paths(blobs))
    assert store.deleted_among([own, *kept.handles()]) == [own.path]


def test_a_shared_piece_lives_as_long_as_a_manifest_names_it(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    first = job.checkpoint(store, retained=1, shared=True)
    (base,) = first.handles()
    for _ in range(3):
        number = store.next_checkpoint_id()
        delta = job.writer(store, number).write_table("delta", pa.table({"n": [number]}), shared=True)
        for replaced in store.complete(job.manifest(store, number, base, delta), 1):
            store.delete_checkpoint(replaced)
        _verify(store)
    job.checkpoint(store, retained=1, shared=True)
    with pytest.raises(FileNotFoundError):
        blobs.read(store.where.absolute(base.path))


def test_a_shared_piece_waits_for_checkpoints_that_were_pending_when_it_was_given_up(
    job: Any, blobs: BlobStore
) -> None:
    store = job.acquired(blobs)
    (base,) = job.checkpoint(store, shared=True).handles()
    late, number = store.next_checkpoint_id(), store.next_checkpoint_id()
    (replaced,) = store.complete(job.manifest(store, number), 1)
    store.delete_checkpoint(replaced, pending={number + 1, late})
    assert blobs.read(store.where.absolute(base.path))
    following = store.next_checkpoint_id()
    (replaced,) = store.complete(job.manifest(store, following), 1)
    store.delete_checkpoint(replaced, pending={following + 1})
    assert store.deleted_among([base]) == [base.path]


def test_a_shared_piece_that_a_pending_checkpoint_has_acknowledged_stays(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    (base,) = job.checkpoint(store, shared=True).handles()
    (replaced,) = store.complete(job.manifest(store, store.next_checkpoint_id()), 1)
    pending = store.next_checkpoint_id()
    store.delete_checkpoint(replaced, references={base.path})
    store.complete(job.manifest(store, pending, base), 1)
    _verify(store)


def test_a_checkpoint_whose_pieces_were_deleted_before_it_completed_does_not(job: Any, blobs: BlobStore) -> None:
    """It was triggered, and acknowledged, between the decision to clean up and the cleaning."""
    store = job.acquired(blobs)
    (base,) = job.checkpoint(store, shared=True).handles()
    (replaced,) = store.complete(job.manifest(store, store.next_checkpoint_id()), 1)
    number = store.next_checkpoint_id()
    store.delete_checkpoint(replaced, pending=(), references=())
    with pytest.raises(StorageError, match="deleted meanwhile"):
        store.complete(job.manifest(store, number, base), 1)
    _verify(store)


def test_a_checkpoint_that_did_not_complete_can_be_discarded_with_its_shared_pieces(
    job: Any, blobs: BlobStore, paths: Paths
) -> None:
    faulty = FaultyBlobs(blobs)
    store = job.acquired(faulty)
    number = store.next_checkpoint_id()
    piece = job.writer(store, number).write_bytes("x", b"x" * 100, shared=True)
    faulty.faults.append(Fault(len(faulty.calls) + 1, error=PermissionError))
    with pytest.raises(PermissionError):
        store.complete(job.manifest(store, number, piece), 1)
    store.discard([piece], checkpoint=number)
    assert paths(blobs) == []


def test_while_a_retained_manifest_cannot_be_read_no_shared_piece_is_given_up(
    job: Any, blobs: MemoryBlobs, paths: Paths
) -> None:
    old = job.acquired(blobs)
    for _ in range(2):
        job.checkpoint(old, shared=True)
    damaged = blobs.read("ns/job/checkpoints/2-1/manifest.json")[:-20]
    blobs.write("ns/job/checkpoints/2-1/manifest.json", [damaged])
    new = job.acquired(blobs)
    (replaced,) = new.complete(job.manifest(new, new.next_checkpoint_id()), 2)
    new.delete_checkpoint(replaced)
    job.time.now += 7200
    new.sweep()
    left = paths(blobs)
    assert len([path for path in left if path.startswith("shared/")]) == 2
    assert not any(path.startswith("checkpoints/1-1/") for path in left)
    (replaced,) = new.complete(job.manifest(new, new.next_checkpoint_id()), 2)
    new.delete_checkpoint(replaced)
    new.sweep()
    assert not any(path.startswith("shared/") for path in paths(blobs))


def test_quick_calls_do_not_wait_for_a_completion_that_hangs(job: Any, blobs: BlobStore) -> None:
    hanging, answer = threading.Event(), threading.Event()

    class Hanging(FaultyBlobs):
        def swap(self, path: str, data: bytes, expected: str | None) -> str:
            if threading.current_thread() is not threading.main_thread():
                hanging.set()
                answer.wait(30)
            return super().swap(path, data, expected)

    store = job.acquired(Hanging(blobs))
    number = store.next_checkpoint_id()
    thread = threading.Thread(target=store.complete, args=(job.manifest(store, number), 2))
    thread.start()
    assert hanging.wait(30)
    assert store.next_checkpoint_id() == number + 1
    store.note_aborted({"id": number + 1, "outcome": "Aborted"})
    assert [entry["id"] for entry in store.history()] == [number + 1]
    assert store.deleted_among([]) == []
    assert store.latest() is None
    answer.set()
    thread.join()
    assert [entry["id"] for entry in store.history()] == [number, number + 1]
    assert store.latest() is not None


def test_a_new_driver_counts_its_predecessors_references(job: Any, blobs: BlobStore) -> None:
    old = job.acquired(blobs)
    (base,) = job.checkpoint(old, shared=True).handles()
    second = old.next_checkpoint_id()
    old.complete(job.manifest(old, second, base), 2)
    new = job.acquired(blobs)
    (replaced,) = new.complete(job.manifest(new, new.next_checkpoint_id()), 2)
    assert replaced.checkpoint == 1
    new.delete_checkpoint(replaced)
    _verify(new)


def test_the_sweep_removes_what_older_drivers_left_and_nothing_that_is_needed(
    job: Any, blobs: MemoryBlobs, paths: Paths
) -> None:
    old = job.acquired(blobs)
    job.checkpoint(old, shared=True)
    lost = old.next_checkpoint_id()
    writer = job.writer(old, lost)
    writer.write_bytes("lost", b"x" * 100)
    writer.write_bytes("lost", b"x" * 100, shared=True)
    old.complete_savepoint(job.manifest(old, lost), "mine")
    blobs.write("ns/job/savepoints/half/piece", [b"x"])
    blobs.write("ns/job/shared/.0123.partial", [b"x"])
    blobs.write("ns/job/notes.txt", [b"not ours"])
    new = job.acquired(blobs)
    pending = new.next_checkpoint_id()
    job.writer(new, pending).write_bytes("pending", b"x" * 100)
    before = paths(blobs)
    assert new.sweep(min_age=3600, pending={pending}) == 0
    job.time.now += 7200
    assert new.sweep(min_age=3600, pending={pending}) == 4
    gone = set(before) - set(paths(blobs))
    assert {path.split("/")[0] for path in gone} == {"checkpoints", "shared", "savepoints"}
    assert all(f"{lost}-1" in path or "/half/" in path or path.startswith("shared/") for path in gone)
    _verify(new)
    assert new.savepoints() == ["savepoints/mine"]


def test_what_a_newer_driver_writes_is_left_alone(job: Any, blobs: MemoryBlobs) -> None:
    store = job.acquired(blobs)
    blobs.write("ns/job/checkpoints/9-7/v/piece", [b"x"])
    blobs.write("ns/job/shared/7-v-0-1-9-1-x", [b"x"])
    job.time.now += 7200
    assert store.sweep() == 0


# Savepoints


def test_a_savepoint_is_whole_in_itself_and_can_be_moved(job: Any, tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "storage")
    store = job.acquired(blobs)
    (base,) = job.checkpoint(store, shared=True).handles()
    number = store.next_checkpoint_id()
    writer = job.writer(store, number)
    own = writer.write_table("own", pa.table({"n": [7]}))
    inline = replace(writer.write_bytes("inline", b"abc"), inline=b"abc")
    uri = store.complete_savepoint(job.manifest(store, number, base, own, inline, base), "before upgrade")
    assert store.savepoints() == ["savepoints/before~20upgrade"]
    moved = tmp_path / "else where" / "moved"
    moved.parent.mkdir()
    (tmp_path / "storage/ns/job/savepoints/before~20upgrade").rename(moved)
    with pytest.raises(NoSuchCheckpoint, match="there is no savepoint"):
        store.load(uri)
    other = CheckpointStore(LocalBlobs(tmp_path / "other"), "ns", "other")
    for place in (str(moved), moved.as_uri(), str(moved / "manifest.json")):
        manifest = other.load(place)
        reader = PieceReader(other.blobs, other.where)
        handles = list(manifest.handles())
        assert not any(handle.shared for handle in handles)
        assert reader.read_table(handles[0])["n"].to_pylist() == [1] * 100
        assert reader.read_table(handles[1])["n"].to_pylist() == [7]
        assert reader.read_bytes(handles[2]) == b"abc"
        assert handles[0] == handles[3]


def test_a_savepoint_replaces_nothing_and_is_not_the_latest(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    job.checkpoint(store)
    store.complete_savepoint(job.manifest(store, store.next_checkpoint_id()), "one")
    assert [ref.checkpoint for ref in store.list()] == [1]
    assert store.load("savepoints/one").savepoint == "one"
    assert store.history()[-1]["savepoint"] == "one"


def test_a_savepoints_name_is_taken_once(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    store.complete_savepoint(job.manifest(store, store.next_checkpoint_id()), "one")
    with pytest.raises(StorageError, match="there is a savepoint 'one' already"):
        store.complete_savepoint(job.manifest(store, store.next_checkpoint_id()), "one")


def test_a_savepoint_whose_name_is_asked_for_again_stays_as_it_is(job: Any, blobs: BlobStore) -> None:
    """Pieces of two checkpoints of one attempt have the same names in their folders."""
    store = job.acquired(blobs)
    for number in (store.next_checkpoint_id(), store.next_checkpoint_id()):
        piece = job.writer(store, number).write_table("own", pa.table({"n": [number]}))
        with contextlib.suppress(StorageError):
            store.complete_savepoint(job.manifest(store, number, piece), "one")
    (kept,) = store.load("savepoints/one").handles()
    assert PieceReader(blobs, store.where).read_table(kept)["n"].to_pylist() == [1]


def test_a_savepoint_takes_along_what_a_finished_subtask_has_elsewhere(
    job: Any, blobs: BlobStore, tmp_path: Path
) -> None:
    first = job.acquired(LocalBlobs(tmp_path))
    (piece,) = job.checkpoint(first).handles()
    first.complete_savepoint(job.manifest(first, first.next_checkpoint_id(), piece), "one")
    store = job.acquired(blobs)
    (elsewhere,) = store.load(str(tmp_path / "ns/job/savepoints/one")).handles()
    store.complete_savepoint(job.manifest(store, store.next_checkpoint_id(), elsewhere), "two")
    (own,) = store.load("savepoints/two").handles()
    assert "://" not in own.path
    assert PieceReader(blobs, store.where).read_table(own).num_rows == 100


@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_while_a_savepoint_is_made_leaves_a_whole_one_or_none(
    job: Any, blobs: BlobStore, paths: Paths, step: int, after: bool
) -> None:
    faulty = FaultyBlobs(blobs)
    store = job.acquired(faulty)
    (piece,) = job.checkpoint(store).handles()
    manifest = job.manifest(store, store.next_checkpoint_id(), piece)
    faulty.faults.append(Fault(len(faulty.calls) + step, after=after, error=Crashed))
    with pytest.raises(Crashed):
        store.complete_savepoint(manifest, "one")
    new = job.acquired(blobs)
    reader = PieceReader(blobs, new.where)
    for path in new.savepoints():
        for handle in new.load(path).handles():
            reader.read_table(handle)
    job.time.now += 7200
    new.sweep()
    left = [path for path in paths(blobs) if path.startswith("savepoints/")]
    assert bool(left) == bool(new.savepoints())
    _verify(new)


def test_a_savepoint_can_be_deleted(job: Any, blobs: BlobStore, paths: Paths) -> None:
    store = job.acquired(blobs)
    (piece,) = job.checkpoint(store).handles()
    store.complete_savepoint(job.manifest(store, store.next_checkpoint_id(), piece), "one")
    store.delete_savepoint("one")
    assert store.savepoints() == []
    assert not any(path.startswith("savepoints/") for path in paths(blobs))
    _verify(store)


def test_another_jobs_checkpoint_can_be_restored_by_its_folder(job: Any, tmp_path: Path) -> None:
    store = job.acquired(LocalBlobs(tmp_path))
    job.checkpoint(store)
    other = CheckpointStore(MemoryBlobs(), "ns", "other")
    (handle,) = other.load(str(tmp_path / "ns/job/checkpoints/1-1")).handles()
    assert PieceReader(other.blobs, other.where).read_table(handle).num_rows == 100


# What is not there, and what is damaged


def test_asking_for_what_is_not_there_says_what_is(job: Any, blobs: BlobStore, tmp_path: Path) -> None:
    store = job.acquired(blobs)
    with pytest.raises(NoSuchCheckpoint, match="has no completed checkpoint; retained: none"):
        store.load()
    for _ in range(2):
        job.checkpoint(store)
    for wanted in (7, "7"):
        with pytest.raises(NoSuchCheckpoint, match="no checkpoint 7; retained: 1, 2"):
            store.load(wanted)
    with pytest.raises(NoSuchCheckpoint, match=r"there is no savepoint .*/savepoints/x; savepoints there: none"):
        store.load("savepoints/x")
    with pytest.raises(NoSuchCheckpoint, match=r"no manifest\.json in file://.*/nowhere"):
        store.load(str(tmp_path / "nowhere"))
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered"])
@pytest.mark.parametrize("what", ["manifest", "piece"])
def test_damage_is_found_and_says_where(job: Any, blobs: MemoryBlobs, damage: str, what: str) -> None:
    store = job.acquired(blobs)
    (handle,) = job.checkpoint(store).handles()
    path = store.where.absolute(handle.path if what == "piece" else "checkpoints/1-1/manifest.json")
    data = blobs.read(path)
    if damage == "missing":
        blobs.delete([path])
    else:
        middle = len(data) // 2
        blobs.write(path, [data[:middle] if damage == "truncated" else _flip(data, middle)])
    with pytest.raises(CorruptCheckpoint) as caught:
        _verify(store)
    assert caught.value.path.endswith(path if what == "manifest" else handle.path)
    found = {"missing": "no such file", "truncated": f"{len(data) // 2} bytes", "altered": "crc32:"}[damage]
    assert found in caught.value.found
    assert str(len(data)) in caught.value.expected or "crc32:" in caught.value.expected


def _flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :]


def test_the_history_tells_of_completed_and_aborted_ones_over_drivers(job: Any, blobs: BlobStore) -> None:
    store = job.acquired(blobs)
    job.checkpoint(store)
    store.note_aborted({"id": 2, "outcome": "Aborted", "reason": "timeout"})
    assert [(entry["id"], entry["outcome"]) for entry in store.history()] == [(1, "Completed"), (2, "Aborted")]
    store.next_checkpoint_id()
    job.checkpoint(store)
    entries = job.store(blobs).history()
    assert [(entry["id"], entry["outcome"]) for entry in entries] == [
        (1, "Completed"),
        (2, "Aborted"),
        (3, "Completed"),
    ]
    assert entries[0]["sizeBytes"] > 0
    assert entries[0]["completedAt"] - entries[0]["triggeredAt"] == 1


def test_what_two_threads_save_at_once_is_saved_once(job: Any, blobs: MemoryBlobs) -> None:
    """Ids are reserved while a checkpoint completes."""
    store = job.acquired(blobs)
    reserving = threading.Thread(target=store.reserve_ids)
    swap = blobs.swap

    def slow(path: str, data: bytes, expected: str | None) -> str:
        blobs.swap = swap  # type: ignore[method-assign]
        store.note_aborted({"id": 7, "outcome": "Aborted"})
        reserving.start()
        reserving.join(0.2)
        return swap(path, data, expected)

    store.note_aborted({"id": 6, "outcome": "Aborted"})
    blobs.swap = slow  # type: ignore[method-assign]
    store.reserve_ids()
    reserving.join()
    assert [entry["id"] for entry in job.acquired(blobs).history()] == [6, 7]


def test_a_store_that_was_not_acquired_only_looks(job: Any, blobs: BlobStore) -> None:
    job.checkpoint(job.acquired(blobs))
    looking = job.store(blobs)
    assert [ref.checkpoint for ref in looking.list()] == [1]
    assert looking.load().checkpoint == 1
    with pytest.raises(StorageError, match="has not been acquired"):
        looking.next_checkpoint_id()


def test_a_restore_is_done_when_it_has_led_to_a_checkpoint(job: Any, blobs: BlobStore) -> None:
    def driver(restore_id: str | None) -> CheckpointStore:
        store: CheckpointStore = job.store(blobs)
        store.acquire("uid-1", restore_id=restore_id)
        return store

    assert not driver("upgrade-2").restore_is_done
    second = driver("upgrade-2")
    assert not second.restore_is_done, "the first one completed nothing"
    job.checkpoint(second)
    assert driver("upgrade-2").restore_is_done
    job.checkpoint(driver(None))
    assert driver("upgrade-2").restore_is_done, "a driver that was told nothing does not forget it"
    assert not driver("upgrade-3").restore_is_done


def _driver_of(job: Any, blobs: BlobStore, restore_id: str | None, checkpoints: int = 0) -> CheckpointStore:
    store: CheckpointStore = job.store(blobs)
    store.acquire("uid-1", restore_id=restore_id)
    for _ in range(checkpoints):
        job.checkpoint(store, retained=1)
    return store


@pytest.mark.parametrize("before", [FIRST_LINE, "upgrade-2"])
def test_a_restore_that_is_rolled_back_is_as_if_it_had_never_been(job: Any, blobs: BlobStore, before: str) -> None:
    """However many checkpoints came after it."""
    _driver_of(job, blobs, None if before == FIRST_LINE else before, checkpoints=3)
    _driver_of(job, blobs, "stateless-3", checkpoints=3)
    back = _driver_of(job, blobs, before)
    assert not back.restore_is_done and back.left_line is not None
    manifest = back.end_of(back.left_line)
    assert manifest is not None and manifest.checkpoint == 3
    _verify(back)
    job.checkpoint(back, retained=1)
    assert _driver_of(job, blobs, before).restore_is_done, "and a restart does not go back again"
    assert _driver_of(job, blobs, "stateless-3").left_line is not None


def test_a_line_that_completed_nothing_is_gone_back_to_with_nothing(job: Any, blobs: BlobStore) -> None:
    _driver_of(job, blobs, None)
    _driver_of(job, blobs, "stateless-3", checkpoints=1)
    back = _driver_of(job, blobs, FIRST_LINE)
    assert back.left_line is not None and back.end_of(back.left_line) is None


def test_nothing_is_left_by_a_restore_that_completes_nothing(job: Any, blobs: BlobStore) -> None:
    _driver_of(job, blobs, None, checkpoints=2)
    _driver_of(job, blobs, "stateless-3")
    back = _driver_of(job, blobs, FIRST_LINE)
    assert back.restore_is_done and back.load().checkpoint == 2


def test_the_way_back_is_kept_for_a_day_and_then_missed_aloud(job: Any, blobs: BlobStore, time: Any) -> None:
    _driver_of(job, blobs, None, checkpoints=1)
    driver = _driver_of(job, blobs, "stateless-3", checkpoints=1)
    time.sleep(WAY_BACK_SECONDS - 1)
    job.checkpoint(driver, retained=1)
    assert [ref.checkpoint for ref in driver.list()] == [1, driver.list()[-1].checkpoint]
    time.sleep(2)
    job.checkpoint(driver, retained=1)
    assert len(driver.list()) == 1
    back = _driver_of(job, blobs, FIRST_LINE)
    assert back.left_line is not None
    with pytest.raises(NoSuchCheckpoint, match=r"1-1, which is deleted: it is kept for 24 hours.*restoreFrom"):
        back.end_of(back.left_line)


def test_of_many_restores_two_ways_back_are_kept(job: Any, blobs: BlobStore) -> None:
    for number in range(12):
        last = _driver_of(job, blobs, f"upgrade-{number}", checkpoints=2)
    assert len(last.list()) == 3
    older = _driver_of(job, blobs, "upgrade-8")
    assert older.left_line is not None
    with pytest.raises(NoSuchCheckpoint):
        older.end_of(older.left_line)
    assert _driver_of(job, blobs, "upgrade-9").left_line is not None


def test_deleting_a_jobs_state_leaves_its_savepoints_and_other_jobs_alone(
    job: Any, blobs: BlobStore, paths: Paths
) -> None:
    store = job.acquired(blobs)
    job.checkpoint(store)
    number = store.next_checkpoint_id()
    store.complete_savepoint(job.manifest(store, number), "mine")
    store.delete_all_but_savepoints("another uid")
    assert job.store(blobs).latest() is not None
    store.delete_all_but_savepoints("uid-1")
    assert {path.split("/")[0] for path in paths(blobs)} == {"savepoints"}
    assert job.store(blobs).load("savepoints/mine").checkpoint == number


@pytest.mark.parametrize("survived", range(12))
def test_a_deletion_cut_short_leaves_no_record_of_what_is_gone(job: Any, tmp_path: Path, survived: int) -> None:
    blobs = LocalBlobs(tmp_path)
    store = job.acquired(blobs)
    job.checkpoint(store)
    deleted: list[str] = []
    real = blobs.delete

    def cut_short(paths: Iterable[str]) -> None:
        for path in paths:
            if len(deleted) == survived:
                raise KeyboardInterrupt
            deleted.append(path)
            real([path])

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(blobs, "delete", cut_short)
        job.store(blobs).delete_all_but_savepoints("uid-1")
    _verify(job.store(blobs))
