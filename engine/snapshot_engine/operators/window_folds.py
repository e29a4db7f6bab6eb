"""What is kept of a window's records until it is over: one folded value, an accumulator, or all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, Protocol

from snapshot_engine.operators.functions import AggregateFunction, ProcessWindowFunction, Window
from snapshot_engine.operators.record_types import RowFolding, record_type
from snapshot_engine.operators.records import visible_schema
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.state.record_tables import detached
from snapshot_engine.state.state_types import ListCodec, PlainCodec, ValueCodec, codec_of

FunctionKind = Literal["reduce", "aggregate", "process"]


class Fold(Protocol):
    """`add` may change what is kept in place; `results` must not. A record lies in several sliding windows, and in none
    of them may show what a function did to it in another one."""

    codec: ValueCodec
    kind: FunctionKind

    def first(self, record: Any) -> Any: ...
    def add(self, kept: Any, record: Any) -> Any: ...
    def merge(self, left: Any, right: Any) -> Any: ...
    def results(self, key: Any, context: WindowCallContext, kept: Any) -> Iterable[Any]: ...


class WindowCallContext:
    """Implements `functions.WindowContext`; one per operator, set anew for each window."""

    def __init__(self, clock: Callable[[], int], emit_side: Callable[[str, Any], None]) -> None:
        self.window = Window(0, 0)
        self.current_watermark = 0
        self.processing_time = clock
        self.emit_side = emit_side


class ReduceFold:
    kind: FunctionKind = "reduce"

    def __init__(self, fn: Callable[[Any, Any], Any], input: StreamType, operator: str) -> None:
        text = record_type(input)
        self.codec: ValueCodec = PlainCodec(text)
        self._fn = fn
        self._operator = operator
        self._folding = None if input.plain else RowFolding(visible_schema(input))

    def first(self, record: Any) -> Any:
        return record if self._folding is not None else detached(record)

    def add(self, kept: Any, record: Any) -> Any:
        result = self._fn(kept, record)
        if self._folding is None:
            return detached(record) if result is record else result
        if type(result) is not self._folding.row:
            return self._folding.as_row(result, self._operator)
        return result

    def merge(self, left: Any, right: Any) -> Any:
        return self.add(left, right)

    def results(self, key: Any, context: WindowCallContext, kept: Any) -> Iterable[Any]:
        """What goes out must not change any more when a late record is added."""
        return (kept,) if self._folding is not None else (detached(kept),)


class AggregateFold:
    kind: FunctionKind = "aggregate"

    def __init__(self, function: AggregateFunction) -> None:
        self.codec: ValueCodec = codec_of(function.accumulator_type)
        self._function = function
        self.add = lambda kept, record: function.add(detached(record), kept)
        self.merge = function.merge

    def first(self, record: Any) -> Any:
        return self._function.add(detached(record), self._function.create_accumulator())

    def results(self, key: Any, context: WindowCallContext, kept: Any) -> Iterable[Any]:
        result = self._function.get_result(kept)
        return (detached(result) if result is kept else result,)


class ElementsFold:
    kind: FunctionKind = "process"

    def __init__(self, function: ProcessWindowFunction, input: StreamType) -> None:
        self.codec: ValueCodec = ListCodec(PlainCodec(record_type(input)))
        self._function = function

    def first(self, record: Any) -> Any:
        return [record]

    def add(self, kept: list[Any], record: Any) -> list[Any]:
        kept.append(record)
        return kept

    def merge(self, left: list[Any], right: list[Any]) -> list[Any]:
        return left + right

    def results(self, key: Any, context: WindowCallContext, kept: Sequence[Any]) -> Iterable[Any]:
        return self._function.process(key, context, list(map(detached, kept))) or ()


def fold_of(kind: FunctionKind, function: Any, input: StreamType, operator: str) -> Fold:
    if kind == "reduce":
        return ReduceFold(function, input, operator)
    if kind == "aggregate":
        return AggregateFold(function)
    if kind == "process":
        return ElementsFold(function, input)
    raise ValueError(f"a window function is reduce, aggregate or process, not {kind!r}")
