"""A Python collection as a table: rows with columns, or plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from snapshot_engine.api.schemas import SchemaLike, has_fields, to_schema
from snapshot_engine.operators.records import Records, to_arrow
from snapshot_engine.operators.stream_type import RECORDS, StreamType


def table_of(rows: Iterable[Any] | pa.Table | pa.RecordBatch, schema: SchemaLike | None) -> pa.Table:
    """Raises TypeError or ValueError where the rows do not fit the schema."""
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if isinstance(rows, pa.Table):
        return rows if schema is None else rows.cast(to_schema(schema))
    values = list(rows)
    columns = to_schema(schema) if schema is not None else _found_schema(values)
    batch = to_arrow(Records(values, producer="from_collection"), StreamType(columns))
    return pa.Table.from_batches([batch])


def _found_schema(values: list[Any]) -> pa.Schema:
    """Of annotated classes what they say, of dicts what is in them; anything else is a plain value."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and has_fields(kind := kinds.pop()):
        return to_schema(kind)
    if values and all(isinstance(value, Mapping) for value in values):
        return pa.Table.from_pylist([dict(value) for value in values]).schema
    return RECORDS
