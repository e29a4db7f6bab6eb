"""Python records inside a chain, beside Arrow batches; and how one becomes the other.

A record of a stream with a schema is a row (state/row_class.py), without the hidden columns. A record of a
stream without one is any plain value. Event times lie beside the values while they are records.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.operators.event_times import Times, checked_times, event_times
from snapshot_engine.operators.record_fields import UNFIT, fields_of, mismatch
from snapshot_engine.operators.rows import arrow_column, python_values, rows_of
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, StreamType
from snapshot_engine.operators.user_errors import PlainRecordError
from snapshot_engine.state.packing import PackError, pack_all, unpack_all
from snapshot_engine.state.row_class import row_class

_HIDDEN = (HIDDEN_TIME, HIDDEN_KEY)


@dataclass(slots=True)
class Records:
    """A batch of Python values, with their event times where the stream has them."""

    values: Sequence[Any]
    timestamps: Times | None = None
    """Epoch ms, one per value; None where there is no event time, or a column of the values has it."""
    producer: str = ""
    """The name of the operator that made the values, for messages about them."""
    columns: Mapping[str, tuple[list[Any], pa.Array]] | None = None
    """The columns that the values were made from, as values and as arrays: what a function handed on as it
    was need not be converted back."""
    source: tuple[pa.RecordBatch, npt.NDArray[np.intp] | None] | None = None
    """The very same records as rows of a batch (None: all of them): nothing has to be converted back."""

    def __len__(self) -> int:
        return len(self.values)

    def chosen(self, positions: npt.NDArray[np.intp], values: list[Any]) -> Records:
        """The records at these positions, whose values are `values`."""
        times = None if self.timestamps is None else self.timestamps[positions]
        if self.source is None:
            return Records(values, times, self.producer)
        batch, rows = self.source
        return Records(values, times, self.producer, source=(batch, positions if rows is None else rows[positions]))


def needs_times(type_: StreamType) -> bool:
    """Whether records of this type must bring their event times with them: no column of theirs has it."""
    return type_.event_time is not None and type_.event_time.column == HIDDEN_TIME


def visible_schema(type_: StreamType) -> pa.Schema:
    """The columns that the user's functions see."""
    schema = type_.schema
    for name in _HIDDEN:
        position = schema.get_field_index(name)
        if position >= 0:
            schema = schema.remove(position)
    return schema


def to_records(data: pa.RecordBatch | Records, type_: StreamType, *, times: bool = True) -> Records:
    """What a stream of `type_` carries, as records; with event times if `times` or if they are hidden."""
    times = type_.event_time is not None and (times or needs_times(type_))
    if isinstance(data, Records):
        data = data if type_.plain else _with_rows(data, type_)
        return _with_times(data, type_) if times and data.timestamps is None else data
    timestamps = event_times(data, type_.event_time) if times and type_.event_time else None
    if type_.plain:
        return Records(unpack_all(data.column("value").to_pylist()), timestamps, source=(data, None))
    arrays = {name: data.column(name) for name in type_.schema.names if name not in _HIDDEN}
    columns = {name: (python_values(array), array) for name, array in arrays.items()}
    values = rows_of([values for values, _ in columns.values()], tuple(columns))
    return Records(values, timestamps, columns=columns, source=(data, None))


def _with_rows(records: Records, type_: StreamType) -> Records:
    """What a function returned may be a tuple, dict or dataclass: the next function is given rows all the same."""
    schema = visible_schema(type_)
    names = tuple(schema.names)
    if set(map(type, records.values)) <= {row_class(names)}:
        return records
    rows = rows_of(fields_of(records.values, schema, records.producer), names)
    return Records(rows, records.timestamps, records.producer, records.columns)


def _with_times(records: Records, type_: StreamType) -> Records:
    """Event times that lie in a column of the rows themselves."""
    event_time = type_.event_time
    if event_time is None or not records.values:
        return records
    if needs_times(type_):
        raise ValueError(f"the records of {records.producer!r} have lost their event times")
    schema = visible_schema(type_)
    position = schema.get_field_index(event_time.column)
    columns = fields_of(records.values, schema, records.producer)
    column = arrow_column(columns[position], schema.field(position))
    times = checked_times(column, event_time)
    return dataclasses.replace(records, timestamps=times)


def to_arrow(data: pa.RecordBatch | Records, type_: StreamType) -> pa.RecordBatch:
    """What a stream of `type_` carries, as a batch of exactly its schema.

    What does not fit is a RecordMismatchError or PlainRecordError that names the operator and the record.
    """
    if not isinstance(data, Records):
        return data
    if data.source is not None and data.source[0].schema.equals(type_.schema):
        batch, rows = data.source
        return batch if rows is None else batch.take(pa.array(rows))
    arrays = [_packed(data)] if type_.plain else _columns(data, visible_schema(type_))
    return assembled(arrays, data, type_)


def assembled(visible: list[pa.Array], records: Records, type_: StreamType) -> pa.RecordBatch:
    """The columns that users see, made from the records, with the records' event times where these are hidden."""
    arrays = [*visible]
    if HIDDEN_TIME in type_.schema.names:
        arrays.insert(type_.schema.get_field_index(HIDDEN_TIME), _hidden_times(records))
    return pa.RecordBatch.from_arrays(arrays, schema=type_.schema)


def _hidden_times(records: Records) -> pa.Array:
    if records.timestamps is None:
        raise ValueError(f"the records of {records.producer!r} have lost their event times")
    return pa.array(np.asarray(records.timestamps, np.int64))


def _packed(records: Records) -> pa.Array:
    try:
        return pa.array(pack_all(records.values), pa.binary())
    except PackError as error:
        reason, position = error.args
        raise PlainRecordError(records.producer, reason, records.values[position]) from None


def _columns(records: Records, schema: pa.Schema) -> list[pa.Array]:
    if not records.values:
        return [pa.array([], field.type) for field in schema]
    columns = fields_of(records.values, schema, records.producer)
    known = records.columns or {}
    try:
        return [
            _unchanged(column, field, known) or arrow_column(column, field)
            for column, field in zip(columns, schema, strict=True)
        ]
    except UNFIT as error:
        raise mismatch(records.values, columns, schema, records.producer, error) from None


def _unchanged(column: Sequence[Any], field: pa.Field, known: Mapping[str, tuple[list[Any], pa.Array]]) -> Any:
    """The column as it came in, if the function handed on the very objects: times are dear. Of lists and structs that
    says nothing: they may have been changed in place."""
    values, array = known.get(field.name, ([], None))
    if array is None or array.type != field.type or len(array) != len(column):
        return None
    if not pa.types.is_temporal(field.type):
        return None
    return array if all(map(is_, column, values)) else None
