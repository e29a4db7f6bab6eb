"""Blobs in a folder: a local disk, a PersistentVolumeClaim, an NFS mount.

**The primitive for `swap` is `link(2)`, which fails if the name exists.** The content of `current.json` is
kept as numbered versions `current/<version>.json`; the highest number is what holds. To swap from version N,
the new content is written and fsynced under a private name and then linked as N+1. Of any number of processes
that have read N, exactly one link succeeds, and there is no lock that a stopped or crashed process could
keep: one that is stopped (SIGSTOP) anywhere before its link finds, when resumed, that N+1 exists.

Old versions are deleted, lowest first, once they are `_KEPT_VERSIONS` behind. So a process that slept for
longer than that finds N+1 free again, and its link succeeds although it must not count. Therefore the swap is
successful only if N+1 is the highest version afterwards: the highest version is never deleted, so if N+1 had
existed before, a higher one would be there now. If a higher one is there, this process cannot tell whether
its own version came in time, and says so (OutcomeUnknown): whoever reads back finds somebody else's newer
content in either case.

A lock file with O_EXCL was not chosen: a holder that is stopped and then declared dead by its age would, when
resumed in the middle of its rename, overwrite what the new owner wrote.

Objects appear whole: they are written under a hidden name in their own folder, fsynced, and renamed; then the
folder is fsynced. What a crash leaves behind ends in `.partial` and is swept with the other orphans.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from io import FileIO
from pathlib import Path

from snapshot_engine.storage.blobs import Buffer, OutcomeUnknown, SwapConflict
from snapshot_engine.storage.durable_files import fsync_folder, make_folder_for_now

_KEPT_VERSIONS = 16
_PARTIAL_KEPT_SECONDS = 24 * 3600.0
_COPY_CHUNK = 4 << 20
_MOST_AT_ONCE = 32 << 20
_MOST_BUFFERS_AT_ONCE = 1024
"""IOV_MAX, on Linux."""
_UNANSWERED = {errno.EIO, errno.ETIMEDOUT, errno.ESTALE, errno.EINTR}
"""What a file server that was asked and did not answer leads to: it may have done what it was asked."""


class LocalBlobs:
    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()
        self.uri = self.root.as_uri()

    def write(self, path: str, buffers: Iterable[Buffer], *, exclusive: bool = False) -> int:
        target = self._file(path)
        partial, size, changed = _write_partial(target, buffers)
        try:
            if exclusive:
                _link_new(partial, target)
                partial.unlink()
            else:
                partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        for folder in (target.parent, *reversed(changed)):
            fsync_folder(folder)
        return size

    def read(self, path: str) -> bytes:
        return self._file(path).read_bytes()

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        folder = self._versions_folder(path)
        while True:
            highest = _highest_version(folder)
            if highest == 0:
                return None
            # A version may be deleted between listing and reading, but only when much newer ones are there.
            with contextlib.suppress(FileNotFoundError):
                return _version_file(folder, highest).read_bytes(), str(highest)

    def whereabouts(self, path: str, version: str | None = None) -> str:
        folder = self._versions_folder(path)
        return (folder if version is None else _version_file(folder, int(version))).as_uri()

    def swap(self, path: str, data: bytes, expected: str | None) -> str:
        folder = self._versions_folder(path)
        previous = int(expected or 0)
        mine = previous + 1
        if _highest_version(folder) != previous:
            raise SwapConflict(path)
        partial, _, changed = _write_partial(_version_file(folder, mine), [data])
        try:
            _link_new(partial, _version_file(folder, mine))
        except FileExistsError as error:
            raise SwapConflict(path) from error
        except OSError as error:
            if error.errno in _UNANSWERED:
                raise OutcomeUnknown(f"{path}: version {mine} may have been linked, but {error}") from error
            raise
        finally:
            # Whether it can be deleted says nothing about the swap: what is left of it goes with old versions.
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
        try:
            for each in (folder, *reversed(changed)):
                fsync_folder(each)
            highest = _highest_version(folder)
        except OSError as error:
            raise OutcomeUnknown(f"{path}: linked as version {mine}, but {error}") from error
        if highest != mine:
            raise OutcomeUnknown(f"{path}: linked as version {mine}, but there is version {highest} already")
        _delete_old_versions(folder, mine)
        return str(mine)

    def list(self, prefix: str) -> Sequence[tuple[str, float]]:
        found = []
        for folder, _, names in os.walk(self._file(prefix) if prefix else self.root):
            for name in names:
                file = Path(folder) / name
                with contextlib.suppress(FileNotFoundError):
                    found.append((file.relative_to(self.root).as_posix(), file.stat().st_mtime))
        return sorted(found)

    def delete(self, paths: Iterable[str]) -> None:
        folders = set()
        for path in paths:
            file = self._file(path)
            file.unlink(missing_ok=True)
            folders.add(file.parent)
        for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
            self._remove_if_empty(folder)

    def copy(self, source: str, target: str) -> None:
        with self._file(source).open("rb") as file:
            self.write(target, iter(lambda: file.read(_COPY_CHUNK), b""))

    def _file(self, path: str) -> Path:
        if ".." in path.split("/"):
            raise ValueError(f"{path!r} would leave the storage root {self.root}")
        return self.root / path

    def _versions_folder(self, path: str) -> Path:
        return self._file(path).with_suffix("")

    def _remove_if_empty(self, folder: Path) -> None:
        while folder != self.root and self.root in folder.parents:
            try:
                folder.rmdir()
            except OSError:
                return
            folder = folder.parent


def _write_partial(target: Path, buffers: Iterable[Buffer]) -> tuple[Path, int, list[Path]]:
    """Write and fsync under a hidden name beside `target`; on any failure nothing is left.

    Returns the file, its size, and the folders with new entries, which the caller has to fsync.
    """
    partial = target.with_name(f".{uuid.uuid4().hex}.partial")
    size = 0
    file, changed = _open_new(partial)
    try:
        with file:
            for views in _grouped(buffers):
                size += sum(map(len, views))
                _write_all(file.fileno(), views)
            os.fsync(file.fileno())
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(target)  # a full disk: somebody will have to know which
        raise
    return partial, size, changed


def _grouped(buffers: Iterable[Buffer]) -> Iterator[list[memoryview]]:
    """As many together as one call may take: after each call the writing thread has to wait for the interpreter."""
    views: list[memoryview] = []
    size = 0
    for buffer in buffers:
        if len(buffer):
            views.append(memoryview(buffer).cast("B"))
            size += len(views[-1])
        if size >= _MOST_AT_ONCE or len(views) == _MOST_BUFFERS_AT_ONCE:
            yield views
            views, size = [], 0
    if views:
        yield views


def _write_all(descriptor: int, views: list[memoryview]) -> None:
    while views:
        written = os.writev(descriptor, views)
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def _open_new(file: Path) -> tuple[FileIO, list[Path]]:
    """Open for writing, making the folders. Another process may remove an empty folder at the same moment."""
    for _ in range(100):
        changed = make_folder_for_now(file.parent)
        with contextlib.suppress(FileNotFoundError):
            return file.open("xb", buffering=0), changed
    file.parent.mkdir(parents=True, exist_ok=True)  # says what is wrong, if it can never be made
    raise FileNotFoundError(f"{file.parent} disappears again and again: is something else cleaning this folder?")


def _link_new(source: Path, target: Path) -> None:
    """Raises FileExistsError if there is a `target` already."""
    try:
        os.link(source, target)
    except FileExistsError:
        # On NFS the answer to a successful link may be lost; its repetition then says EEXIST.
        if source.stat().st_nlink < 2:
            raise


def _version_file(folder: Path, version: int) -> Path:
    return folder / f"{version:012d}.json"


def _versions(folder: Path) -> list[int]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names are all that is needed, of a folder read very often
    except FileNotFoundError:
        return []
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())


def _highest_version(folder: Path) -> int:
    return max(_versions(folder), default=0)


def _delete_old_versions(folder: Path, current: int) -> None:
    """Never an error: the swap has taken place."""
    with contextlib.suppress(OSError):
        for version in _versions(folder):
            if version <= current - _KEPT_VERSIONS:
                _version_file(folder, version).unlink(missing_ok=True)
        for partial in folder.glob(".*.partial"):
            if time.time() - partial.stat().st_mtime > _PARTIAL_KEPT_SECONDS:
                partial.unlink(missing_ok=True)
