"""A keyed stream grouped by event time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from snapshot_engine.api import window_steps as steps
from snapshot_engine.api.durations import DurationLike, milliseconds
from snapshot_engine.api.schemas import SchemaLike
from snapshot_engine.api.windows import Window
from snapshot_engine.graph.building import add_operator, where_event_time_went
from snapshot_engine.graph.logical import Step

if TYPE_CHECKING:
    from snapshot_engine.api.stream import DataStream
    from snapshot_engine.operators.aggregates import Aggregate
    from snapshot_engine.operators.functions import AggregateFunction, ProcessWindowFunction


@dataclass(frozen=True)
class WindowedStream:
    """Say what to make of each window: aggregate (columns, quick), reduce, aggregate_with or process
    (records)."""

    _stream: DataStream
    _window: Window
    _keys: tuple[str, ...]
    _lateness: DurationLike = "0s"
    _late_tag: str | None = None

    def allowed_lateness(self, lateness: DurationLike) -> WindowedStream:
        """Keep windows this long after their end: late rows put out a window's result again."""
        return replace(self, _lateness=lateness)

    def late_output(self, tag: str) -> WindowedStream:
        """Put rows that come even later to the side output `tag`, instead of dropping and counting them."""
        return replace(self, _late_tag=tag)

    def aggregate(self, **aggregates: Aggregate) -> DataStream:
        """The key columns, window_start, window_end, and the aggregates: `aggregate(bids=Count(),
        top=Max("price"))`."""
        return self._add("window aggregate", lambda spec: steps.aggregate_columns(aggregates, spec))

    def reduce(self, fn: Callable[[Any, Any], Any]) -> DataStream:
        """The records of each window folded by `fn(old, new)`."""
        return self._add("window reduce", lambda spec: steps.reduce_records(fn, spec))

    def aggregate_with(self, function: AggregateFunction, *, schema: SchemaLike | None = None) -> DataStream:
        """The records of each window folded into an accumulator of your own."""
        return self._add("window aggregate_with", lambda spec: steps.aggregate_with(function, schema, spec))

    def process(self, function: ProcessWindowFunction, *, schema: SchemaLike | None = None) -> DataStream:
        """All records of each window at once."""
        return self._add("window process", lambda spec: steps.process_window(function, schema, spec))

    def _add(self, kind: str, build: Callable[[steps.WindowSpec], Step]) -> DataStream:
        stream = self._stream

        def build_with(input: Any) -> Step:
            lost = where_event_time_went(stream.env.graph, stream._end)
            lateness = milliseconds(self._lateness)
            return build(steps.check_window(self._window, self._keys, input, lateness, self._late_tag, lost))

        return stream._after(add_operator(stream.env.graph, kind, [stream._end], build_with, keyed=True))
