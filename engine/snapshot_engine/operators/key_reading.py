"""The keys of the records that come in at a keyed operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from snapshot_engine.operators.operator import Data
from snapshot_engine.operators.record_fields import UNFIT, fields_of, mismatch
from snapshot_engine.operators.records import Records, visible_schema
from snapshot_engine.operators.rows import arrow_column, python_values
from snapshot_engine.operators.stream_type import HIDDEN_KEY, StreamType
from snapshot_engine.state.packing import unpack
from snapshot_engine.state.record_keys import Key, RecordKeys


class KeyReader:
    """Knows the key columns of one input."""

    def __init__(self, columns: Sequence[str], type_: StreamType) -> None:
        self.columns = tuple(columns)
        self._packed = self.columns == (HIDDEN_KEY,)
        types = [type_.schema.field(name).type for name in self.columns]
        self.keys = RecordKeys(types, () if self._packed else self.columns)
        self._visible = visible_schema(type_)
        self._nested = [pa.types.is_nested(kind) for kind in self.keys.types]

    def of(self, data: Data, records: Records) -> list[Key]:
        """The key of every record; `records` is what `data` was converted to."""
        return self._joined([self._values(name, data, records) for name in self.columns])

    def of_batch(self, batch: pa.RecordBatch) -> list[Key]:
        """The key of every row."""
        return self._joined([python_values(batch.column(name)) for name in self.columns])

    def columns_of(self, batch: pa.RecordBatch | None, records: Records) -> list[pa.Array]:
        """The key columns of the batch, or of the records where these never were a batch."""
        if batch is not None:
            return [batch.column(name) for name in self.columns]
        columns = fields_of(records.values, self._visible, records.producer)
        positions = [self._visible.get_field_index(name) for name in self.columns]
        try:
            return [arrow_column(columns[position], self._visible.field(position)) for position in positions]
        except UNFIT as error:
            raise mismatch(records.values, columns, self._visible, records.producer, error) from None

    def _joined(self, columns: list[Sequence[Any]]) -> list[Key]:
        for position, nested in enumerate(self._nested):
            if nested:
                columns[position] = [_hashable(value) for value in columns[position]]
        return self.keys.joined(columns)

    def for_user(self, key: Key) -> Any:
        """The key as the user's functions see it."""
        return unpack(key) if self._packed else self.keys.in_zones(key)

    def _values(self, name: str, data: Data, records: Records) -> Sequence[Any]:
        if not isinstance(data, Records):
            if records.columns is not None and name in records.columns:
                return records.columns[name][0]
            return python_values(data.column(name))
        if not records.values:
            return []
        position: int = self._visible.get_field_index(name)
        return fields_of(records.values, self._visible, records.producer)[position]


def _hashable(value: Any) -> Any:
    """Lists and structs as tuples, from which Arrow makes the same lists and structs again."""
    if isinstance(value, list):
        return tuple(_hashable(item) for item in value)
    if isinstance(value, dict):
        return tuple(_hashable(item) for item in value.values())
    return value
