"""Sources and sinks that fail when they are told to: for whoever tests a job or a connector.

How often something has failed is kept as files in a folder, so that it is known across restarts, in whichever process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from snapshot_engine.connectors.protocols import (
    Committable,
    Position,
    Reader,
    Sink,
    SinkWriter,
    Source,
    SweptJob,
    WriterContext,
)


class DeliberateFailure(Exception):
    """Raised because a test asked for it."""


class Fuse:
    """Blows a given number of times in all, over all processes on this machine."""

    def __init__(self, name: str, times: int, folder: str | Path | None = None) -> None:
        self.name = name
        self.times = times
        self.folder = Path(folder or tempfile.mkdtemp(prefix="fuse-"))

    def blow(self, why: str) -> None:
        for number in range(self.times):
            try:
                (self.folder / f"{self.name}-{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            raise DeliberateFailure(f"{why} (failure {number + 1} of {self.times})")

    @property
    def blown(self) -> int:
        return len(list(self.folder.glob(f"{self.name}-*")))


class FailingSource:
    """`source`, but reading fails as soon as `at_record` rows of a split have been read; `times` times in all.

    With `at_record` = 0 opening a reader fails, which is what happens in a restore.
    """

    def __init__(self, source: Source, at_record: int, times: int = 1, folder: str | Path | None = None) -> None:
        self.source = source
        self.at_record = at_record
        self.fuse = Fuse("source", times, folder)
        self.bounded = source.bounded
        self.schema = source.schema
        self.sequential = bool(getattr(source, "sequential", False))

    def splits(self, parallelism: int) -> Sequence[str]:
        return self.source.splits(parallelism)

    def open(self, split: str, position: Position) -> FailingReader:
        inner_position, rows = position or (None, 0)
        if self.at_record == 0:
            self.fuse.blow(f"opening split {split}")
        return FailingReader(self.source.open(split, inner_position), self, split, rows)


class FailingReader:
    def __init__(self, reader: Reader, source: FailingSource, split: str, rows: int) -> None:
        self._reader = reader
        self._source = source
        self._split = split
        self._rows = rows

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        left = self._source.at_record - self._rows
        if left == 0 and self._rows:
            self._source.fuse.blow(f"reading row {self._rows} of split {self._split}")
        batch = self._reader.read(min(max_rows, left) if left > 0 else max_rows)
        self._rows += batch.num_rows if batch is not None else 0
        return batch

    def position(self) -> Position:
        return [self._reader.position(), self._rows]

    def lag(self) -> int | None:
        return self._reader.lag()

    def close(self) -> None:
        self._reader.close()


class FailingSink:
    """`sink`, but its first `prepares` prepares and its first `commits` commits fail.

    A commit fails once before and, the next time, after the inner sink has done its work: both must be survived.
    """

    def __init__(self, sink: Sink, *, prepares: int = 0, commits: int = 0, folder: str | Path | None = None) -> None:
        self.sink = sink
        self.exactly_once = sink.exactly_once
        self.prepare_fuse = Fuse("prepare", prepares, folder)
        self.commit_fuse = Fuse("commit", commits, self.prepare_fuse.folder)

    def open(self, context: WriterContext) -> FailingWriter:
        return FailingWriter(self.sink.open(context), self.prepare_fuse)

    def commit(self, committables: Sequence[Committable]) -> None:
        before = self.commit_fuse.blown % 2 == 0
        if before:
            self.commit_fuse.blow("before a commit")
        self.sink.commit(committables)
        if not before:
            self.commit_fuse.blow("after a commit")

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None:
        self.sink.sweep(job, vertex, before_generation, keep)


class FailingWriter:
    def __init__(self, writer: SinkWriter, fuse: Fuse) -> None:
        self._writer = writer
        self._fuse = fuse

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write(batch)

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        committables = self._writer.prepare(checkpoint)
        # Prepared, and nobody will ever know of it: what stays behind must do no harm.
        self._fuse.blow(f"preparing checkpoint {checkpoint}")
        return committables

    def close(self) -> None:
        self._writer.close()
