"""Files as a bounded source: Parquet, JSON lines, CSV. A split is a file, read from one end to the other.

The files are listed when the source is made, in the user's pipeline, so all subtasks agree on them whatever arrives
later.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.fs

from snapshot_engine.connectors.protocols import Position, Reader

_PLAIN_IN_URIS = "/!$&'()*+,;=:@~"


class FileSource:
    """What the formats have in common. Subclasses say how a file is opened and how its schema is found."""

    bounded = True
    sequential = True
    """Many files are read one after the other, not all at once."""
    pattern = "*"
    """Which files of a folder are meant."""

    def __init__(self, path: str | os.PathLike[str] | Sequence[str], schema: pa.Schema | None = None) -> None:
        """`path`: a file, a folder (with all below it), a glob such as `in/*/part-*.csv`, or several of these."""
        given = [path] if isinstance(path, str | os.PathLike) else list(path)
        self.files = sorted({file for each in given for file in list_files(os.fspath(each), self.pattern)})
        self.schema = schema if schema is not None else self.find_schema(self.files[0])

    def __repr__(self) -> str:
        more = f" and {len(self.files) - 1} more" if len(self.files) > 1 else ""
        return f"{type(self).__name__}({self.files[0]!r}{more})"

    def splits(self, parallelism: int) -> Sequence[str]:
        return self.files

    def open(self, split: str, position: Position) -> Reader:
        try:
            return self.open_file(split, position)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{split} is gone: it is a part of this job's input since its first start, and must stay until the job "
                "has ended"
            ) from error

    def find_schema(self, file: str) -> pa.Schema:
        raise NotImplementedError

    def open_file(self, file: str, position: Position) -> Reader:
        raise NotImplementedError


class ReplacedFile(ValueError):
    """A file is not the one that the checkpoint has read a part of: to go on in it would lose rows or make some up."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(
            f"{file}: {reason}. It was replaced or changed while the job was reading it. Bring back the file as it "
            "was, or give the new one another name, which a job reads that starts without this state"
        )


def open_input(file: str) -> Any:
    """A seekable file, local or in an object store."""
    filesystem, path = _filesystem_of(file)
    return filesystem.open_input_file(path)


def list_files(place: str, pattern: str) -> list[str]:
    """The files that `place` means; hidden ones (`.x`, `_x`) are left out. Raises if there are none."""
    filesystem, path = _filesystem_of(place)
    info = filesystem.get_file_info(path)
    if info.type == pa.fs.FileType.File:
        return [_place_of(path, place)]
    if info.type == pa.fs.FileType.Directory:
        folder, wanted = path, None
    else:
        folder, wanted = _folder_of_glob(path), path
    found = [
        _place_of(entry.path, place)
        for entry in filesystem.get_file_info(pa.fs.FileSelector(folder, recursive=True, allow_not_found=True))
        if entry.type == pa.fs.FileType.File and _is_meant(entry.path, folder, wanted, pattern)
    ]
    if not found:
        raise FileNotFoundError(f"no file matches {place!r}{f' (looking for {pattern})' if wanted is None else ''}")
    return sorted(found)


def _is_meant(path: str, folder: str, wanted: str | None, pattern: str) -> bool:
    below = PurePosixPath(path).relative_to(folder).parts
    if any(part.startswith((".", "_")) for part in below):
        return False
    if wanted is None:
        return fnmatch.fnmatchcase(below[-1], pattern)
    return _matches(PurePosixPath(path).parts, PurePosixPath(wanted).parts)


def _matches(path: tuple[str, ...], glob: tuple[str, ...]) -> bool:
    """Part by part; `**` stands for any number of folders."""
    if not glob:
        return not path
    if glob[0] == "**":
        return any(_matches(path[skipped:], glob[1:]) for skipped in range(len(path) + 1))
    return bool(path) and fnmatch.fnmatchcase(path[0], glob[0]) and _matches(path[1:], glob[1:])


def _folder_of_glob(path: str) -> str:
    """The part before the first wildcard."""
    fixed = []
    for part in PurePosixPath(path).parts[:-1]:
        if any(sign in part for sign in "*?["):
            break
        fixed.append(part)
    return str(PurePosixPath(*fixed)) if fixed else "."


def _place_of(path: str, place: str) -> str:
    """A path in the file system of `place` as `_filesystem_of` takes it, with the store's options behind it."""
    if "://" not in place:
        return path
    scheme, _, rest = place.partition("://")
    _, question, options = rest.partition("?")
    return f"{scheme}://{quote(path, safe=_PLAIN_IN_URIS)}{question}{options}"


def _filesystem_of(place: str) -> tuple[pa.fs.FileSystem, str]:
    if "://" in place:
        filesystem, path = pa.fs.FileSystem.from_uri(place)
        return filesystem, path
    return pa.fs.LocalFileSystem(), str(Path(place).absolute())
