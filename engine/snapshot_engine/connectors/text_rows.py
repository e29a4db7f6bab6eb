"""Rows as JSON text, for people and for files."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa

from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.state.packing import unpack


def python_rows(batch: pa.RecordBatch) -> list[Any]:
    """A dict per row; or the values themselves where the stream is one of plain values."""
    if StreamType(batch.schema).plain:
        return [unpack(packed) for packed in batch.column("value").to_pylist()]
    rows: list[Any] = batch.to_pylist(maps_as_pydicts="strict")
    return rows


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    for row in python_rows(batch):
        yield json.dumps(_plain(row), ensure_ascii=False)


def _plain(value: Any) -> Any:
    """What JSON has no form for, as text; numbers that are none as null."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(item) for item in value]
        case bytes():
            return base64.b64encode(value).decode("ascii")
        case dt.datetime() | dt.time():
            # One form for all values of a column, also for full seconds; pandas has nanoseconds.
            return value.isoformat(timespec="nanoseconds" if hasattr(value, "nanosecond") else "microseconds")
        case dt.date():
            return value.isoformat()
        case dt.timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
    return str(value)
