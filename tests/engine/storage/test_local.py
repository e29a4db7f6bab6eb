"""The local store where it differs: crashes, full disks, and processes that sleep in the middle of a swap."""

from __future__ import annotations

import contextlib
import errno
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from snapshot_engine.storage import local
from snapshot_engine.storage.blobs import OutcomeUnknown, SwapConflict
from snapshot_engine.storage.local import LocalBlobs

CURRENT = "job/current.json"


@pytest.fixture
def blobs(tmp_path: Path) -> LocalBlobs:
    return LocalBlobs(tmp_path)


def _files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def _full_disk(*_: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_no_half_file(blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs.write("a/old", [b"old"])
    monkeypatch.setattr(local.os, "fsync", _full_disk)
    for exclusive in (False, True):
        with pytest.raises(OSError, match=rf"No space left on device: '{blobs.root}/a/new'"):
            blobs.write("a/new", [b"x" * 100], exclusive=exclusive)
    assert _files(blobs.root) == ["a/old"]


def test_a_disk_that_is_full_while_buffers_are_made_leaves_no_half_file(blobs: LocalBlobs) -> None:
    def buffers() -> Any:
        yield b"x" * 100
        _full_disk()

    with pytest.raises(OSError, match="No space left"):
        blobs.write("a/new", buffers())
    assert _files(blobs.root) == []


def test_a_write_that_is_cut_short_goes_on(blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the kernel does it beyond two gigabytes, or when a signal comes."""
    whole = os.writev

    def a_few_bytes(descriptor: int, views: list[memoryview]) -> int:
        return whole(descriptor, [view[: min(3, len(view))] for view in views[:2]][: 2 if len(views[0]) <= 3 else 1])

    monkeypatch.setattr(local.os, "writev", a_few_bytes)
    assert blobs.write("a/new", [b"abc", b"", memoryview(b"defgh"), b"ijklmnop"]) == 16
    assert blobs.read("a/new") == b"abcdefghijklmnop"


def test_buffers_are_written_together(blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """After every call the writing thread has to wait for the interpreter, which is busy with the job."""
    calls: list[int] = []
    whole = os.writev

    def counted(descriptor: int, views: list[memoryview]) -> int:
        calls.append(len(views))
        return whole(descriptor, views)

    monkeypatch.setattr(local.os, "writev", counted)
    blobs.write("a/new", [bytes(100_000)] * 50)
    assert calls == [50]


def test_what_is_made_while_it_is_written_is_not_all_kept_until_the_end(blobs: LocalBlobs) -> None:
    alive: list[int] = [0, 0]

    class Counted(bytearray):
        def __del__(self) -> None:
            alive[0] -= 1

    def buffers() -> Any:
        for _ in range(20):
            alive[0] += 1
            alive[1] = max(alive)
            yield Counted(8 << 20)

    blobs.write("a/new", buffers())
    assert alive[1] <= 8


def test_a_full_disk_in_a_swap_is_known_not_to_have_swapped(blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    version = blobs.swap(CURRENT, b"one", None)
    with monkeypatch.context() as patch:
        patch.setattr(local.os, "fsync", _full_disk)
        with pytest.raises(OSError, match="No space left"):
            blobs.swap(CURRENT, b"two", version)
    assert blobs.read_versioned(CURRENT) == (b"one", version)
    assert blobs.swap(CURRENT, b"two", version) != version
    assert not any("partial" in name for name in _files(blobs.root))


def test_a_swap_whose_folder_cannot_be_synced_is_of_unknown_outcome(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = blobs.swap(CURRENT, b"one", None)
    with monkeypatch.context() as patch:
        patch.setattr(local, "fsync_folder", _full_disk)
        with pytest.raises(OutcomeUnknown):
            blobs.swap(CURRENT, b"two", version)
    found = blobs.read_versioned(CURRENT)
    assert found is not None
    assert found[0] == b"two"


def _asleep_before_link(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], None]) -> None:
    """The next link is made only after `meanwhile` has happened: as if the process had been stopped there."""
    link = os.link

    def resumed(source: Any, target: Any) -> None:
        monkeypatch.setattr(local.os, "link", link)
        meanwhile()
        link(source, target)

    monkeypatch.setattr(local.os, "link", resumed)


def test_a_process_stopped_before_its_link_finds_that_it_has_been_overtaken(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = blobs.swap(CURRENT, b"one", None)
    other = LocalBlobs(blobs.root)
    _asleep_before_link(monkeypatch, lambda: void(other.swap(CURRENT, b"other", version)))
    with pytest.raises(SwapConflict):
        blobs.swap(CURRENT, b"mine", version)
    found = other.read_versioned(CURRENT)
    assert found is not None
    assert found[0] == b"other"


def test_a_process_that_slept_until_its_version_was_deleted_does_not_believe_its_own_link(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = blobs.swap(CURRENT, b"one", None)
    other = LocalBlobs(blobs.root)

    def many_swaps() -> None:
        seen = version
        for number in range(local._KEPT_VERSIONS * 3):
            seen = other.swap(CURRENT, b"other %d" % number, seen)

    _asleep_before_link(monkeypatch, many_swaps)
    with pytest.raises(OutcomeUnknown):
        blobs.swap(CURRENT, b"mine", version)
    found = other.read_versioned(CURRENT)
    assert found is not None
    assert found[0] == b"other %d" % (local._KEPT_VERSIONS * 3 - 1)


def test_old_versions_do_not_pile_up(blobs: LocalBlobs) -> None:
    version = None
    for number in range(local._KEPT_VERSIONS * 4):
        version = blobs.swap(CURRENT, b"%d" % number, version)
    assert len(_files(blobs.root)) == local._KEPT_VERSIONS


def test_a_link_whose_answer_was_lost_counts(blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS: the link is made, its answer is lost, and the repetition says that the name exists."""
    link = os.link

    def twice(source: Any, target: Any) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(local.os, "link", twice)
    version = blobs.swap(CURRENT, b"one", None)
    assert blobs.read_versioned(CURRENT) == (b"one", version)


@pytest.mark.parametrize("linked", [True, False])
def test_a_link_that_was_not_answered_is_of_unknown_outcome(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    link = os.link

    def unanswered(source: Any, target: Any) -> None:
        if linked:
            link(source, target)
        raise OSError(errno.EIO, "the file server does not answer")

    monkeypatch.setattr(local.os, "link", unanswered)
    with pytest.raises(OutcomeUnknown):
        blobs.swap(CURRENT, b"one", None)
    assert (blobs.read_versioned(CURRENT) is not None) == linked


def test_a_swap_counts_although_its_private_file_cannot_be_deleted(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "unlink", refuse)
    version = blobs.swap(CURRENT, b"one", None)
    assert blobs.read_versioned(CURRENT) == (b"one", version)


def test_what_a_crash_left_in_the_versions_folder_is_no_version(blobs: LocalBlobs) -> None:
    version = blobs.swap(CURRENT, b"one", None)
    (blobs.root / "job/current/.0123.partial").write_bytes(b"half")
    assert blobs.read_versioned(CURRENT) == (b"one", version)


def test_empty_folders_go_with_their_last_file(blobs: LocalBlobs) -> None:
    blobs.write("job/checkpoints/1-1/v/piece", [b"x"])
    blobs.write("job/shared/piece", [b"x"])
    blobs.delete(["job/checkpoints/1-1/v/piece"])
    assert not (blobs.root / "job/checkpoints").exists()
    assert (blobs.root / "job/shared").is_dir()


def test_a_folder_that_is_removed_while_a_file_is_begun_is_made_again(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = local.make_folder_for_now
    calls: list[Path] = []

    def make_and_lose(folder: Path) -> list[Path]:
        changed = make(folder)
        calls.append(folder)
        if len(calls) == 1:
            folder.rmdir()
        return changed

    monkeypatch.setattr(local, "make_folder_for_now", make_and_lose)
    blobs.write("a/b", [b"x"])
    assert blobs.read("a/b") == b"x"


def test_every_new_name_is_durable_when_a_write_returns(blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(local, "fsync_folder", synced.append)
    blobs.root.mkdir(exist_ok=True)
    blobs.write("a/b/c", [b"x"])
    assert synced == [blobs.root / "a/b", blobs.root / "a", blobs.root]


def test_a_path_cannot_leave_the_root(blobs: LocalBlobs) -> None:
    with pytest.raises(ValueError, match="leave the storage root"):
        blobs.read("../secret")


def _add_steps(root: str, worker: int, steps: int) -> None:
    """Adds its steps to a list that all workers keep in one object; each step until it is known to be in."""
    blobs = LocalBlobs(root)
    for step in range(steps):
        mine = f"{worker}.{step}"
        while True:
            found = blobs.read_versioned(CURRENT)
            steps_so_far, version = (found[0].decode().split(), found[1]) if found else ([], None)
            if mine in steps_so_far:
                break
            with contextlib.suppress(SwapConflict, OutcomeUnknown):
                blobs.swap(CURRENT, " ".join([*steps_so_far, mine]).encode(), version)


def test_processes_that_write_together_lose_and_double_no_step(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_add_steps, args=(str(tmp_path), number, 30)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = LocalBlobs(tmp_path).read_versioned(CURRENT)
    assert found is not None
    steps = found[0].decode().split()
    assert sorted(steps) == sorted(f"{worker}.{step}" for worker in range(4) for step in range(30))


def void(_: object) -> None:
    """For a lambda that must return nothing."""
