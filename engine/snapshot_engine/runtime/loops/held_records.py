"""Records on their way round a loop: in memory up to a budget, beyond it in files of this slot.

Queues and logs refer to the same records, so a log costs no copy. What nobody refers to any more is gone by itself, and
so is a file of which nothing is needed: files have no name, so that not even a killed slot leaves one behind.

A slice keeps the whole batch alive that it was cut from. So a batch is kept in memory as a whole or not at all, and its
room is free again when the last of its slices has gone.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Callable, Sequence

import pyarrow as pa

from snapshot_engine.runtime.loops.slices import slices

SEGMENT_BYTES = 64 << 20
"""A file this long is closed for writing: the next one can then go when its own records have gone."""
MOST_WASTE = 2
"""A batch that keeps so many times its own size alive, as part of a larger one, is copied out of it."""


class HeldRecords:
    """Records that wait, in memory or in a file. May be read from any thread."""

    __slots__ = ("_read", "_room", "rows", "size")

    def __init__(self, batch: pa.RecordBatch, read: Callable[[], pa.RecordBatch], room: _Room) -> None:
        self.rows = batch.num_rows
        self.size = batch.nbytes
        self._read = read
        self._room = room

    def batch(self) -> pa.RecordBatch:
        return self._read()


class RecordStore:
    """All that one head holds, of one schema."""

    def __init__(self, schema: pa.Schema, budget: int, folder: str | None = None) -> None:
        self.schema = schema
        self._budget = budget
        self._folder = folder
        self._freed: deque[tuple[int, int]] = deque()
        """Of what went, from whatever thread: taken into account at the next look."""
        self._in_memory = self._held = 0
        self._segment: _Segment | None = None
        self.spilled_bytes = 0
        """Written to files since the attempt began."""

    @property
    def in_memory(self) -> int:
        self._settle()
        return self._in_memory

    @property
    def over_budget(self) -> bool:
        """Whether more is held, in memory and in files, than there is room for in memory."""
        self._settle()
        return self._held > self._budget

    def hold(self, batch: pa.RecordBatch, most_rows: int | None = None) -> Sequence[HeldRecords]:
        """Keep `batch`, in slices of at most so many rows: in memory if there is room, else on disk."""
        batch, pinned = self._without_waste(batch)
        parts = slices(batch, batch.num_rows if most_rows is None else most_rows)
        if self.in_memory + pinned > self._budget:
            return [self._spill(part) for part in parts]
        room = self._room(pinned, batch.nbytes)
        return [HeldRecords(part, _Here(part), room) for part in parts]

    def _without_waste(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """The batch, and what it keeps alive."""
        pinned = batch.get_total_buffer_size()
        if pinned <= MOST_WASTE * batch.nbytes:
            return batch, pinned
        copy = pa.ipc.read_record_batch(batch.serialize(), batch.schema)
        return copy, copy.get_total_buffer_size()

    def _spill(self, part: pa.RecordBatch) -> HeldRecords:
        if self._segment is None or self._segment.size >= SEGMENT_BYTES:
            self._segment = _Segment(self._folder)
        self.spilled_bytes += part.nbytes
        return HeldRecords(part, self._segment.append(part, self.schema), self._room(0, part.nbytes))

    def _room(self, in_memory: int, size: int) -> _Room:
        self._in_memory += in_memory
        self._held += size
        return _Room(in_memory, size, self._freed)

    def _settle(self) -> None:
        while self._freed:
            in_memory, size = self._freed.popleft()
            self._in_memory -= in_memory
            self._held -= size


class _Room:
    """What records take; given back when nothing refers to them any more."""

    __slots__ = ("_freed", "_in_memory", "_size")

    def __init__(self, in_memory: int, size: int, freed: deque[tuple[int, int]]) -> None:
        self._in_memory = in_memory
        self._size = size
        self._freed = freed

    def __del__(self) -> None:
        self._freed.append((self._in_memory, self._size))


class _Here:
    """Records in memory."""

    __slots__ = ("_batch",)

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __call__(self) -> pa.RecordBatch:
        return self._batch


class _Stored:
    """Records in a file."""

    __slots__ = ("_length", "_offset", "_schema", "segment")

    def __init__(self, segment: _Segment, offset: int, length: int, schema: pa.Schema) -> None:
        self.segment = segment
        self._offset = offset
        self._length = length
        self._schema = schema

    def __call__(self) -> pa.RecordBatch:
        return pa.ipc.read_record_batch(self.segment.read(self._offset, self._length), self._schema)


class _Segment:
    """One file without a name; closed, and its room given back, when nothing refers to it."""

    def __init__(self, folder: str | None) -> None:
        self._folder = folder or tempfile.gettempdir()
        self._file = tempfile.TemporaryFile(prefix="loop-", dir=folder, buffering=0)  # noqa: SIM115  # lives on
        self.size = 0

    def append(self, batch: pa.RecordBatch, schema: pa.Schema) -> _Stored:
        data = batch.serialize()
        start, rest = self.size, memoryview(data)
        while rest:
            written = self._write(rest)
            self.size += written
            rest = rest[written:]
        return _Stored(self, start, data.size, schema)

    def _write(self, data: memoryview) -> int:
        try:
            return os.pwrite(self._file.fileno(), data, self.size)
        except OSError as error:
            raise OSError(
                error.errno,
                f"a loop's records do not fit into memory, nor can they be written to {self._folder} "
                f"({error.strerror}): give the slots a TMPDIR with more room, or the loop a larger budget",
            ) from error

    def read(self, offset: int, length: int) -> pa.Buffer:
        """Into Arrow's memory, which gives back what is free; Python's own would keep much of it."""
        data = pa.allocate_buffer(length)
        found = os.preadv(self._file.fileno(), [memoryview(data)], offset)
        if found != length:
            raise OSError(f"a loop's file on this slot's disk is damaged: {length} bytes at {offset}, found {found}")
        return data
