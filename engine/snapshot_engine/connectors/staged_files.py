"""Two-phase commit for sinks that write files: written in a hidden folder, made visible by rename.

    <folder>/_staging/<job>/<lineage>/<vertex>-<subtask>-<generation>-<attempt>-<token>/<file>  written, then prepared
    <folder>/<file>                                                                             committed

A rename is atomic and can be repeated by anyone: whoever finds the file gone from its staging folder knows that it has
been committed. (If it is gone from its target as well, a reader has taken it away since: the staging folder is still
there. If the staging folder is gone too, somebody has deleted prepared data, which is an error.)

A committable names its folder too: a job that was restored to write elsewhere commits what was prepared where it was
prepared, unless its staging folder has been moved along.

Every name has a random token besides writer, generation and attempt: a job that is started again from nothing, with the
same name and into the same folder, neither overwrites nor mistakes for its own what an earlier one has written. Nor
does it sweep it: the lineage is that of the checkpoint storage in which the generations are counted. Earlier versions
had no such folder; what they have left is swept by a job whose storage they have had.
"""

from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from snapshot_engine.connectors.protocols import Committable, SinkWriter, SweptJob, WriterContext
from snapshot_engine.storage.durable_files import fsync_file, fsync_folder, make_folder
from snapshot_engine.storage.layout import component

STAGING = "_staging"
"""Begins with an underscore: Spark, Hive and Arrow skip such names when they read the folder."""

_WRITER_FOLDER = re.compile(r"^(?P<vertex>.+)-(?P<subtask>\d+)-(?P<generation>\d+)-(?P<attempt>\d+)-[0-9a-f]{8}$")


class PreparedDataLost(Exception):
    """What a checkpoint names as prepared is neither staged nor committed. Trying again cannot help."""


class FileWriter(Protocol):
    """Writes one file of some format."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None:
        """The file is whole when this returns; the caller makes it durable."""
        ...


class FileFormat(Protocol):
    """How one file is written. Pickles."""

    @property
    def suffix(self) -> str: ...

    def create(self, path: Path, schema: pa.Schema) -> FileWriter: ...


class StagedFileSink:
    """A sink of files in `folder`, which the driver and all executors must see under the same path."""

    exactly_once = True

    def __init__(self, folder: str | Path, format: FileFormat) -> None:
        self.folder = _local_path(str(folder))
        self.format = format

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.folder)!r})"

    def open(self, context: WriterContext) -> SinkWriter:
        return StagedFileWriter(self.folder, self.format, context)

    def commit(self, committables: Sequence[Committable]) -> None:
        for committable in committables:
            place = self.place_of(committable)
            _publish(place / committable["staged"], place / committable["target"])
        for place in {self.place_of(committable) for committable in committables}:
            fsync_folder(place)

    def place_of(self, committable: Committable) -> Path:
        """The folder in which it is committed."""
        is_here = (self.folder / committable["staged"]).parent.is_dir()
        return self.folder if is_here else Path(committable.get("folder", self.folder))

    def kept_for(self, committable: Committable) -> set[Path]:
        """What the sweep leaves alone as long as a checkpoint names this."""
        return {self.place_of(committable) / committable["staged"]}

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None:
        kept = {path for committable in keep for path in self.kept_for(committable)}
        own, of_earlier_versions = _staging(self.folder, job.name, job.lineage), _staging(self.folder, job.name, "")
        for folder in (
            *_writer_folders(own, component(vertex), before_generation),
            *_writer_folders(of_earlier_versions, component(vertex), min(before_generation, job.lineage_since)),
        ):
            _remove_leftovers(folder, kept)


class StagedFileWriter:
    """One file per checkpoint interval, begun with its first row."""

    def __init__(self, folder: Path, format: FileFormat, context: WriterContext) -> None:
        self._folder = folder
        self._format = format
        token = uuid.uuid4().hex[:8]
        vertex = component(context.vertex)
        writer = f"{vertex}-{context.subtask}-{context.generation}-{context.attempt}-{token}"
        self._name = f"{component(context.job)}-{writer}"
        self._staging = _staging(folder, context.job, context.lineage) / writer
        self._sequence = 0
        self._file: Path | None = None
        self._open: FileWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        if self._open is None:
            make_folder(self._staging)
            self._file = self._staging / f"{self._name}-{self._sequence:06d}{self._format.suffix}"
            self._open = self._format.create(self._file, batch.schema)
            self._sequence += 1
        self._open.write(batch)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        if self._open is None or self._file is None:
            return []
        self._open.close()
        fsync_file(self._file)
        fsync_folder(self._staging)
        staged, self._open, self._file = self._file, None, None
        inside = staged.relative_to(self._folder).as_posix()
        return [{"folder": str(self._folder), "staged": inside, "target": staged.name}]

    def close(self) -> None:
        if self._open is None or self._file is None:
            return
        with contextlib.suppress(Exception):
            self._open.close()
        self._file.unlink(missing_ok=True)
        self._open = None


def _staging(folder: Path, job: str, lineage: str) -> Path:
    """Where the writers of a job have their folders."""
    of_job = folder / STAGING / component(job)
    return of_job / component(lineage) if lineage else of_job


def _publish(staged: Path, target: Path) -> None:
    try:
        staged.rename(target)
    except FileNotFoundError:
        if target.exists() or staged.parent.is_dir():
            return
        raise PreparedDataLost(
            f"{staged} was prepared for a completed checkpoint, but it is gone with its folder, and {target} does not "
            f"exist: its rows are lost. Bring {STAGING} back from a backup, or restore an older savepoint; the folder "
            f"must be the same for the driver and all executors"
        ) from None


def _writer_folders(staging: Path, vertex: str, before_generation: int) -> list[Path]:
    """The folders of writers of `vertex` that drivers older than `before_generation` had."""
    if not staging.is_dir():
        return []
    found = []
    for folder in staging.iterdir():
        match = _WRITER_FOLDER.match(folder.name)
        if match and match["vertex"] == vertex and int(match["generation"]) < before_generation:
            found.append(folder)
    return found


def _remove_leftovers(folder: Path, kept: set[Path]) -> None:
    """The folder itself stays as long as a checkpoint names a file in it: it tells committed from lost."""
    for file in folder.iterdir():
        if file not in kept:
            file.unlink(missing_ok=True)
    if not any(path.parent == folder for path in kept):
        with contextlib.suppress(OSError):
            folder.rmdir()


def _local_path(folder: str) -> Path:
    parts = urlsplit(folder)
    if parts.scheme not in ("", "file"):
        raise ValueError(
            f"{folder!r}: files are committed by rename, which {parts.scheme}:// does not have. "
            "Expected a folder that the driver and all executors have mounted"
        )
    return Path(unquote(parts.path) if parts.scheme else folder).absolute()
