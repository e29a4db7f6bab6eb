"""The newest row of every key, in Arrow batches: no Python object outlives the batch that needed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.kernels.newest import link_records, number_newest
from snapshot_engine.state.columnar_table import ColumnarTable, FrozenTable
from snapshot_engine.state.encoded_keys import EncodedKeys
from snapshot_engine.state.key_codec import KeyCodec
from snapshot_engine.state.row_store import RowStore

Numbers = npt.NDArray[np.int64]

_NEWEST = 0
"""The column of the table that has the number of the key's row in the store."""

_NONE_YET = np.array([-1], np.int64)

_DEAD_ROWS = 1 << 16
"""So many rows that newer ones took the place of may stay, and as many again as there are keys; then all go."""


@dataclass(frozen=True, slots=True)
class Linked:
    """The records of a batch, each with what its key had before it."""

    rows: Rows
    """The key of each record, as the row of the table."""
    old: pa.RecordBatch
    """The stored rows of those keys that have one."""
    before: Numbers
    """For each record: a row of `old`; or `len(old)` if its key is new; or `len(old)` + 1 + p after the record p."""
    keys: int
    """How many keys there are."""


class NewestRows:
    """A batch is taken in by `link` and then `put`; in between, the table is good for nothing else.

    Keys are never removed. `schema` is that of the rows, the key's columns apart.
    """

    def __init__(self, codec: KeyCodec, schema: pa.Schema, *, tracked: bool) -> None:
        self.codec = codec
        self.schema = schema
        self._table = ColumnarTable(codec, _NONE_YET, tracked=tracked)
        self._store = RowStore(schema)

    @property
    def size(self) -> int:
        return self._table.size

    @property
    def nbytes(self) -> int:
        return self._table.nbytes + self._store.nbytes

    def link(self, keys: EncodedKeys) -> Linked:
        """Find what each key has; keys that are new are added."""
        rows = self._table.add(keys)
        before, stored = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        stored = stored[: link_records(rows, self._table.matrix, self._store.size, before, stored)]
        known = stored >= 0
        old = self._in_order(stored[known])
        places = np.where(known, np.cumsum(known) - 1, old.num_rows)
        before = np.where(before < 0, old.num_rows + 1 + ~before, places[np.maximum(before, 0)])
        return Linked(rows, old, before, len(stored))

    def put(self, linked: Linked, results: pa.RecordBatch, epoch: int) -> None:
        """One result for each record of the batch: the last of each key is its newest row from now on."""
        newest = np.empty(linked.keys, np.int64)
        number_newest(linked.rows, self._table.matrix, self._store.size, newest)
        self._store.add(results if linked.keys == len(linked.rows) else results.take(pa.array(newest)))
        self._table.mark(linked.rows, epoch)
        self._drop_dead_rows()

    def replace(self, keys: EncodedKeys, rows: pa.RecordBatch) -> None:
        """Rows of distinct keys, whatever these had before; as restored, not as changed."""
        places = self._table.add(keys)  # before its matrix is named: a table that grows has another one
        self._table.matrix[places, _NEWEST] = self._store.size + np.arange(rows.num_rows)
        self._store.add(rows)
        self._drop_dead_rows()

    def freeze(self, after: int | None) -> FrozenRows:
        return FrozenRows(self.codec, self.schema, self._table.freeze(after), self._store.frozen())

    def _in_order(self, stored: Numbers) -> pa.RecordBatch:
        """The stored rows with these numbers, in this order: so records meet what they need one after the other."""
        parts, places = self._taken(stored)
        if len(parts) > 1:
            return pa.concat_batches(parts).take(pa.array(places))
        return parts[0] if parts else pa.RecordBatch.from_pylist([], schema=self.schema)

    def _taken(self, stored: Numbers) -> tuple[list[pa.RecordBatch], Numbers]:
        """The stored rows with these numbers as they come, and the place where each is."""
        places = np.empty(len(stored), np.int64)
        parts, taken = [], 0
        for positions, part in self._store.take(stored):
            places[positions] = np.arange(taken, taken + part.num_rows)
            parts.append(part)
            taken += part.num_rows
        return parts, places

    def _drop_dead_rows(self) -> None:
        if self._store.size <= 2 * self.size + _DEAD_ROWS:
            return
        parts, places = self._taken(self._table.matrix[: self.size, _NEWEST].copy())
        self._table.matrix[: self.size, _NEWEST] = places
        self._store = RowStore(self.schema)
        for part in parts:
            self._store.add(part)


@dataclass(frozen=True)
class FrozenRows:
    """The newest rows at a barrier, or those that changed."""

    codec: KeyCodec
    schema: pa.Schema
    table: FrozenTable
    store: RowStore

    def batches(self, key_names: Sequence[str], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The keys, then the rows, in columns of these names."""
        if not len(self.table):
            return
        keys = self.table.keys()
        for positions, rows in self.store.take(self.table.values[:, _NEWEST]):
            columns = self.codec.decode(keys.take(positions.astype(np.int32)), large=True)
            yield pa.RecordBatch.from_arrays([*columns, *rows.columns], names=[*key_names, *names])
