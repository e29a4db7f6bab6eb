"""What users' functions read and write their keyed state with; see descriptors.py for the obligations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from snapshot_engine.state.descriptors import ListState, MapState, ReducingState, ValueState
from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.record_state import RecordState
from snapshot_engine.state.record_tables import FLAT, MISSING, StateTable, detached, unchanging
from snapshot_engine.state.state_types import ListCodec, MapCodec, checked_by, codec_of


class CurrentKey:
    """The key at which all cells of an operator stand."""

    __slots__ = ("key",)

    def __init__(self) -> None:
        self.key: Key = MISSING


class Cells:
    """Makes the cells of one operator, each with its table."""

    def __init__(self, state: RecordState, current: CurrentKey) -> None:
        self._state = state
        self._current = current

    def cell(self, descriptor: Any) -> Any:
        if isinstance(descriptor, ValueState):
            codec = codec_of(descriptor.type)
            table = self._state.declare(descriptor.name, f"value[{codec.text}]", codec)
            return StoredValue(table, self._current, checked_by(descriptor.type), descriptor.default)
        if isinstance(descriptor, ListState):
            elements = ListCodec(codec_of(descriptor.type))
            table = self._state.declare(descriptor.name, elements.text, elements)
            return StoredList(table, self._current, checked_by(descriptor.type))
        if isinstance(descriptor, MapState):
            entries = MapCodec(codec_of(descriptor.key_type), codec_of(descriptor.type))
            table = self._state.declare(descriptor.name, entries.text, entries)
            return StoredMap(table, self._current, checked_by(descriptor.type), checked_by(descriptor.key_type))
        if isinstance(descriptor, ReducingState):
            codec = codec_of(descriptor.type)
            table = self._state.declare(descriptor.name, f"reducing[{codec.text}]", codec)
            return StoredReduction(table, self._current, checked_by(descriptor.type), descriptor.reduce)
        raise TypeError(f"state() needs a ValueState, ListState, MapState or ReducingState, not {descriptor!r}")


Check = Callable[[Any], Any]


class _Cell:
    __slots__ = ("_checked", "_current", "_table")

    def __init__(self, table: StateTable, current: CurrentKey, checked: Check) -> None:
        self._table = table
        self._current = current
        self._checked = checked

    def clear(self) -> None:
        self._table.remove(FLAT, self._current.key)

    def _read(self) -> Any:
        """The value, which may be handed to the user: what can change in place is not what a snapshot looks at."""
        value = self._table.spaces[FLAT].get(self._current.key, MISSING)
        if value is MISSING or unchanging(value):
            return value
        return self._table.own(FLAT, self._current.key)

    def _changed(self) -> None:
        self._table.touch(FLAT, self._current.key)


class StoredValue(_Cell):
    __slots__ = ("_default",)

    def __init__(self, table: StateTable, current: CurrentKey, checked: Check, default: Any) -> None:
        super().__init__(table, current, checked)
        self._default = default

    def value(self) -> Any:
        """The default is each key's own: what a user does to it in place is no other key's default."""
        value = self._read()
        return detached(self._default) if value is MISSING else value

    def update(self, value: Any) -> None:
        self._table.put(FLAT, self._current.key, self._checked(value))


class StoredReduction(_Cell):
    __slots__ = ("_reduce",)

    def __init__(
        self, table: StateTable, current: CurrentKey, checked: Check, reduce: Callable[[Any, Any], Any]
    ) -> None:
        super().__init__(table, current, checked)
        self._reduce = reduce

    def get(self) -> Any:
        value = self._read()
        return None if value is MISSING else value

    def add(self, value: Any) -> None:
        old = self._read()
        new = value if old is MISSING else self._reduce(old, value)
        self._table.put(FLAT, self._current.key, self._checked(new))


class StoredList(_Cell):
    __slots__ = ()

    def get(self) -> list[Any]:
        elements = self._read()
        return [] if elements is MISSING else list(elements)

    def add(self, element: Any) -> None:
        self.add_all((element,))

    def add_all(self, elements: Iterable[Any]) -> None:
        mine = self._read()
        if mine is MISSING:
            self.update(elements)
        else:
            mine.extend(map(self._checked, elements))
            self._changed()

    def update(self, elements: Iterable[Any]) -> None:
        mine = list(map(self._checked, elements))
        if mine:
            self._table.put(FLAT, self._current.key, mine)
        else:
            self.clear()

    def __len__(self) -> int:
        return len(self._table.spaces[FLAT].get(self._current.key, ()))

    def __iter__(self) -> Iterator[Any]:
        return iter(self.get())


class StoredMap(_Cell):
    __slots__ = ("_checked_key",)

    def __init__(self, table: StateTable, current: CurrentKey, checked: Check, checked_key: Check) -> None:
        super().__init__(table, current, checked)
        self._checked_key = checked_key

    def get(self, key: Any, default: Any = None) -> Any:
        return self._entries().get(key, default)

    def put(self, key: Any, value: Any) -> None:
        self.put_all({key: value})

    def put_all(self, entries: dict[Any, Any]) -> None:
        mine = self._read()
        new = {self._checked_key(key): self._checked(value) for key, value in entries.items()}
        if mine is MISSING:
            self._table.put(FLAT, self._current.key, new)
        else:
            mine.update(new)
            self._changed()

    def remove(self, key: Any) -> None:
        if key in self:
            del self[key]

    def keys(self) -> list[Any]:
        return list(self._entries())

    def values(self) -> list[Any]:
        return list(self._entries().values())

    def items(self) -> list[tuple[Any, Any]]:
        return list(self._entries().items())

    def is_empty(self) -> bool:
        return not len(self)

    def _entries(self) -> dict[Any, Any]:
        """Only to be read."""
        mine = self._read()
        return {} if mine is MISSING else mine

    def __contains__(self, key: Any) -> bool:
        return key in self._table.spaces[FLAT].get(self._current.key, ())

    def __getitem__(self, key: Any) -> Any:
        return self._entries()[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        mine = self._read()
        if mine is MISSING:
            raise KeyError(key)
        del mine[key]
        if mine:
            self._changed()
        else:
            self.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self._table.spaces[FLAT].get(self._current.key, ()))
