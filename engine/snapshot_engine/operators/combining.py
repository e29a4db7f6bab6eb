"""Which rows may be combined before a shuffle, and what is sent then: planned with the aggregate that takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from snapshot_engine.operators.aggregate_columns import AggregateColumns
from snapshot_engine.operators.aggregates import Aggregate, CountDistinct
from snapshot_engine.operators.stream_type import EventTime, StreamType
from snapshot_engine.operators.weights import WEIGHT
from snapshot_engine.operators.windows import SlidingWindow, TumblingWindow
from snapshot_engine.state.key_codec import plain_type


@dataclass(frozen=True)
class Combining:
    """Rows of one key and pane become one with their partial aggregates, where a batch has several of them."""

    keys: tuple[str, ...]
    window: TumblingWindow | SlidingWindow
    aggregates: Mapping[str, Aggregate]
    input: StreamType

    @property
    def event_time(self) -> EventTime:
        assert self.input.event_time is not None
        return self.input.event_time

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that are sent as they are: the keys and the event time, which may be one of them."""
        return tuple(dict.fromkeys((*self.keys, self.event_time.column)))

    def sent_schema(self) -> pa.Schema:
        """The one schema of rows that were combined and of those that were not."""
        partials = AggregateColumns(self.aggregates, self.input.schema).partial_fields()
        return pa.schema([*(self.input.schema.field(name) for name in self.kept), *partials, WEIGHT])


def combining_for(
    keys: tuple[str, ...],
    window: TumblingWindow | SlidingWindow,
    aggregates: Mapping[str, Aggregate],
    input: StreamType,
) -> Combining | None:
    """None where what is sent would not be enough: distinct values are needed one by one, and encoded columns would
    have to be decoded for every row."""
    if any(isinstance(aggregate, CountDistinct) for aggregate in aggregates.values()):
        return None
    if any(plain_type(field.type) != field.type for field in input.schema):
        return None
    combining = Combining(keys, window, dict(aggregates), input)
    names = combining.sent_schema().names
    return combining if len(set(names)) == len(names) else None
