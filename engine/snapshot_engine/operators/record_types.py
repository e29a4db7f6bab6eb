"""The records of a stream as state: how their type is told, and how what a fold returned becomes one again."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from snapshot_engine.operators.record_fields import fields_of
from snapshot_engine.operators.records import visible_schema
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.state.row_class import row_class


def record_type(type_: StreamType) -> str:
    """The type of a stream's records, as checkpoints tell it."""
    if type_.plain:
        return "any"
    return "row(" + ", ".join(f"{field.name}: {field.type}" for field in visible_schema(type_)) + ")"


class RowFolding:
    """Makes rows of what a fold returned, so that the next fold can use it like any record."""

    def __init__(self, schema: pa.Schema) -> None:
        self.row = row_class(tuple(schema.names))
        self.width = len(schema)
        self._schema = schema

    def as_row(self, value: Any, operator: str) -> Any:
        if type(value) is tuple and len(value) == self.width:
            return self.row(value)
        columns = fields_of([value], self._schema, operator)
        return self.row([column[0] for column in columns])
