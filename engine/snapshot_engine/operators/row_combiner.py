"""Rows that have one key and fall into one pane become one row, before they are sent by key.

Batches are gathered as long as nothing has to go out: what groups cost beside their rows is paid once for all of them.
What is gathered goes out before the next control element, so it is no state. Whatever cannot be combined exactly, or
would not become much less, goes out as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.accumulate import Matrix
from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.kernels.ordering import LANES
from snapshot_engine.kernels.pane_numbers import number_panes
from snapshot_engine.operators.combining import Combining
from snapshot_engine.operators.combining_pace import CombiningPace, is_worth_it
from snapshot_engine.operators.event_times import Times, event_times
from snapshot_engine.operators.group_table import GroupLayout
from snapshot_engine.operators.panes import PaneGrid
from snapshot_engine.operators.weights import Ones
from snapshot_engine.state.encoded_keys import EncodedKeys
from snapshot_engine.state.key_index import key_index

MOST_GATHERED = 1 << 20
"""Rows: with more of them groups would hardly cost less."""
_MOST_PANES = 256
_MOST_PATTERNS = 16


class _Parts(NamedTuple):
    """Rows told apart by something else than their key."""

    total: int
    numbers: npt.NDArray[np.uint16] | None
    """Which one each row falls into; None if there is only one."""


@dataclass
class _Groups:
    """Accumulators of what is gathered: a cell for each key, used or not, for each pane and each pattern of nulls."""

    pane: int
    """Where the first one starts."""
    panes: _Parts
    times: pa.Array
    """For each pane the time of any row of it: it says no more than which one it is."""
    cells: Matrix
    stride: int
    """From a key's cell in one pane to that in the next. Cells of one pane alone may become more."""
    rows: int = 0


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
        """The keys that were seen last, so that they need not be told apart anew."""
        self._gathered: _Groups | None = None

    @property
    def holds_rows(self) -> bool:
        return self._gathered is not None

    def combine(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """What to send now: groups, or the batch's rows, which may be weighed later; nothing if they are gathered."""
        done: list[pa.RecordBatch] = []
        if self._pace.is_due(batch.num_rows):
            if self._gather(batch, done):
                return done
            self._pace.failed()
        kept = [batch.column(name) for name in self._kept]
        arrays = [*kept, *self._columns.partials_of_rows(batch)]
        return [*done, pa.RecordBatch.from_arrays(arrays, schema=self._sent_without_weight)]

    def take(self) -> list[pa.RecordBatch]:
        """What was gathered. Due before any control element goes out, and soon in any case."""
        groups, self._gathered = self._gathered, None
        if groups is None:
            return []
        self._pace.succeeded()
        return [self._sent(groups)]

    def weighed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What `combine` or `take` gave, or a part of it, with a weight for each row.

        A step of its own, so that the weights of all that was not combined are not brought into the order of the
        consumers row by row.
        """
        return batch if batch.num_columns == len(self.schema) else self._ones.append_to(batch)

    def _gather(self, batch: pa.RecordBatch, done: list[pa.RecordBatch]) -> bool:
        """Whether the batch's rows are in groups now. `done` is given what they could not be added to."""
        if batch.column(self._event_time.column).null_count:
            return False  # the aggregate says what is wrong
        times = event_times(batch, self._event_time)
        first = self._grid.pane_of(int(times.min()))
        panes, nulls = self._panes(times, first), self._null_patterns(batch)
        if panes is None or nulls is None:
            return False
        parts = panes.total * nulls.total
        if self._gathered is not None and (parts > 1 or first != self._gathered.pane):
            done += self.take()
        if not self._sums_fit(batch, done):
            return False
        keys = self._numbers_of_keys(self._layout.encode(batch), parts, done)
        if keys is None:
            return False
        groups = self._groups(batch, first, panes, parts)
        self._columns.accumulate(batch, self._cells_of(keys, groups, nulls), groups.cells)
        groups.rows += batch.num_rows
        if parts > 1 or groups.rows >= MOST_GATHERED:
            done += self.take()
        return True

    def _sums_fit(self, batch: pa.RecordBatch, done: list[pa.RecordBatch]) -> bool:
        """A group's sums are sent in 64 bits, also where the aggregate has more for them."""
        if not self._columns.sums_fit(batch):
            done += self.take()
            self._columns.start_anew()
        return self._columns.sums_fit(batch)

    def _numbers_of_keys(self, keys: EncodedKeys, parts: int, done: list[pa.RecordBatch]) -> Rows | None:
        """None if the batch has so many different keys that they are not worth it."""
        known = self._index.size
        rows = self._index.add(keys)
        gathered = 0 if self._gathered is None else self._gathered.rows
        if is_worth_it(gathered + len(keys), self._index.size * parts):
            return rows
        # Most of the keys may be those of batches long ago.
        done += self.take()
        self._index = key_index(self._layout.codec)
        if known == 0:
            return None
        rows = self._index.add(keys)
        return rows if is_worth_it(len(keys), self._index.size * parts) else None

    def _groups(self, batch: pa.RecordBatch, first: int, panes: _Parts, parts: int) -> _Groups:
        """What the batch's rows are to be added to, with a cell for each of them."""
        groups, size = self._gathered, self._index.size
        if groups is None:
            self._columns.start_anew()
            row_of_pane = np.zeros(panes.total, np.int64)
            if panes.numbers is not None:
                row_of_pane[panes.numbers] = np.arange(batch.num_rows)
            times = batch.column(self._event_time.column).take(pa.array(row_of_pane))
            groups = self._gathered = _Groups(first, panes, times, self._empty_cells(parts * size), size)
        elif size > len(groups.cells):
            more = self._empty_cells(2 * size)
            more[: len(groups.cells)] = groups.cells
            groups.cells, groups.stride = more, len(more)
        return groups

    def _empty_cells(self, count: int) -> Matrix:
        cells = np.empty((count, len(self._columns.initial)), np.int64)
        cells[:] = self._columns.initial
        return cells

    def _cells_of(self, keys: Rows, groups: _Groups, nulls: _Parts) -> Rows:
        cells, panes = keys, groups.panes
        for part, factor in ((panes, groups.stride), (nulls, groups.stride * panes.total)):
            if part.numbers is not None:
                cells = cells + part.numbers * np.int32(factor)
        return cells

    def _sent(self, groups: _Groups) -> pa.RecordBatch:
        used = np.flatnonzero(groups.cells[:, 0])
        cells = groups.cells[used]
        columns = self._layout.codec.decode(self._index.keys().take((used % groups.stride).astype(np.int32)))
        if len(self._kept) > len(columns):
            columns.append(groups.times.take(pa.array(used // groups.stride % groups.panes.total)))
        arrays = [*columns, *self._columns.partials_of_groups(cells), pa.array(cells[:, 0].astype(np.int32))]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _panes(self, times: Times, first: int) -> _Parts | None:
        pane = self._grid.pane
        count = (self._grid.pane_of(int(times.max())) - first) // pane + 1
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
