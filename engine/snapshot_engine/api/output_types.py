"""Which columns and which event time a stream has after an operator, where the operator does not say so
itself."""

from __future__ import annotations

import pyarrow as pa

from snapshot_engine.operators.stream_type import HIDDEN_TIME, RECORDS, EventTime, StreamType


def records_output(schema: pa.Schema | None, event_time: EventTime | None) -> StreamType:
    """The type of what a user's function returns: rows of `schema`, or plain values without one.

    Event time goes on with the record: in the same column if the output has it, in a hidden one otherwise.
    """
    columns = RECORDS if schema is None else schema
    if event_time is None:
        return StreamType(columns)
    if schema is not None and event_time.column in schema.names and event_time.column != HIDDEN_TIME:
        return StreamType(schema, event_time)
    return StreamType(with_hidden_time(columns), EventTime(HIDDEN_TIME))


def columns_output(schema: pa.Schema, event_time: EventTime | None) -> StreamType:
    """The type of a batch that was worked out column by column: event time lasts as long as its column is
    there."""
    if event_time is not None and event_time.column in schema.names and is_time(schema.field(event_time.column).type):
        return StreamType(schema, event_time)
    return StreamType(schema)


def with_hidden_time(schema: pa.Schema) -> pa.Schema:
    if HIDDEN_TIME in schema.names:
        return schema
    return schema.append(pa.field(HIDDEN_TIME, pa.int64()))


def is_time(type: pa.DataType) -> bool:
    return bool(pa.types.is_int64(type) or pa.types.is_timestamp(type))
