"""Where windows over records are kept: aligned ones by their start, sessions by their key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from snapshot_engine.operators.event_times import Times
from snapshot_engine.operators.functions import Window
from snapshot_engine.operators.window_folds import Fold
from snapshot_engine.operators.windows import SessionWindow, SlidingWindow, TumblingWindow
from snapshot_engine.state.packing import pack, unpack
from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.record_state import RecordState
from snapshot_engine.state.record_tables import FLAT, MISSING, StateTable, detached
from snapshot_engine.state.state_types import ListCodec, ValueCodec
from snapshot_engine.state.timers import TimerQueue

Result = tuple[Key, Window, Any]
"""A window of a key with what is kept of its records."""


class WindowStorage(Protocol):
    def adding(self, keys: list[Key], values: Sequence[Any], times: Times, watermark: int) -> Iterator[bool]:
        """Put the records into their windows one by one; yields for each whether there was one it was in time for."""
        ...

    def again(self, watermark: int) -> Iterator[Result]:
        """Windows whose results went out already and that got records since the last call."""
        ...

    def over(self, watermark: int) -> Iterator[Result]:
        """Windows that are over now, by their end."""
        ...

    def forget(self, watermark: int) -> None:
        """Drop the windows for which no record can be in time any more."""
        ...


class AlignedWindows:
    """Tumbling and sliding windows: a space for each start.

    Windows whose results went out move to a second table until no record can be in time for them: what a window's
    records did before and after its end is told apart even when the parallelism changes.
    """

    def __init__(
        self, window: TumblingWindow | SlidingWindow, fold: Fold, lateness_ms: int, state: RecordState
    ) -> None:
        self._size = window.size_ms
        self._slide = window.slide_ms if isinstance(window, SlidingWindow) else window.size_ms
        self._offset = window.offset_ms
        self._lateness = lateness_ms
        self._fold = fold
        text = f"{window!r} of {fold.codec.text}"
        self._open = state.declare("windows", text, fold.codec, spaced=True)
        self._done = state.declare("windows:done", text, fold.codec, spaced=True)
        self._again: dict[tuple[int, Key], None] = {}

    def adding(self, keys: list[Key], values: Sequence[Any], times: Times, watermark: int) -> Iterator[bool]:
        latest_starts = (times - (times - self._offset) % self._slide).tolist()
        if self._slide == self._size:
            for key, value, start in zip(keys, values, latest_starts, strict=True):
                yield self._add(key, value, start, watermark)
            return
        for key, value, time, latest in zip(keys, values, times.tolist(), latest_starts, strict=True):
            # A slide greater than the size leaves gaps: a record in a gap belongs to no window, and is not late.
            starts = range(latest, time - self._size, -self._slide)
            added = [self._add(key, value, start, watermark) for start in starts]
            yield any(added) or not added

    def _add(self, key: Key, value: Any, start: int, watermark: int) -> bool:
        last = start + self._size - 1
        if last > watermark:
            table = self._open
        elif last + self._lateness > watermark:
            table = self._done
            self._again[start, key] = None
        else:
            return False
        kept = table.own(start, key)
        table.put(start, key, self._fold.first(value) if kept is MISSING else self._fold.add(kept, value))
        return True

    def again(self, watermark: int) -> Iterator[Result]:
        again, self._again = self._again, {}
        for start, key in again:
            yield key, Window(start, start + self._size), self._done.spaces[start][key]

    def over(self, watermark: int) -> Iterator[Result]:
        for start in self._starts_up_to(self._open, watermark - self._size + 1):
            kept_by_key = self._open.drop(start)
            if start + self._size - 1 + self._lateness > watermark:
                self._done.writable(start).update(kept_by_key)
                self._done.touch_all(start, kept_by_key)
            window = Window(start, start + self._size)
            for key, kept in kept_by_key.items():
                yield key, window, kept

    def forget(self, watermark: int) -> None:
        for start in self._starts_up_to(self._done, watermark - self._size + 1 - self._lateness):
            self._done.drop(start)

    def _starts_up_to(self, table: StateTable, latest: int) -> list[int]:
        return sorted(start for start in table.spaces if start <= latest)


class _Session:
    """From the first record's time to the last one's plus the gap."""

    __slots__ = ("done", "end", "kept", "start")

    def __init__(self, start: int, end: int, kept: Any, done: bool) -> None:
        self.start = start
        self.end = end
        self.kept = kept
        self.done = done  # whether its results went out, as it is

    def __deepcopy__(self, memo: Any) -> _Session:
        return _Session(self.start, self.end, detached(self.kept), self.done)


class _SessionCodec:
    """Sessions by their fields."""

    def __init__(self, kept: ValueCodec) -> None:
        self.text = f"session of {kept.text}"
        self._kept = kept

    def encode(self, values: Sequence[_Session]) -> bytes:
        fields = [[s.start for s in values], [s.end for s in values], [s.done for s in values]]
        return pack([*fields, self._kept.encode([session.kept for session in values])])

    def decode(self, data: bytes) -> list[_Session]:
        starts, ends, done, kept = unpack(data)
        return [_Session(*fields) for fields in zip(starts, ends, self._kept.decode(kept), done, strict=True)]


class SessionWindows:
    """Sessions of a key, by start; records and sessions that are less than the gap apart become one.

    Timers at the last millisecond of a session say when it is over, and again when no record can be in time for it.
    """

    def __init__(self, window: SessionWindow, fold: Fold, lateness_ms: int, state: RecordState) -> None:
        self._gap = window.gap_ms
        self._lateness = lateness_ms
        self._fold = fold
        codec = ListCodec(_SessionCodec(fold.codec))
        self._table = state.declare("sessions", f"{window!r} of {fold.codec.text}", codec)
        self._ends = TimerQueue(state, "sessions:ends")
        self._last_chances = TimerQueue(state, "sessions:last-chances")
        self._again: dict[tuple[Key, int], None] = {}

    def adding(self, keys: list[Key], values: Sequence[Any], times: Times, watermark: int) -> Iterator[bool]:
        for key, value, time in zip(keys, values, times.tolist(), strict=True):
            yield self._add(key, value, time, watermark)

    def _add(self, key: Key, value: Any, time: int, watermark: int) -> bool:
        sessions: list[_Session] = self._table.own(FLAT, key)
        if sessions is MISSING:
            sessions = []
        joined = [s for s in sessions if s.start < time + self._gap and time < s.end]
        if not joined and time + self._gap - 1 + self._lateness <= watermark:
            return False
        session = self._joined(key, value, time, joined)
        if session.end - 1 > watermark:
            session.done = False
            self._ends.register(session.end - 1, key)
        else:
            session.done = True
            self._again[key, session.start] = None
        if self._lateness:
            self._last_chances.register(session.end - 1 + self._lateness, key)
        others = [other for other in sessions if other not in joined]
        self._table.put(FLAT, key, sorted([*others, session], key=lambda s: s.start))
        return True

    def _joined(self, key: Key, value: Any, time: int, joined: list[_Session]) -> _Session:
        """One session of the record and the sessions it touches, which are at most two."""
        if not joined:
            return _Session(time, time + self._gap, self._fold.first(value), False)
        kept = joined[0].kept
        for session in joined:
            self._ends.delete(session.end - 1, key)
            self._last_chances.delete(session.end - 1 + self._lateness, key)
            self._again.pop((key, session.start), None)
        for session in joined[1:]:
            kept = self._fold.merge(kept, session.kept)
        start, end = min(joined[0].start, time), max(joined[-1].end, time + self._gap)
        return _Session(start, end, self._fold.add(kept, value), False)

    def again(self, watermark: int) -> Iterator[Result]:
        again, self._again = self._again, {}
        for key, start in again:
            for session in self._table.spaces[FLAT].get(key, ()):
                if session.start == start:
                    yield key, Window(session.start, session.end), session.kept

    def over(self, watermark: int) -> Iterator[Result]:
        for last, key in self._ends.due(watermark):
            sessions = self._table.own(FLAT, key)
            assert sessions is not MISSING, f"a timer at {last} for key {key!r}, which has no session"
            for session in sessions:
                if session.end - 1 == last and not session.done:
                    session.done = True
                    yield key, Window(session.start, session.end), session.kept
            if self._lateness:
                self._table.touch(FLAT, key)
            else:
                self._keep(key, [session for session in sessions if session.end - 1 != last])

    def forget(self, watermark: int) -> None:
        for time, key in self._last_chances.due(watermark):
            sessions = self._table.spaces[FLAT].get(key, ())
            self._keep(key, [session for session in sessions if session.end - 1 + self._lateness > time])

    def _keep(self, key: Key, sessions: list[_Session]) -> None:
        if sessions:
            self._table.put(FLAT, key, sessions)
        else:
            self._table.remove(FLAT, key)
