"""Records on their way round a loop: in memory up to a budget, beyond it in files of this slot.

Queues and logs refer to the same records, so a log costs no copy. What nobody refers to any more is gone by itself, and
so is a file of which nothing is needed: files have no name, so that not even a killed slot leaves one behind.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque

import pyarrow as pa

SEGMENT_BYTES = 64 << 20
"""A file this long is closed for writing: the next one can then go when its own records have gone."""


class HeldRecords:
    """A batch that waits, in memory or in a file. May be read from any thread."""

    __slots__ = ("_batch", "_length", "_offset", "_segment", "_store", "rows", "size")

    def __init__(self, batch: pa.RecordBatch, store: RecordStore) -> None:
        self.rows = batch.num_rows
        self.size = batch.nbytes
        self._store = store
        self._batch: pa.RecordBatch | None = batch
        self._segment: _Segment | None = None
        self._offset = self._length = 0

    def batch(self) -> pa.RecordBatch:
        if self._batch is not None:
            return self._batch
        assert self._segment is not None
        data = self._segment.read(self._offset, self._length)
        return pa.ipc.read_record_batch(pa.py_buffer(data), self._store.schema)

    def move_to(self, segment: _Segment) -> None:
        assert self._batch is not None
        data = self._batch.serialize()
        self._offset, self._length = segment.append(memoryview(data)), data.size
        self._segment, self._batch = segment, None

    def __del__(self) -> None:
        if self._batch is not None:
            self._store.freed.append(self.size)


class RecordStore:
    """All that one head holds, of one schema."""

    def __init__(self, schema: pa.Schema, budget: int, folder: str | None = None) -> None:
        self.schema = schema
        self.freed: deque[int] = deque()
        """Sizes of what went, from whatever thread: taken into account at the next look."""
        self._budget = budget
        self._folder = folder
        self._in_memory = 0
        self._segment: _Segment | None = None
        self.spilled_bytes = 0
        """Written to files since the attempt began."""

    @property
    def in_memory(self) -> int:
        while self.freed:
            self._in_memory -= self.freed.popleft()
        return self._in_memory

    @property
    def over_budget(self) -> bool:
        return self.in_memory >= self._budget

    def hold(self, batch: pa.RecordBatch) -> HeldRecords:
        """Keep `batch`: in memory if there is room, else on disk."""
        held = HeldRecords(batch, self)
        if self.in_memory + held.size > self._budget:
            self._spill(held)
        else:
            self._in_memory += held.size
        return held

    def _spill(self, held: HeldRecords) -> None:
        if self._segment is None or self._segment.size >= SEGMENT_BYTES:
            self._segment = _Segment(self._folder)
        held.move_to(self._segment)
        self.spilled_bytes += held.size


class _Segment:
    """One file without a name; closed, and its room given back, when nothing refers to it."""

    def __init__(self, folder: str | None) -> None:
        self._file = tempfile.TemporaryFile(prefix="loop-", dir=folder, buffering=0)  # noqa: SIM115  # lives on
        self.size = 0

    def append(self, data: memoryview) -> int:
        start = self.size
        while data:
            written = os.pwrite(self._file.fileno(), data, self.size)
            self.size += written
            data = data[written:]
        return start

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._file.fileno(), length, offset)
        if len(data) != length:
            raise OSError(
                f"a loop's file on this slot's disk is damaged: {length} bytes at {offset}, found {len(data)}"
            )
        return data
