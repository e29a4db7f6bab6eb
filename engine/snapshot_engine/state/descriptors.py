"""What a user's function declares of its keyed state, and what it gets in return.

A descriptor names a state and its type; `RuntimeContext.state(descriptor)` gives the cell that reads and
writes it. A cell always stands at the key of the record (or timer) being processed.

    class CountPerUser(KeyedProcessFunction):
        def open(self, context):
            self.seen = context.state(ValueState("seen", int, default=0))

        def process(self, record, context):
            self.seen.update(self.seen.value() + 1)
            yield record.user, self.seen.value()

Values are packed, never pickled: None, bool, int, float, str, bytes, list, tuple, dict, set, datetime, date,
time, timedelta, Decimal, UUID, records of the input stream, and, where the descriptor names it as the type, a
dataclass or named tuple. The type is kept in the checkpoint; restoring a state under another type is an error
that names the state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class ValueState(Generic[T]):
    """One value per key. `default` is what a key has that was never written: each key a copy of its own."""

    name: str
    type: Any = None
    default: T | None = None


@dataclass(frozen=True)
class ListState(Generic[T]):
    """A list per key, appended to in constant time. `type` is that of an element."""

    name: str
    type: Any = None


@dataclass(frozen=True)
class MapState(Generic[K, V]):
    """A dictionary per key. `key_type` and `type` are those of an entry's key and value."""

    name: str
    key_type: Any = None
    type: Any = None


@dataclass(frozen=True)
class ReducingState(Generic[T]):
    """One value per key, folded from all that was added by `reduce(old, new)`."""

    name: str
    reduce: Callable[[T, T], T]
    type: Any = None


StateDescriptor = ValueState[Any] | ListState[Any] | MapState[Any, Any] | ReducingState[Any]


class ValueCell(Protocol[T]):
    def value(self) -> T:
        """The current key's value, or the default. What you change in place you must `update` as well."""
        ...

    def update(self, value: T) -> None: ...

    def clear(self) -> None:
        """Forget the value: the key has the default again."""
        ...


class ListCell(Protocol[T]):
    def get(self) -> list[T]:
        """The elements; a copy, so changing it changes nothing. Empty if there are none."""
        ...

    def add(self, element: T) -> None: ...
    def add_all(self, elements: Iterable[T]) -> None: ...

    def update(self, elements: Iterable[T]) -> None:
        """Replace all elements."""
        ...

    def clear(self) -> None: ...
    def __len__(self) -> int: ...


class MapCell(Protocol[K, V]):
    def get(self, key: K, default: Any = None) -> V: ...
    def put(self, key: K, value: V) -> None: ...
    def put_all(self, entries: dict[K, V]) -> None: ...

    def remove(self, key: K) -> None:
        """Missing keys are no error."""
        ...

    def keys(self) -> list[K]: ...
    def values(self) -> list[V]: ...
    def items(self) -> list[tuple[K, V]]: ...
    def is_empty(self) -> bool: ...
    def clear(self) -> None: ...
    def __contains__(self, key: K) -> bool: ...
    def __getitem__(self, key: K) -> V: ...
    def __setitem__(self, key: K, value: V) -> None: ...
    def __delitem__(self, key: K) -> None: ...
    def __iter__(self) -> Iterator[K]: ...
    def __len__(self) -> int: ...


class ReducingCell(Protocol[T]):
    def get(self) -> T | None:
        """What was folded so far; None if nothing was added."""
        ...

    def add(self, value: T) -> None: ...
    def clear(self) -> None: ...
