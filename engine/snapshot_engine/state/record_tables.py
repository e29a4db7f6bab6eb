"""Keyed state as Python dictionaries that a snapshot can look at while they go on changing.

A snapshot sees a table as it was at the barrier without a copy being made there: the table's dictionaries are shared
with the snapshot's `View`, and copied only if they are written to before the view is released. The same holds for
values that can change in place.
"""

from __future__ import annotations

import copy
import datetime as dt
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.state_types import ValueCodec


class View:
    """Whether a snapshot still looks: until it is written, in the background thread, or until it is gone unwritten."""

    __slots__ = ("__weakref__", "released")

    def __init__(self) -> None:
        self.released = False


_UNCHANGING = frozenset(
    {type(None), bool, int, float, str, bytes, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID, frozenset}
)


def unchanging(value: Any) -> bool:
    """Whether nobody changes it in place: atoms, and tuples and rows, whose fields users must leave as they are."""
    return type(value) in _UNCHANGING or isinstance(value, tuple)


def detached(value: Any) -> Any:
    """A copy that shares nothing that can change."""
    if unchanging(value):
        return value
    if type(value) is list:
        return [detached(item) for item in value]
    if type(value) is dict:
        return {key: detached(item) for key, item in value.items()}
    return copy.deepcopy(value)


MISSING: Final = object()
"""Stands for a key that was removed, in what has changed since the last checkpoint."""

FLAT: Final = 0
"""The only space of a table that has no others."""


@dataclass(slots=True)
class Changes:
    """Which keys of which spaces were written or removed, and which spaces were dropped before that."""

    keys: dict[int, set[Key]] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)

    def touch(self, space: int, key: Key) -> None:
        keys = self.keys.get(space)
        if keys is None:
            keys = self.keys[space] = set()
        keys.add(key)

    def drop(self, space: int) -> None:
        self.keys.pop(space, None)
        self.dropped.add(space)

    def follow(self, later: Changes) -> None:
        """Take in what changed after these changes."""
        for space in later.dropped:
            self.drop(space)
        for space, keys in later.keys.items():
            self.keys.setdefault(space, set()).update(keys)

    def __len__(self) -> int:
        return len(self.dropped) + sum(map(len, self.keys.values()))


@dataclass(frozen=True, slots=True)
class FrozenTable:
    """A table, or what changed in it, as of a barrier."""

    name: str
    codec: ValueCodec | None
    spaces: dict[int, dict[Key, Any]]
    dropped: tuple[int, ...] = ()

    def __len__(self) -> int:
        return sum(map(len, self.spaces.values()))


class StateTable:
    """Values by space and key. A space is a window or a time; state that has neither lives in the space FLAT.

    Obligations of whoever writes: take the dictionary from `writable` each time something may have been frozen since,
    call `touch` for each key written or removed, and `own` before changing a value in place.
    """

    def __init__(self, name: str, codec: ValueCodec | None, *, tracked: bool) -> None:
        self.name = name
        self.codec = codec
        self.spaces: dict[int, dict[Key, Any]] = {}
        self._changes: Changes | None = Changes() if tracked else None
        self._views: list[weakref.ref[View]] = []
        self._shared: set[int] = set()
        self._owned: dict[int, set[Key]] = {}

    def __len__(self) -> int:
        return sum(map(len, self.spaces.values()))

    @property
    def tracked(self) -> bool:
        return self._changes is not None

    @property
    def watched(self) -> bool:
        """Whether any snapshot still looks at what the table held."""
        if self._views:
            self._views = [ref for ref in self._views if (view := ref()) is not None and not view.released]
            if not self._views:
                self._shared.clear()
                self._owned.clear()
        return bool(self._views)

    def writable(self, space: int = FLAT) -> dict[Key, Any]:
        """The dictionary of a space, made if there is none, which no view looks at."""
        values = self.spaces.get(space)
        if values is None:
            values = self.spaces[space] = {}
        elif space in self._shared and self.watched:
            self._shared.discard(space)
            values = self.spaces[space] = values.copy()
        return values

    def touch(self, space: int, key: Key) -> None:
        if self._changes is not None:
            self._changes.touch(space, key)

    def touch_all(self, space: int, keys: Iterable[Key]) -> None:
        if self._changes is not None:
            self._changes.keys.setdefault(space, set()).update(keys)

    def own(self, space: int, key: Key) -> Any:
        """The value, safe to be changed in place: no view looks at it. MISSING if there is none."""
        values = self.spaces.get(space)
        value = MISSING if values is None else values.get(key, MISSING)
        if value is MISSING or not self._views or not self.watched:
            return value
        owned = self._owned.setdefault(space, set())
        if key not in owned:
            owned.add(key)
            value = self.writable(space)[key] = detached(value)
        return value

    def put(self, space: int, key: Key, value: Any) -> None:
        self.writable(space)[key] = value
        if self._views:
            self._owned.setdefault(space, set()).add(key)
        self.touch(space, key)

    def remove(self, space: int, key: Key) -> None:
        if key in self.spaces.get(space, ()):
            del self.writable(space)[key]
            self.touch(space, key)

    def drop(self, space: int) -> dict[Key, Any]:
        """Remove a whole space; returns what it held, which must not be changed."""
        values = self.spaces.pop(space, None)
        if values is None:
            return {}
        self._shared.discard(space)
        self._owned.pop(space, None)
        if self._changes is not None:
            self._changes.drop(space)
        return values

    def freeze(self, view: View) -> FrozenTable:
        """All of it, as it is now."""
        self._views.append(weakref.ref(view))
        self._shared = set(self.spaces)
        self._owned.clear()
        return FrozenTable(self.name, self.codec, dict(self.spaces))

    def freeze_changes(self, view: View, changes: Changes) -> FrozenTable:
        """The present values of what changed; MISSING for what is gone."""
        self._views.append(weakref.ref(view))
        self._owned.clear()
        spaces = {space: self._present(space, keys) for space, keys in changes.keys.items()}
        return FrozenTable(self.name, self.codec, spaces, tuple(changes.dropped))

    def take_changes(self) -> Changes:
        """What changed since the last call."""
        taken = self._changes or Changes()
        if self._changes is not None:
            self._changes = Changes()
        return taken

    def _present(self, space: int, keys: set[Key]) -> dict[Key, Any]:
        get = self.spaces.get(space, {}).get
        return {key: get(key, MISSING) for key in keys}
