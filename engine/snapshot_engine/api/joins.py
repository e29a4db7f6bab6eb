"""Joins: two streams by equal keys, inside windows, by distance in time, or without an end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, cast, get_args

from snapshot_engine.api.connected import require_same_keys
from snapshot_engine.api.durations import DurationLike, milliseconds
from snapshot_engine.api.keyed import hashed
from snapshot_engine.api.transformations import require_columnar
from snapshot_engine.api.window_steps import ON_WATERMARKS
from snapshot_engine.api.windows import Window, shape_of
from snapshot_engine.graph.building import add_operator
from snapshot_engine.graph.columns import require_columns
from snapshot_engine.graph.logical import Step
from snapshot_engine.operators.stream_type import StreamType

if TYPE_CHECKING:
    from snapshot_engine.api.stream import DataStream

How = Literal["inner", "left", "right", "outer"]
Keys = tuple[str, ...]


@dataclass(frozen=True)
class JoinedStreams:
    left: DataStream
    right: DataStream
    how: str

    def on(self, *columns: str, **pairs: str) -> JoinCondition:
        """The columns that must be equal: `on("id")` where both sides call it so, `on(seller="id")` for left
        = right."""
        return JoinCondition(self, {**{column: column for column in columns}, **pairs})


@dataclass(frozen=True)
class JoinCondition:
    join: JoinedStreams
    pairs: Mapping[str, str]

    def window(self, window: Window) -> DataStream:
        """Join the rows of both sides that fall into the same window."""

        def build(left: StreamType, right: StreamType) -> Step:
            return _window_join(self._checked_how(), window, *self._keys(), left, right)

        return self._add("window join", build)

    def within(self, *, before: DurationLike = "0s", after: DurationLike = "0s") -> DataStream:
        """Join rows whose event times are near: the right row's at most `before` earlier and at most `after` later
        than the left row's. The event time of a pair is the later one of the two."""

        def build(left: StreamType, right: StreamType) -> Step:
            if self._checked_how() != "inner":
                raise ValueError(f"an interval join is always inner, not {self.join.how!r}: use window(...) for others")
            return _interval_join(milliseconds(before), milliseconds(after), *self._keys(), left, right)

        return self._add("interval join", build)

    def unbounded(self) -> DataStream:
        """Join every row with all rows of the other side, before and after it: both sides stay in state for
        ever."""

        def build(left: StreamType, right: StreamType) -> Step:
            if self._checked_how() != "inner":
                raise ValueError(f"an unbounded join is always inner, not {self.join.how!r}: it has no end to wait for")
            return _keyed_join(*self._keys(), left, right)

        return self._add("join", build)

    def _add(self, kind: str, build: Callable[[StreamType, StreamType], Step]) -> DataStream:
        left, right = self.join.left, self.join.right
        left_keys, right_keys = self._keys()
        ends = [hashed(left._end, left_keys), hashed(right._end, right_keys)]
        return left._after(add_operator(left.env.graph, kind, ends, build, keyed=True))

    def _keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return tuple(self.pairs), tuple(self.pairs.values())

    def _checked_how(self) -> How:
        if self.join.how not in get_args(How):
            raise ValueError(f"how={self.join.how!r} is none of {', '.join(get_args(How))}")
        return cast(How, self.join.how)


def _window_join(
    how: How, window: Window, left_keys: Keys, right_keys: Keys, left: StreamType, right: StreamType
) -> Step:
    from snapshot_engine.operators.window_join import WindowJoinOperator, output_type

    _require_keys(left_keys, right_keys, left, right)
    _require_event_time("windows need", left, right)
    shape = shape_of(window)
    output = output_type(left_keys, right_keys, how, left, right)
    factory = partial(
        WindowJoinOperator,
        left_keys=left_keys,
        right_keys=right_keys,
        window=shape,
        how=how,
        left=left,
        right=right,
        output=output,
    )
    return Step(factory, output, stateful=True, nondeterminism=ON_WATERMARKS)


def _interval_join(
    before_ms: int, after_ms: int, left_keys: Keys, right_keys: Keys, left: StreamType, right: StreamType
) -> Step:
    from snapshot_engine.operators.interval_join import IntervalJoinOperator, output_type

    _require_keys(left_keys, right_keys, left, right)
    _require_event_time("an interval join needs", left, right)
    output = output_type(left_keys, right_keys, left, right)
    factory = partial(
        IntervalJoinOperator,
        left_keys=left_keys,
        right_keys=right_keys,
        before_ms=before_ms,
        after_ms=after_ms,
        left=left,
        right=right,
        output=output,
    )
    return Step(factory, output, stateful=True)


def _keyed_join(left_keys: Keys, right_keys: Keys, left: StreamType, right: StreamType) -> Step:
    from snapshot_engine.operators.keyed_join import KeyedJoinOperator, output_type

    _require_keys(left_keys, right_keys, left, right)
    output = output_type(left_keys, right_keys, left, right)
    factory = partial(
        KeyedJoinOperator, left_keys=left_keys, right_keys=right_keys, left=left, right=right, output=output
    )
    return Step(factory, output, stateful=True)


def _require_keys(left_keys: Keys, right_keys: Keys, left: StreamType, right: StreamType) -> None:
    if not left_keys:
        raise ValueError('a join needs the columns that must be equal: on("id"), or on(seller="id") for left = right')
    for side, type, keys in (("left", left, left_keys), ("right", right, right_keys)):
        require_columnar(type, f"a join's {side} side")
        require_columns(type.schema, keys, f"the {side} stream")
    require_same_keys(left_keys, right_keys, left, right)


def _require_event_time(who_needs: str, left: StreamType, right: StreamType) -> None:
    for side, type in (("left", left), ("right", right)):
        if type.event_time is None:
            raise ValueError(
                f"{who_needs} event time, and the {side} stream has none: "
                'call with_watermark("column", delay="2s") on it before join'
            )
