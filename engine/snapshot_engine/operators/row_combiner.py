"""The rows of a batch that have one key and fall into one pane become one row, before they are sent by key.

Stateless but for what makes it quick: the keys that were seen last, so that they need not be told apart anew. Whatever
cannot be combined exactly, or would not become much less, goes out as it is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.kernels.ordering import LANES
from snapshot_engine.kernels.pane_numbers import number_panes
from snapshot_engine.operators.aggregate_columns import SumTooLarge
from snapshot_engine.operators.combining import Combining
from snapshot_engine.operators.combining_pace import CombiningPace, has_room_for, is_worth_it
from snapshot_engine.operators.event_times import Times, event_times
from snapshot_engine.operators.group_table import GroupLayout
from snapshot_engine.operators.panes import PaneGrid
from snapshot_engine.operators.weights import Ones
from snapshot_engine.state.encoded_keys import EncodedKeys
from snapshot_engine.state.key_index import key_index

_MOST_PANES = 256
_MOST_PATTERNS = 16


class _Parts(NamedTuple):
    """Rows told apart by something else than their key."""

    total: int
    numbers: npt.NDArray[np.uint16] | None
    """Which one each row falls into; None if there is only one."""


class RowCombiner:
    def __init__(self, combining: Combining) -> None:
        self.schema = combining.sent_schema()
        self._sent_without_weight = self.schema.remove(len(self.schema) - 1)
        self._kept = combining.kept
        self._event_time = combining.event_time
        self._layout = GroupLayout(combining.keys, combining.aggregates, combining.input.schema)
        self._columns = self._layout.columns
        self._grid = PaneGrid.of(combining.window, 0)
        self._pace = CombiningPace()
        self._ones = Ones()
        self._index = key_index(self._layout.codec)

    def combine(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What to send instead of the batch: groups with their weights, or its rows, which may be weighed later."""
        if self._pace.is_due(batch.num_rows):
            combined = self._combined(batch)
            if combined is not None:
                self._pace.succeeded()
                return combined
            self._pace.failed()
        kept = [batch.column(name) for name in self._kept]
        arrays = [*kept, *self._columns.partials_of_rows(batch)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._sent_without_weight)

    def weighed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What `combine` gave, or a part of it, with a weight for each row.

        A step of its own, so that the weights of all that was not combined are not brought into the order of the
        consumers row by row.
        """
        return batch if batch.num_columns == len(self.schema) else self._ones.append_to(batch)

    def _combined(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """None where rows have to go as they are."""
        if batch.column(self._event_time.column).null_count:
            return None  # the aggregate says what is wrong
        panes = self._panes(event_times(batch, self._event_time))
        nulls = self._null_patterns(batch)
        if panes is None or nulls is None:
            return None
        parts = panes.total * nulls.total
        keys = self._rows_of_keys(self._layout.encode(batch), parts)
        if keys is None:
            return None
        cells = keys
        for which, factor in ((panes, self._index.size), (nulls, self._index.size * panes.total)):
            if which.numbers is not None:
                cells = cells + which.numbers * np.int32(factor)
        return self._groups(batch, cells, parts, panes)

    def _groups(self, batch: pa.RecordBatch, cells: Rows, parts: int, panes: _Parts) -> pa.RecordBatch | None:
        size = self._index.size
        matrix = np.empty((parts * size, len(self._columns.initial)), np.int64)
        matrix[:] = self._columns.initial
        self._columns.start_anew()
        try:
            self._columns.accumulate(batch, cells, matrix)
        except SumTooLarge:
            return None
        weights = matrix[:, 0]
        present = np.flatnonzero(weights)
        if not is_worth_it(batch.num_rows, len(present)):
            return None
        if len(present) < len(matrix):
            matrix = matrix[present]
        partials = self._columns.partials_of_groups(matrix)
        if partials is None:
            return None
        kept = self._kept_columns(batch, present % size, present // size % panes.total, panes)
        arrays = [*kept, *partials, pa.array(matrix[:, 0].astype(np.int32))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _kept_columns(
        self, batch: pa.RecordBatch, keys: npt.NDArray[np.int64], panes_of: npt.NDArray[np.int64], panes: _Parts
    ) -> list[pa.Array]:
        """Keys, and the time of any row of the pane: it says no more than which one it is."""
        columns = self._layout.codec.decode(self._index.keys().take(keys.astype(np.int32)))
        if len(self._kept) > len(columns):
            row_of_pane = np.zeros(panes.total, np.int64)
            if panes.numbers is not None:
                row_of_pane[panes.numbers] = np.arange(batch.num_rows)
            columns.append(batch.column(self._event_time.column).take(pa.array(row_of_pane[panes_of])))
        return columns

    def _panes(self, times: Times) -> _Parts | None:
        pane = self._grid.pane
        first, last = self._grid.pane_of(int(times.min())), self._grid.pane_of(int(times.max()))
        count = (last - first) // pane + 1
        if count == 1:
            return _Parts(1, None)
        if count > _MOST_PANES:
            return None
        numbers = np.empty(len(times), np.uint16)
        number_panes(times, first, pane, numbers, np.zeros((LANES, count), np.int64))
        return _Parts(count, numbers)

    def _null_patterns(self, batch: pa.RecordBatch) -> _Parts | None:
        """Which of a row's values are null: only rows that are alike in this are combined, so that a null is one."""
        count, numbers = 1, None
        for name in self._columns.input_columns:
            column = batch.column(name)
            if column.null_count == 0:
                continue
            bits = column.is_null().to_numpy(zero_copy_only=False) * np.uint16(count)
            numbers = bits if numbers is None else numbers + bits
            count *= 2
        return _Parts(count, numbers) if count <= _MOST_PATTERNS else None

    def _rows_of_keys(self, keys: EncodedKeys, parts: int) -> Rows | None:
        """A number for each key; None if there are too many of them."""
        known = self._index.size
        rows = self._index.add(keys)
        if has_room_for(self._index.size * parts, len(keys)):
            return rows
        # Most of the keys may be those of batches long ago.
        self._index = key_index(self._layout.codec)
        if known == 0:
            return None
        rows = self._index.add(keys)
        return rows if has_room_for(self._index.size * parts, len(keys)) else None
