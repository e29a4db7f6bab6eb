"""A table from keys to rows of numbers, which can be frozen for a snapshot while it goes on changing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from snapshot_engine.kernels.accumulate import gather_rows, mark_rows, rows_marked_after
from snapshot_engine.kernels.arrow_views import Rows, Words
from snapshot_engine.state.encoded_keys import EncodedKeys
from snapshot_engine.state.key_codec import KeyCodec
from snapshot_engine.state.key_index import key_index

Matrix = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """Rows of a table as they were at one moment."""

    all_keys: EncodedKeys
    rows: Rows | None
    """Which rows these are; None: all."""
    values: Matrix

    def __len__(self) -> int:
        return len(self.values)

    def keys(self) -> EncodedKeys:
        return self.all_keys if self.rows is None else self.all_keys.take(self.rows)


class SpareMemory(NamedTuple):
    """What a table that is used no more leaves to the next one: large blocks of memory are slow to get."""

    slots: Words
    matrix: Matrix


class ColumnarTable:
    """Rows are only ever added. With `tracked`, each remembers the epoch of its last change.

    The matrix has a column for each of the `initial` values, and one more for the epochs of a tracked table.
    """

    def __init__(
        self,
        codec: KeyCodec,
        initial: Words,
        *,
        tracked: bool,
        expected: int = 0,
        spare: SpareMemory | None = None,
    ) -> None:
        self.codec = codec
        self._index = key_index(codec, expected, None if spare is None else spare.slots)
        self._initial = np.append(initial, np.zeros(int(tracked), np.int64))
        self._epoch_column = len(initial) if tracked else None
        self.matrix = self._first_matrix(spare)

    @property
    def size(self) -> int:
        return self._index.size

    @property
    def nbytes(self) -> int:
        return self._index.nbytes + self.matrix.nbytes

    def add(self, keys: EncodedKeys) -> Rows:
        """The row of each key; keys that are new get rows with the initial values."""
        rows = self._index.add(keys)
        if self._index.capacity > len(self.matrix):
            grown = self._new_matrix(self._index.capacity, len(self.matrix))
            grown[: len(self.matrix)] = self.matrix
            self.matrix = grown
        return rows

    def find(self, keys: EncodedKeys) -> Rows:
        """The row of each key, -1 for those that are not there."""
        return self._index.find(keys)

    def keys(self) -> EncodedKeys:
        return self._index.keys()

    def mark(self, rows: Rows, epoch: int) -> None:
        """Whoever changes rows says so here: a snapshot of changes has only these."""
        if self._epoch_column is not None:
            mark_rows(rows, self.matrix, self._epoch_column, epoch)

    def freeze(self, after: int | None) -> FrozenTable:
        """The rows changed in epochs behind `after`, or all. Cheap: keys are not copied, since they never change."""
        live = self.matrix[: self.size]
        if after is None or self._epoch_column is None:
            return FrozenTable(self.keys(), None, live.copy())
        rows = np.empty(self.size, np.int32)
        rows = rows[: rows_marked_after(live, self._epoch_column, after, rows)].copy()
        values = np.empty((len(rows), live.shape[1]), np.int64)
        gather_rows(live, rows, values)
        return FrozenTable(self.keys(), rows, values)

    def spare(self) -> SpareMemory:
        """To be given to another table; this one is used no more. Nothing that was handed out refers to it."""
        return SpareMemory(self._index.slots, self.matrix)

    def _first_matrix(self, spare: SpareMemory | None) -> Matrix:
        shape = (self._index.capacity, len(self._initial))
        if spare is None or spare.matrix.shape != shape:
            return self._new_matrix(shape[0], 0)
        spare.matrix[:] = self._initial
        return spare.matrix

    def _new_matrix(self, rows: int, filled: int) -> Matrix:
        matrix = np.empty((rows, len(self._initial)), np.int64)
        matrix[filled:] = self._initial
        return matrix
