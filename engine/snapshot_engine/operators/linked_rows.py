"""The rows of one side of a join, found by their key."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.kernels.joining import link_rows
from snapshot_engine.operators.event_times import Times
from snapshot_engine.state.row_store import RowStore


class LinkedRows:
    """One side's rows, linked into a list per key."""

    def __init__(self, schema: pa.Schema) -> None:
        self.store = RowStore(schema)
        self.heads = np.full(64, -1, np.int32)
        self.nexts = np.full(64, -1, np.int32)

    @property
    def nbytes(self) -> int:
        return self.store.nbytes + self.heads.nbytes + self.nexts.nbytes

    def add(self, batch: pa.RecordBatch, keys: Rows, known_keys: int) -> None:
        if batch.num_rows == 0:
            return
        self.make_room(known_keys)
        first = self.store.size
        if first + batch.num_rows > len(self.nexts):
            self.nexts = _grown(self.nexts, max(2 * len(self.nexts), first + batch.num_rows))
        link_rows(keys, self.heads, self.nexts, first)
        self.store.add(batch)

    def make_room(self, known_keys: int) -> None:
        if known_keys > len(self.heads):
            self.heads = _grown(self.heads, known_keys)


class TimedRows(LinkedRows):
    """The same with the event time of every row."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(schema)
        self._times = np.empty(64, np.int64)

    @property
    def times(self) -> Times:
        """By row number. What it shows of the rows that are there stays as it is while others are added."""
        return self._times[: self.store.size]

    @property
    def nbytes(self) -> int:
        return super().nbytes + self._times.nbytes

    def add_timed(self, batch: pa.RecordBatch, times: Times, keys: Rows, known_keys: int) -> None:
        first, end = self.store.size, self.store.size + batch.num_rows
        if end > len(self._times):
            self._times = _grown(self._times, max(2 * len(self._times), end))
        self._times[first:end] = times
        self.add(batch, keys, known_keys)


def _grown(numbers: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    grown = np.full(length, -1, numbers.dtype)
    grown[: len(numbers)] = numbers
    return grown
