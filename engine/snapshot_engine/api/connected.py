"""Two streams into one function with one state."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from snapshot_engine.api.keyed import KeyedStream
from snapshot_engine.api.output_types import records_output
from snapshot_engine.api.schemas import SchemaLike, returned_schema, to_schema
from snapshot_engine.api.stateful import TIMERS, overrides
from snapshot_engine.graph.building import add_operator
from snapshot_engine.graph.logical import Step
from snapshot_engine.operators.functions import CoProcessFunction
from snapshot_engine.operators.stream_type import EventTime, StreamType

if TYPE_CHECKING:
    from snapshot_engine.api.stream import DataStream


@dataclass(frozen=True)
class ConnectedStreams:
    """`left.key_by("id").connect(right.key_by("user"))`, or `left.connect(right).key_by("id", "user")`."""

    left: DataStream
    right: DataStream

    def key_by(self, left: Any, right: Any) -> ConnectedStreams:
        """The key of the left stream and of the right one: a column, a list of columns, or a function."""
        return ConnectedStreams(self.left.key_by(*_listed(left)), self.right.key_by(*_listed(right)))

    def process(self, function: CoProcessFunction, *, schema: SchemaLike | None = None) -> DataStream:
        """A CoProcessFunction: `process_left` and `process_right` share the state of their key."""

        def build(left: StreamType, right: StreamType) -> Step:
            return _process(function, schema, keys_of(self.left), keys_of(self.right), left, right)

        ends = [self.left._end, self.right._end]
        node = add_operator(self.left.env.graph, f"process {type(function).__name__}", ends, build, keyed=True)
        return self.left._after(node)


def keys_of(stream: DataStream) -> tuple[str, ...]:
    return stream._keys if isinstance(stream, KeyedStream) else ()


def _listed(keys: Any) -> list[Any]:
    return list(keys) if isinstance(keys, list | tuple) else [keys]


def _process(
    function: Any,
    schema: SchemaLike | None,
    left_keys: tuple[str, ...],
    right_keys: tuple[str, ...],
    left: StreamType,
    right: StreamType,
) -> Step:
    from snapshot_engine.operators.connect import CoProcessOperator

    if not isinstance(function, CoProcessFunction):
        raise TypeError(f"process on connected streams needs an object of a CoProcessFunction, not {function!r}")
    if not left_keys or not right_keys:
        side = "left" if not left_keys else "right"
        raise ValueError(
            f"it keeps state, and state belongs to a key: the {side} stream has none; "
            'write left.connect(right).key_by("id", "id").process(...)'
        )
    require_same_keys(left_keys, right_keys, left, right)
    columns = to_schema(schema) if schema is not None else returned_schema(function.process_left, many=True)
    output = records_output(columns, common_event_time(left, right))
    factory = partial(
        CoProcessOperator,
        function=function,
        left_keys=left_keys,
        right_keys=right_keys,
        left=left,
        right=right,
        output=output,
    )
    timers = TIMERS if overrides(function, CoProcessFunction, "on_timer") else None
    return Step(factory, output, stateful=True, nondeterminism=timers, any_side_output=True)


def common_event_time(left: StreamType, right: StreamType) -> EventTime | None:
    """Rows put out have an event time only if those of both sides have one."""
    return left.event_time if right.event_time is not None else None


def require_same_keys(
    left_keys: tuple[str, ...], right_keys: tuple[str, ...], left: StreamType, right: StreamType
) -> None:
    """Rows meet by the hash of their keys: equal values of different types would not."""
    if len(left_keys) != len(right_keys):
        raise ValueError(f"the left key has {len(left_keys)} columns and the right one {len(right_keys)}")
    for one, other in zip(left_keys, right_keys, strict=True):
        left_type, right_type = left.schema.field(one).type, right.schema.field(other).type
        if left_type != right_type:
            raise ValueError(
                f"key {one!r} of the left stream is {left_type}, {other!r} of the right one is {right_type};"
                f" cast one of them: with_columns(col({other!r}).cast(...))"
            )
