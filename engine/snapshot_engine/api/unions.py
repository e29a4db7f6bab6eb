"""Several streams as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from snapshot_engine.graph.building import Input
from snapshot_engine.graph.columns import visible_columns
from snapshot_engine.operators.stream_type import EventTime, StreamType

if TYPE_CHECKING:
    from snapshot_engine.api.stream import DataStream


def union_of(first: DataStream, others: Sequence[DataStream]) -> DataStream:
    """No operator of its own: the next one has an edge from each."""
    from snapshot_engine.api.stream import DataStream

    ends = [first._end, *(other._end for other in others)]
    type = first._end.type
    for end in ends[1:]:
        other = difference(first._end.type, end.type)
        if other:
            first.env.graph.refuse_call("union", other)
        if other or end.type is None:
            type = None
    return DataStream(first.env, Input(tuple(upstream for end in ends for upstream in end.upstreams), type))


def difference(left: StreamType | None, right: StreamType | None) -> str | None:
    """Why the two cannot be one stream."""
    if left is None or right is None:
        return None
    if left.plain != right.plain:
        return "one stream has columns and the other plain records; give both the same schema"
    if not left.schema.equals(right.schema):
        return f"the streams have different columns: {_columns(left)} and {_columns(right)}"
    if left.event_time != right.event_time:
        return (
            f"the streams have different event times: {_time(left.event_time)} and "
            f"{_time(right.event_time)}; call with_watermark on both with the same column, or on their union"
        )
    return None


def _columns(type: StreamType) -> str:
    shown = [f"{name} {type.schema.field(name).type}" for name in visible_columns(type.schema)]
    return f"({', '.join(shown)})" + (" with event times from a function" if len(shown) < len(type.schema) else "")


def _time(event_time: EventTime | None) -> str:
    return "none" if event_time is None else f"column {event_time.column!r}"
