"""Files and folders that are still there after a power cut."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """mkdir -p, where each new entry is durable."""
    for parent in make_folder_for_now(folder):
        fsync_folder(parent)


def make_folder_for_now(folder: Path) -> list[Path]:
    """mkdir -p; returns the folders that have new entries, to be fsynced together with what is put below them.

    One after the other would be one commit of the file system's journal each; afterwards it is one for all.
    """
    if folder.is_dir():
        return []
    changed = make_folder_for_now(folder.parent)
    # Somebody else may make it, or remove an empty parent, at the same moment; the caller's own open decides.
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        folder.mkdir()
        changed.append(folder.parent)
    return changed


def fsync_folder(folder: Path) -> None:
    """The names in `folder` are durable when this returns."""
    _fsync(folder, os.O_RDONLY | os.O_DIRECTORY)


def fsync_file(file: Path) -> None:
    """The content of `file` is durable when this returns."""
    _fsync(file, os.O_RDONLY)


def _fsync(path: Path, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
