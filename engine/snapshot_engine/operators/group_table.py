"""Aggregates per key: a table of accumulators, and the sets behind distinct counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.accumulate import count_rows
from snapshot_engine.kernels.arrow_views import Rows, plain
from snapshot_engine.operators.aggregate_columns import AggregateColumns, Kind
from snapshot_engine.operators.aggregates import Aggregate
from snapshot_engine.state.columnar_table import ColumnarTable, FrozenTable, SpareMemory
from snapshot_engine.state.encoded_keys import EncodedKeys
from snapshot_engine.state.key_codec import KeyCodec

GROUPS = "groups"
"""The name under which the accumulators are written; distinct values of column c are under `distinct:c`."""

_DISTINCT = "distinct:"
_NOTHING = np.empty(0, np.int64)


class GroupLayout:
    """What is kept for keys and aggregates; shared by all tables of an operator."""

    def __init__(self, keys: Sequence[str], aggregates: Mapping[str, Aggregate], schema: pa.Schema) -> None:
        self.keys = tuple(keys)
        self.codec = KeyCodec(keys, [schema.field(name).type for name in keys])
        self.columns = AggregateColumns(aggregates, schema)
        self.pair_codecs = {
            name: KeyCodec([name, name], [pa.int64(), schema.field(name).type])
            for name in self.columns.distinct_columns
        }
        self._input = schema

    @property
    def key_fields(self) -> list[pa.Field]:
        return [pa.field(name, type_) for name, type_ in zip(self.keys, self.codec.types, strict=True)]

    @property
    def stored_keys(self) -> list[str]:
        """The names of the key columns in written tables: prefixed, so that no accumulator can have the same."""
        return [f"key.{name}" for name in self.keys]

    def describe(self) -> dict[str, str]:
        """For the checkpoint: keys, accumulators and their types."""
        described = {f"key {name}": str(type_) for name, type_ in zip(self.keys, self.codec.types, strict=True)}
        for accumulator in self.columns.accumulators:
            if accumulator.kind is Kind.CARRY:
                continue  # it belongs to its sum, and states of earlier versions are without
            type_ = "" if accumulator.column is None else str(self._input.field(accumulator.column).type)
            described[accumulator.name] = type_ or "int64"
        return described

    def encode(self, batch: pa.RecordBatch) -> EncodedKeys:
        return self.codec.encode([batch.column(name) for name in self.keys])


class GroupTable:
    def __init__(
        self, layout: GroupLayout, *, tracked: bool, expected: int = 0, spare: SpareMemory | None = None
    ) -> None:
        self.layout = layout
        initial = layout.columns.initial
        self.table = ColumnarTable(layout.codec, initial, tracked=tracked, expected=expected, spare=spare)
        self._pairs = {
            name: ColumnarTable(codec, _NOTHING, tracked=tracked) for name, codec in layout.pair_codecs.items()
        }

    @property
    def size(self) -> int:
        return self.table.size

    @property
    def nbytes(self) -> int:
        return self.table.nbytes + sum(pairs.nbytes for pairs in self._pairs.values())

    def add_batch(self, batch: pa.RecordBatch, keys: EncodedKeys, epoch: int) -> Rows:
        """Add each row of the batch to its key's accumulators; returns which row each key has."""
        rows = self.table.add(keys)
        self.layout.columns.accumulate(batch, rows, self.table.matrix)
        for name in self._pairs:
            self._add_distinct(name, rows, batch.column(name), epoch)
        self.table.mark(rows, epoch)
        return rows

    def take_in(self, other: GroupTable, other_rows: Rows | None = None) -> None:
        """Merge all rows of another table, or some; the other one stays as it is."""
        chosen = np.arange(other.size, dtype=np.int32) if other_rows is None else other_rows
        keys = other.table.keys() if other_rows is None else other.table.keys().take(chosen)
        rows = self.table.add(keys)
        self.layout.columns.merge(other.table.matrix, chosen, self.table.matrix, rows)
        for name, pairs in other._pairs.items():
            of_row = np.full(other.size, -1, np.int64)
            of_row[chosen] = rows
            owners, values = pairs.codec.decode(pairs.keys())
            targets = of_row[owners.to_numpy()]
            kept = targets >= 0
            self._add_distinct(name, targets[kept].astype(np.int32), values.filter(pa.array(kept)), 0)

    def results(self, rows: Rows | None = None) -> list[pa.Array]:
        """Key columns, then one column per aggregate."""
        keys = self.table.keys()
        matrix = self.table.matrix[: self.size]
        if rows is not None:
            keys, matrix = keys.take(rows), matrix[rows]
        return [*self.layout.codec.decode(keys), *self.layout.columns.results(matrix)]

    def freeze(self, after: int | None) -> FrozenGroups:
        pairs = {name: table.freeze(after) for name, table in self._pairs.items()}
        return FrozenGroups(self.layout, self.table.freeze(after), pairs)

    def restore(self, name: str, batch: pa.RecordBatch) -> None:
        """Take over a written table: rows that are there already are replaced."""
        keys = self.layout.codec.encode([batch.column(key) for key in self.layout.stored_keys])
        rows = self.table.add(keys)
        if name == GROUPS:
            values = self.layout.columns.restored(batch)
            self.table.matrix[rows, : values.shape[1]] = values
        else:
            column_name = name.removeprefix(_DISTINCT)
            codec = self.layout.pair_codecs[column_name]
            values = batch.column("value")
            self._pairs[column_name].add(codec.encode([pa.array(rows.astype(np.int64)), values]))

    def _add_distinct(self, name: str, rows: Rows, column: pa.Array, epoch: int) -> None:
        column = plain(column)
        if column.null_count:
            present = column.is_valid()
            rows, column = rows[present.to_numpy(zero_copy_only=False)], column.filter(present)
        pairs = self._pairs[name]
        before = pairs.size
        numbers = pairs.add(pairs.codec.encode([pa.array(rows.astype(np.int64)), column]))
        new = np.flatnonzero(numbers >= before)
        _, first = np.unique(numbers[new], return_index=True)
        fresh = new[first]
        count_rows(rows[fresh], self.table.matrix, self.layout.columns.position(Kind.DISTINCT, name))
        pairs.mark(numbers[fresh], epoch)


@dataclass(frozen=True)
class FrozenGroups:
    """A group table's rows at a barrier."""

    layout: GroupLayout
    groups: FrozenTable
    pairs: Mapping[str, FrozenTable]

    def batches(self, window: int | None = None) -> Iterator[tuple[str, pa.RecordBatch]]:
        """What is written, as (table name, rows); with `window`, in a column of that name."""
        if len(self.groups):
            columns = self.layout.columns
            names = [*self.layout.stored_keys, *columns.stored_names]
            keys = self.layout.codec.decode(self.groups.keys(), large=True)
            yield GROUPS, _batch([*keys, *columns.stored(self.groups.values)], names, window)
        for name, frozen in self.pairs.items():
            if len(frozen):
                owners, values = self.layout.pair_codecs[name].decode(frozen.keys(), large=True)
                owner_keys = self.groups.all_keys.take(owners.to_numpy().astype(np.int32))
                keys = self.layout.codec.decode(owner_keys, large=True)
                yield f"{_DISTINCT}{name}", _batch([*keys, values], [*self.layout.stored_keys, "value"], window)


def _batch(columns: list[pa.Array], names: list[str], window: int | None) -> pa.RecordBatch:
    if window is not None:
        columns = [pa.array(np.full(len(columns[0]), window, np.int64)), *columns]
        names = ["window", *names]
    return pa.RecordBatch.from_arrays(columns, names=names)


def tables_of(batches: Iterator[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.Table]]:
    """Batches by their tables' names, each table whole."""
    grouped: dict[str, list[pa.RecordBatch]] = {}
    for name, batch in batches:
        grouped.setdefault(name, []).append(batch)
    for name, parts in grouped.items():
        yield name, pa.Table.from_batches(parts)
