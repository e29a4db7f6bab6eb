"""The local store where it differs: crashes, full disks, and processes that sleep in the middle of a swap."""

from __future__ import annotations

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
        with pytest.raises(OSError, match="No space left"):
            blobs.write("a/new", [b"x" * 100], exclusive=exclusive)
    assert _files(blobs.root) == ["a/old"]


def test_a_disk_that_is_full_while_buffers_are_made_leaves_no_half_file(blobs: LocalBlobs) -> None:
    def buffers() -> Any:
        yield b"x" * 100
        _full_disk()

    with pytest.raises(OSError, match="No space left"):
        blobs.write("a/new", buffers())
    assert _files(blobs.root) == []


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
    make = local.make_folder
    calls: list[Path] = []

    def make_and_lose(folder: Path) -> None:
        make(folder)
        calls.append(folder)
        if len(calls) == 1:
            folder.rmdir()

    monkeypatch.setattr(local, "make_folder", make_and_lose)
    blobs.write("a/b", [b"x"])
    assert blobs.read("a/b") == b"x"


def test_a_path_cannot_leave_the_root(blobs: LocalBlobs) -> None:
    with pytest.raises(ValueError, match="leave the storage root"):
        blobs.read("../secret")


def _count_up(root: str, times: int) -> None:
    blobs = LocalBlobs(root)
    done = 0
    while done < times:
        found = blobs.read_versioned(CURRENT)
        value, version = (int(found[0]), found[1]) if found else (0, None)
        try:
            blobs.swap(CURRENT, b"%d" % (value + 1), version)
            done += 1
        except SwapConflict:
            continue
        except OutcomeUnknown:
            # Linked, but overtaken at once: it counted, since no version was deleted so soon.
            done += 1


def test_processes_that_count_together_lose_no_step(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=_count_up, args=(str(tmp_path), 30)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    found = LocalBlobs(tmp_path).read_versioned(CURRENT)
    assert found is not None
    assert int(found[0]) == 120


def void(_: object) -> None:
    """For a lambda that must return nothing."""
