"""Files and folders that are still there after a power cut."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_folder(folder: Path) -> None:
    """mkdir -p, where each new entry is durable."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    # Somebody else may make it, or remove an empty parent, at the same moment; the caller's own open decides.
    with contextlib.suppress(FileExistsError, FileNotFoundError):
        folder.mkdir()
        fsync_folder(folder.parent)


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
