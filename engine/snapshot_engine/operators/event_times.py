"""The event times of rows, as epoch milliseconds, wherever a stream keeps them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.operators.stream_type import EventTime

Times = npt.NDArray[np.int64]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


class MissingEventTimeError(ValueError):
    """A row without an event time, in a stream that has event times."""


def event_times(batch: pa.RecordBatch, event_time: EventTime) -> Times:
    """The event time of every row. A column of microseconds or nanoseconds is rounded down."""
    return checked_times(batch.column(event_time.column), event_time)


def checked_times(column: pa.Array, event_time: EventTime) -> Times:
    """The same from the column itself."""
    if column.null_count:
        raise MissingEventTimeError(
            f"{column.null_count} of {len(column)} rows have no event time: {event_time.column!r} is null; "
            "drop such rows before event times are assigned, or give them a time"
        )
    times = milliseconds(column)
    return times + event_time.offset_ms if event_time.offset_ms else times


def milliseconds(column: pa.Array) -> Times:
    """A column of int64 epoch milliseconds or of Arrow timestamps as epoch milliseconds; no nulls."""
    if pa.types.is_timestamp(column.type):
        raw: Times = column.cast(pa.int64()).to_numpy()
        return _rescaled(raw, _PER_SECOND[column.type.unit])
    if pa.types.is_integer(column.type):
        integers: Times = column.to_numpy().astype(np.int64, copy=False)
        return integers
    raise TypeError(f"an event time is an integer (epoch milliseconds) or a timestamp, not {column.type}")


def _rescaled(raw: Times, per_second: int) -> Times:
    if per_second < 1_000:
        return raw * (1_000 // per_second)
    return raw if per_second == 1_000 else raw // (per_second // 1_000)
