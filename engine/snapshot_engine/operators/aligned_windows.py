"""Tumbling and sliding windows over records: a space of the state for each start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from snapshot_engine.operators.event_times import Times
from snapshot_engine.operators.functions import Window
from snapshot_engine.operators.window_folds import Fold
from snapshot_engine.operators.window_storage import Result
from snapshot_engine.operators.windows import SlidingWindow, TumblingWindow
from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.record_state import RecordState
from snapshot_engine.state.record_tables import MISSING, StateTable


class AlignedWindows:
    """Windows whose results went out move to a second table until no record can be in time for them.

    So what a window's records did before and after its end is told apart even when the parallelism changes.
    """

    def __init__(
        self, window: TumblingWindow | SlidingWindow, fold: Fold, lateness_ms: int, state: RecordState
    ) -> None:
        self.position = 0
        self._size = window.size_ms
        self._slide = window.slide_ms if isinstance(window, SlidingWindow) else window.size_ms
        self._offset = window.offset_ms
        self._lateness = lateness_ms
        self._fold = fold
        text, once = f"{window!r} {fold.kind} of {fold.codec.text}", f"{window!r} of {fold.codec.text}"
        self._open = state.declare("windows", text, fold.codec, spaced=True, once=once)
        self._done = state.declare("windows:done", text, fold.codec, spaced=True, once=once)
        self._again: dict[tuple[int, Key], None] = {}

    def add(self, keys: Sequence[Key], values: Sequence[Any], times: Times, watermark: int) -> list[int]:
        starts = times - (times - self._offset) % self._slide
        adding = _Adding(self, watermark)
        late: list[int] = []
        # Starts from the latest that covers the record. A slide greater than the size leaves gaps: a record in a gap
        # belongs to no window, and is not late.
        covers = self._slide == self._size
        for position, (key, value, time, start) in enumerate(
            zip(keys, values, times.tolist(), starts.tolist(), strict=True)
        ):
            self.position = position
            if covers:
                in_time = adding.add(key, value, start)
            else:
                added = [adding.add(key, value, each) for each in range(start, time - self._size, -self._slide)]
                in_time = any(added) or not added
            if not in_time:
                late.append(position)
        adding.finish()
        return late

    def again(self) -> Iterator[Result]:
        again, self._again = self._again, {}
        for start, key in again:
            yield key, Window(start, start + self._size), self._done.spaces[start][key]

    def over(self, watermark: int) -> Iterator[Result]:
        for start in _starts_up_to(self._open, watermark - self._size + 1):
            kept_by_key = self._open.drop(start)
            if start + self._size - 1 + self._lateness > watermark:
                self._done.writable(start).update(kept_by_key)
                self._done.touch_all(start, kept_by_key)
            window = Window(start, start + self._size)
            for key, kept in kept_by_key.items():
                yield key, window, kept
        for start in _starts_up_to(self._done, watermark - self._size + 1 - self._lateness):
            self._done.drop(start)

    def table_for(self, start: int, watermark: int) -> StateTable | None:
        """Where the window is kept; None if no record can be in time for it any more."""
        last = start + self._size - 1
        if last > watermark:
            return self._open
        return self._done if last + self._lateness > watermark else None

    def changed_after_its_end(self, start: int, keys: Sequence[Key]) -> None:
        self._again.update(((start, key), None) for key in keys)


def _starts_up_to(table: StateTable, latest: int) -> list[int]:
    return sorted(start for start in table.spaces if start <= latest)


_Touched = tuple[StateTable, dict[Key, Any], list[Key], bool]
"""A window's table, what it keeps by key, the keys that were added to, and whether a snapshot looks at it."""


class _Adding:
    """The windows that a batch touches: looked up, and noted as changed, once for all its records."""

    def __init__(self, windows: AlignedWindows, watermark: int) -> None:
        self._windows = windows
        self._watermark = watermark
        self._first = windows._fold.first
        self._fold = windows._fold.add
        self._touched: dict[int, _Touched | None] = {}

    def add(self, key: Key, value: Any, start: int) -> bool:
        try:
            touched = self._touched[start]
        except KeyError:
            touched = self._touched[start] = self._touch(start)
        if touched is None:
            return False
        table, kept_by_key, keys, watched = touched
        kept = kept_by_key.get(key, MISSING)
        if kept is MISSING:
            kept_by_key[key] = self._first(value)
        else:
            # A snapshot may still look at what is about to be changed in place.
            kept_by_key[key] = self._fold(table.own(start, key) if watched else kept, value)
        keys.append(key)
        return True

    def finish(self) -> None:
        for start, touched in self._touched.items():
            if touched is not None:
                table, _, keys, _ = touched
                table.touch_all(start, keys)
                if table is self._windows._done:
                    self._windows.changed_after_its_end(start, keys)

    def _touch(self, start: int) -> _Touched | None:
        table = self._windows.table_for(start, self._watermark)
        return None if table is None else (table, table.writable(start), [], table.watched)
