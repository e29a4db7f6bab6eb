"""Splitting a batch among the subtasks that own its rows' key groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import (
    LARGE_OFFSETS,
    SMALL_OFFSETS,
    WIDTH_1,
    WIDTH_2,
    WIDTH_4,
    WIDTH_8,
    byte_strings_of,
    fixed_width,
)
from snapshot_engine.kernels.hashing import hash_rows
from snapshot_engine.kernels.memory import COPY_SLACK
from snapshot_engine.kernels.ordering import (
    LANES,
    find_destinations,
    gather_bytes,
    gather_values,
    sort_by_destination,
)
from snapshot_engine.state.key_groups import owner_of


class HashPartitioner:
    """Which subtask gets which row: the one that owns the key group of the row's key columns."""

    def __init__(self, key_columns: Sequence[str], parallelism: int, key_groups: int) -> None:
        if not 1 <= parallelism <= key_groups <= 1 << 15:
            raise ValueError(
                f"parallelism {parallelism} with {key_groups} key groups: the parallelism must be at least 1 "
                f"and at most the number of key groups, which must be at most {1 << 15}"
            )
        self.key_columns = tuple(key_columns)
        self.parallelism = parallelism
        self.key_groups = key_groups
        self._owners = np.array([owner_of(group, parallelism, key_groups) for group in range(key_groups)], np.uint16)

    def split(self, batch: pa.RecordBatch) -> list[pa.RecordBatch | None]:
        """The rows of each subtask, in the order they came; None where there are none."""
        if self.parallelism == 1:
            return [batch if batch.num_rows else None]
        destinations = np.empty(batch.num_rows, np.uint16)
        counts = np.zeros((LANES, self.parallelism), np.int64)
        hashes = hash_rows(batch, self.key_columns)
        find_destinations(hashes, self.key_groups, self._owners, destinations, counts)
        totals = counts.sum(axis=0).tolist()
        if batch.num_rows in totals:
            return [batch if total else None for total in totals]
        order = np.empty(batch.num_rows, np.uint32)
        sort_by_destination(destinations, counts, order)
        return _cut(reorder(batch, order), totals)


def _cut(batch: pa.RecordBatch, sizes: Sequence[int]) -> list[pa.RecordBatch | None]:
    parts: list[pa.RecordBatch | None] = []
    start = 0
    for size in sizes:
        parts.append(batch.slice(start, size) if size else None)
        start += size
    return parts


def reorder(batch: pa.RecordBatch, order: npt.NDArray[np.uint32]) -> pa.RecordBatch:
    """All rows of the batch, in the order given (a permutation of their numbers)."""
    columns = [_reorder_column(column, order) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _reorder_column(column: pa.Array, order: npt.NDArray[np.uint32]) -> pa.Array:
    move = _MOVES.get(column.type.id)
    if move is None or column.null_count:
        return column.take(pa.array(order))
    return move(column, order)


def _reorder_values(column: pa.Array, order: npt.NDArray[np.uint32], dtype: Any) -> pa.Array:
    out = np.empty(len(column), dtype)
    gather_values(fixed_width(column, dtype), order, out)
    return pa.Array.from_buffers(column.type, len(column), [None, pa.py_buffer(out)])


def _reorder_bytes(column: pa.Array, order: npt.NDArray[np.uint32], offset_type: Any) -> pa.Array:
    data, offsets = byte_strings_of(column)
    size = int(offsets[-1] - offsets[0])
    new_offsets = np.empty(len(column) + 1, offset_type)
    out = np.empty(size + COPY_SLACK, np.uint8)
    gather_bytes(data, offsets, order, out, new_offsets)
    buffers = [None, pa.py_buffer(new_offsets), pa.py_buffer(out[:size])]
    return pa.Array.from_buffers(column.type, len(column), buffers)


_MOVES: dict[int, Callable[[pa.Array, npt.NDArray[np.uint32]], pa.Array]] = {
    **{type_id: partial(_reorder_values, dtype=np.uint8) for type_id in WIDTH_1},
    **{type_id: partial(_reorder_values, dtype=np.uint16) for type_id in WIDTH_2},
    **{type_id: partial(_reorder_values, dtype=np.uint32) for type_id in WIDTH_4},
    **{type_id: partial(_reorder_values, dtype=np.uint64) for type_id in WIDTH_8},
    **{type_id: partial(_reorder_bytes, offset_type=np.int32) for type_id in SMALL_OFFSETS},
    **{type_id: partial(_reorder_bytes, offset_type=np.int64) for type_id in LARGE_OFFSETS},
}
"""The quickest way to move a column without nulls, by its type's id."""
