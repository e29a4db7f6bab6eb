"""Writing and reading pieces of state, in the slots.

A table is an Arrow IPC file, whose buffers go to the store without being copied first. Small pieces travel
inside the acknowledgement, and so does everything under the `memory` backend.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage import layout
from snapshot_engine.storage.blobs import BlobStore, Buffer
from snapshot_engine.storage.document import checksum
from snapshot_engine.storage.errors import CorruptCheckpoint, StateTooLarge
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.local_copies import LocalCopies
from snapshot_engine.storage.open_store import open_store
from snapshot_engine.storage.repeated_columns import with_repeats_once, with_repeats_spelled_out


@dataclass(frozen=True, slots=True)
class PieceOptions:
    compression: str | None = None
    """None or `lz4`: worth it where the store is slower than a core."""
    inline_below: int = 20_000
    """Pieces smaller than this many bytes travel inside the acknowledgement."""
    all_inline: bool = False
    """The `memory` backend: no piece is ever a file."""
    largest_inline: int = 5 << 20
    """How much one subtask's snapshot may have in all under `all_inline`."""


class PieceWriter:
    """Writes one subtask's pieces of one checkpoint or savepoint; used by one thread.

    `written` lists the files that exist because of this writer, for whoever has to discard them after an
    abort.
    """

    def __init__(
        self,
        blobs: BlobStore,
        where: Layout,
        *,
        checkpoint: int,
        vertex: str,
        subtask: int,
        attempt: Attempt,
        savepoint: str | None = None,
        options: PieceOptions | None = None,
        copies: LocalCopies | None = None,
    ) -> None:
        self._copies = copies
        self.written: list[PieceHandle] = []
        self.size = 0
        self._blobs = blobs
        self._where = where
        self._checkpoint = checkpoint
        self._vertex = vertex
        self._subtask = subtask
        self._attempt = attempt
        self._savepoint = savepoint
        self._options = options or PieceOptions()
        self._counter = 0

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        return self._store(name, ".arrow", _arrow_file(with_repeats_once(table), self._options.compression), shared)

    def write_bytes(self, name: str, data: bytes, *, shared: bool = False) -> PieceHandle:
        return self._store(name, ".bin", [data], shared)

    def paths(self) -> list[str]:
        """The written files as the blob store names them."""
        return [self._where.absolute(handle.path) for handle in self.written]

    def _store(self, name: str, suffix: str, buffers: list[Buffer], shared: bool) -> PieceHandle:
        size = sum(map(len, buffers))
        self.size += size
        if self._options.all_inline:
            self._refuse_too_large()
        shared = shared and self._savepoint is None
        path = self._path(name, suffix, shared)
        if self._options.all_inline or size < self._options.inline_below:
            return PieceHandle(path, size, checksum(*buffers), inline=b"".join(buffers))
        handle = PieceHandle(path, size, checksum(*buffers), shared)
        self._blobs.write(self._where.absolute(path), buffers)
        if self._copies is not None:
            self._copies.write(path, buffers)
        self.written.append(handle)
        return handle

    def _path(self, name: str, suffix: str, shared: bool) -> str:
        self._counter += 1
        who = (self._vertex, self._subtask, self._attempt, self._counter)
        if shared:
            return layout.shared_path(self._checkpoint, *who, name, suffix, uuid.uuid4().hex[:8])
        if self._savepoint is not None:
            folder = layout.savepoint_folder(self._savepoint)
        else:
            folder = layout.checkpoint_folder(self._checkpoint, self._attempt.generation)
        return layout.piece_path(folder, *who, name, suffix)

    def _refuse_too_large(self) -> None:
        if self.size > self._options.largest_inline:
            raise StateTooLarge(
                f"the state of {self._vertex}[{self._subtask}] has at least {self.size} bytes, but the state "
                f"backend `memory` carries at most {self._options.largest_inline} bytes per subtask: set "
                "checkpoint.stateBackend to filesystem"
            )


@dataclass
class PieceReader:
    """Reads pieces; every read verifies size and checksum.

    A handle's path is relative to the job's folder, or a whole URI where a savepoint from elsewhere was
    restored.
    """

    blobs: BlobStore
    where: Layout
    options: Mapping[str, Any] | None = None
    """For stores that a URI names."""
    copies: LocalCopies | None = None
    """Looked at before storage is."""
    _elsewhere: dict[str, BlobStore] = field(default_factory=dict)

    def read_table(self, handle: PieceHandle) -> pa.Table:
        data = self.read_bytes(handle)
        try:
            with pa.ipc.open_file(pa.py_buffer(data)) as file:
                return with_repeats_spelled_out(file.read_all())
        except pa.ArrowInvalid as error:
            raise CorruptCheckpoint(self._uri(handle), "an Arrow file", str(error)) from error

    def read_bytes(self, handle: PieceHandle) -> bytes:
        if handle.inline is None and self.copies is not None and (copy := self.copies.read(handle)) is not None:
            return copy
        data = handle.inline if handle.inline is not None else self._read(handle)
        if len(data) != handle.size:
            raise CorruptCheckpoint(self._uri(handle), f"{handle.size} bytes", f"{len(data)} bytes")
        found = checksum(data)
        if found != handle.checksum:
            raise CorruptCheckpoint(self._uri(handle), f"checksum {handle.checksum}", found)
        return data

    def _uri(self, handle: PieceHandle) -> str:
        """As a person finds it; what is inline has no file."""
        known = handle.inline is not None or "://" in handle.path
        return handle.path if known else f"{self.blobs.uri}/{self.where.absolute(handle.path)}"

    def _read(self, handle: PieceHandle) -> bytes:
        try:
            if "://" not in handle.path:
                return self.blobs.read(self.where.absolute(handle.path))
            folder, _, name = handle.path.rpartition("/")
            if folder not in self._elsewhere:
                self._elsewhere[folder] = open_store(folder, self.options)
            return self._elsewhere[folder].read(name)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(self._uri(handle), f"{handle.size} bytes", "no such file") from error


class _Buffers:
    """A file that keeps what is written to it as references, so that large columns are not copied."""

    def __init__(self) -> None:
        self.parts: list[Buffer] = []
        self.closed = False
        self._size = 0

    def write(self, part: bytes | pa.Buffer) -> int:
        self.parts.append(part if isinstance(part, bytes) else memoryview(part).cast("B"))
        self._size += len(part)
        return len(part)

    def tell(self) -> int:
        return self._size

    def flush(self) -> None: ...

    def close(self) -> None: ...


def _arrow_file(table: pa.Table, compression: str | None) -> list[Buffer]:
    sink = _Buffers()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_file(pa.PythonFile(sink, mode="w"), table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.parts


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Where a job's checkpoints are and how pieces are written: all that a slot is told. Pickles."""

    uri: str
    where: Layout
    options: Mapping[str, Any] = field(default_factory=dict)
    pieces: PieceOptions = PieceOptions()
    local_recovery: bool = False
    """Whether slots keep copies of their latest pieces on the local disk."""

    def copies(self, folder: str | None = None) -> LocalCopies | None:
        """This machine's copies of the job's pieces, below `folder` or the usual place for temporary files."""
        if not self.local_recovery:
            return None
        place = Path(folder or tempfile.gettempdir()) / "streamingjob-copies" / self.where.job_folder
        return LocalCopies(place)

    def open(self) -> BlobStore:
        return open_store(self.uri, self.options)

    def reader(self, blobs: BlobStore, copies: LocalCopies | None = None) -> PieceReader:
        return PieceReader(blobs, self.where, self.options, copies)
