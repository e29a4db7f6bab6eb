"""What is known of a stream when a job is planned: its columns and its event time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

HIDDEN_TIME = "__time__"
"""The column that carries event times where no column of the user's does: epoch milliseconds, int64."""

HIDDEN_KEY = "__key__"
"""The column that carries a key computed by a function, as packed bytes."""

HIDDEN_WEIGHT = "__weight__"
"""The column that says how many rows were combined into one before a shuffle: int32. A batch without it has rows as
they were put out, each of which counts once."""

RESERVED = frozenset({HIDDEN_TIME, HIDDEN_KEY, HIDDEN_WEIGHT})
"""A column of the user's with such a name would be taken for the engine's."""

RECORDS = pa.schema([pa.field("value", pa.binary())], metadata={"records": "msgpack"})
"""The schema of a stream of plain Python values, each packed by itself (never pickled: it crosses the network)."""


@dataclass(frozen=True)
class EventTime:
    """Which column is a row's event time (int64 epoch milliseconds, or an Arrow timestamp), shifted by `offset_ms`.

    The offset serves window results: their time is the last millisecond of the window, `window_end` - 1.
    """

    column: str
    offset_ms: int = 0


@dataclass(frozen=True)
class StreamType:
    schema: pa.Schema
    event_time: EventTime | None = None

    @property
    def plain(self) -> bool:
        """Whether the elements are plain Python values instead of rows."""
        return (self.schema.metadata or {}).get(b"records") == b"msgpack"

    def with_schema(self, schema: pa.Schema) -> StreamType:
        return replace(self, schema=schema)
