"""What users subclass, and what their functions are given.

`map`, `filter`, `flat_map`, `reduce` take plain callables. A callable that has to get ready first (open a
connection, load a model) is an object with `open` and `__call__`: a `Function`. Functions with state and
timers subclass one of the process functions. All of them are pickled once, when the job is shipped; each
subtask works on its own copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar, overload

import pyarrow as pa

from snapshot_engine.state.descriptors import (
    ListCell,
    ListState,
    MapCell,
    MapState,
    ReducingCell,
    ReducingState,
    ValueCell,
    ValueState,
)

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

TimeDomain = Literal["event", "processing"]


class RuntimeContext(Protocol):
    """Where a function runs; given to `open`."""

    name: str
    """The operator's name."""
    uid: str
    subtask: int
    parallelism: int
    attempt: tuple[int, int]
    """Driver generation and attempt: higher than before after every restart."""

    @overload
    def state(self, descriptor: ValueState[T]) -> ValueCell[T]: ...
    @overload
    def state(self, descriptor: ListState[T]) -> ListCell[T]: ...
    @overload
    def state(self, descriptor: MapState[K, V]) -> MapCell[K, V]: ...
    @overload
    def state(self, descriptor: ReducingState[T]) -> ReducingCell[T]: ...
    def state(self, descriptor: Any) -> Any:
        """The cell of a keyed state. To be called in `open` only; an error where the stream has no keys."""
        ...

    def processing_time(self) -> int:
        """Epoch milliseconds. The only clock a function should use: tests control it."""
        ...


class Timers(Protocol):
    """Timers of the current key. A time is set at most once per key: setting it again changes nothing."""

    def register_event_time(self, timestamp: int) -> None:
        """Call `on_timer` when the watermark has come to `timestamp` (epoch milliseconds).

        At the end of a bounded input all that are set fire, and what they set; what those set in turn does not.
        """
        ...

    def register_processing_time(self, timestamp: int) -> None:
        """Call `on_timer` when the clock has come to `timestamp` (epoch milliseconds).

        At the end of a bounded input those that are not due yet are not waited for, except inside a loop.
        """
        ...

    def register_round_end(self) -> None:
        """Call `on_round_end` when all records of the current round of the loop are done; once, so ask again."""
        ...

    def delete_event_time(self, timestamp: int) -> None:
        """Missing timers are no error."""
        ...

    def delete_processing_time(self, timestamp: int) -> None: ...


class ProcessContext(Protocol):
    """What is true of the record or timer being processed. Do not keep it: it changes with the next one."""

    timers: Timers

    @property
    def timestamp(self) -> int | None:
        """The record's event time, or the time of the timer; None where the stream has no event time."""
        ...

    @property
    def current_key(self) -> Any:
        """The key column's value, a tuple of them if there are several, or what the key function returned."""
        ...

    @property
    def current_watermark(self) -> int: ...

    @property
    def time_domain(self) -> TimeDomain | None:
        """In `on_timer`: which kind of timer it was; None in `process`."""
        ...

    def processing_time(self) -> int: ...

    def emit(self, value: Any) -> None:
        """Put a record out, with the event time `timestamp`. Returning or yielding it does the same."""
        ...

    def emit_side(self, tag: str, value: Any) -> None:
        """Put a record out to the side output `tag`."""
        ...


class Function:
    """A callable that gets ready first: subclass it and define `__call__`."""

    def open(self, context: RuntimeContext) -> None:
        """Called once in each subtask before the first record."""

    def close(self) -> None:
        """Called once, also after a failure."""


class RoundListener:
    """What process functions in the body of a loop with rounds may define besides."""

    def on_round_end(self, round: int, context: ProcessContext) -> Iterable[Any] | None:
        """All records of `round` are done, everywhere in the loop. Called for each key that asked for it with
        `context.timers.register_round_end()`; what goes out and comes back belongs to the next round.
        """


class KeyedProcessFunction(Function, RoundListener):
    """Record by record, with keyed state and timers."""

    def process(self, record: Any, context: ProcessContext) -> Iterable[Any] | None:
        """Handle one record. What is returned or yielded goes out; None is nothing."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, context: ProcessContext) -> Iterable[Any] | None:
        """A timer of `context.current_key` is due."""


class BatchKeyedProcessFunction(Function, RoundListener):
    """The same for all rows of one key in a batch at a time: quick where keys are few and rows are many."""

    def process(self, batch: pa.RecordBatch, context: ProcessContext) -> Iterable[pa.RecordBatch] | None:
        """Handle the rows of `context.current_key`, in order. `context.timestamp` is the greatest of them."""
        raise NotImplementedError

    def on_timer(self, timestamp: int, context: ProcessContext) -> Iterable[pa.RecordBatch] | None:
        """A timer of `context.current_key` is due."""


class CoProcessFunction(Function, RoundListener):
    """Two keyed inputs, one state: both are keyed by values of the same types."""

    def process_left(self, record: Any, context: ProcessContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def process_right(self, record: Any, context: ProcessContext) -> Iterable[Any] | None:
        raise NotImplementedError

    def on_timer(self, timestamp: int, context: ProcessContext) -> Iterable[Any] | None:
        """A timer of `context.current_key` is due."""


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """[start, end) in epoch milliseconds."""

    start: int
    end: int


class WindowContext(Protocol):
    """What is true of the window being evaluated."""

    @property
    def window(self) -> Window: ...

    @property
    def current_watermark(self) -> int: ...

    def processing_time(self) -> int: ...

    def emit_side(self, tag: str, value: Any) -> None: ...


class AggregateFunction(Function):
    """Folds records into an accumulator, which need not be a record. It is state: it must pack."""

    accumulator_type: Any = None
    """The accumulator's type, as in a state descriptor."""

    def create_accumulator(self) -> Any:
        raise NotImplementedError

    def add(self, record: Any, accumulator: Any) -> Any:
        """The accumulator with the record in it; changing it in place and returning it is fine."""
        raise NotImplementedError

    def merge(self, left: Any, right: Any) -> Any:
        """Needed for session windows only."""
        raise NotImplementedError(f"{type(self).__name__} needs merge() to be used in session windows")

    def get_result(self, accumulator: Any) -> Any:
        """What goes out. Called again when late records come: it must not change the accumulator."""
        raise NotImplementedError


class ProcessWindowFunction(Function):
    """Sees all records of a window at once, in order of arrival. All are kept until the window is over."""

    def process(self, key: Any, context: WindowContext, records: Sequence[Any]) -> Iterable[Any]:
        raise NotImplementedError
