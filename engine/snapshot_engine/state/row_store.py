"""Rows that are only ever added, kept in Arrow batches and found again by their numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows

_LARGEST_BATCH = 1 << 30
"""Bytes: a string column cannot hold more than twice that."""


class RowStore:
    """Row n is the n-th that was added. Batches are joined to larger ones as they come, so that there are few."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[pa.RecordBatch] = []
        self._starts: list[int] = []
        self.size = 0

    @property
    def nbytes(self) -> int:
        return sum(batch.nbytes for batch in self._batches)

    def add(self, batch: pa.RecordBatch) -> None:
        self._starts.append(self.size)
        self._batches.append(batch)
        self.size += batch.num_rows
        while len(self._batches) > 1 and self._batches[-2].num_rows <= 2 * self._batches[-1].num_rows:
            before, last = self._batches[-2:]
            if before.nbytes + last.nbytes > _LARGEST_BATCH:
                break
            (joined,) = pa.Table.from_batches([before, last], self._schema).combine_chunks().to_batches()
            self._batches[-2:] = [joined]
            self._starts.pop()

    def frozen(self) -> RowStore:
        """The rows that there are now, without copying them."""
        frozen = RowStore(self._schema)
        frozen._batches, frozen._starts, frozen.size = [*self._batches], [*self._starts], self.size
        return frozen

    def since(self, first: int) -> list[pa.RecordBatch]:
        """The rows from number `first` on, without copying them."""
        return [
            batch.slice(max(0, first - start))
            for start, batch in zip(self._starts, self._batches, strict=True)
            if start + batch.num_rows > first
        ]

    def take(self, rows: Rows | npt.NDArray[np.int64]) -> Iterator[tuple[npt.NDArray[np.intp], pa.RecordBatch]]:
        """The rows with these numbers, in parts: (positions in `rows`, the rows at these positions)."""
        if len(self._batches) == 1:
            yield np.arange(len(rows)), self._batches[0].take(pa.array(rows))
            return
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        for number, (start, batch) in enumerate(zip(self._starts, self._batches, strict=True)):
            positions = np.flatnonzero(owners == number)
            if len(positions):
                yield positions, batch.take(pa.array(rows[positions] - start))
