"""Session windows over records: a list of sessions for each key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from snapshot_engine.operators.event_times import Times
from snapshot_engine.operators.functions import Window
from snapshot_engine.operators.window_folds import Fold
from snapshot_engine.operators.window_storage import Result
from snapshot_engine.operators.windows import SessionWindow
from snapshot_engine.state.packing import pack, unpack
from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.record_state import RecordState
from snapshot_engine.state.record_tables import FLAT, MISSING, detached
from snapshot_engine.state.state_types import ListCodec, ValueCodec
from snapshot_engine.state.timers import TimerQueue


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
    """Records and sessions less than the gap apart become one session.

    Each session has a timer at or before the next time something is to be done for it: that it is over, or that no
    record can be in time for it. A session that grows does not move its timer: when it fires, it is set again.
    """

    def __init__(self, window: SessionWindow, fold: Fold, lateness_ms: int, state: RecordState) -> None:
        self.position = 0
        self._gap = window.gap_ms
        self._lateness = lateness_ms
        self._fold = fold
        codec = ListCodec(_SessionCodec(fold.codec))
        text, once = f"{window!r} {fold.kind} of {fold.codec.text}", f"{window!r} of {fold.codec.text}"
        self._table = state.declare("sessions", text, codec, once=once)
        self._timers = TimerQueue(state, "sessions:timers")
        self._again: dict[tuple[Key, int], None] = {}

    def add(self, keys: Sequence[Key], values: Sequence[Any], times: Times, watermark: int) -> list[int]:
        late: list[int] = []
        for position, (key, value, time) in enumerate(zip(keys, values, times.tolist(), strict=True)):
            self.position = position
            if not self._add(key, value, time, watermark):
                late.append(position)
        self._table.touch_all(FLAT, keys)
        return late

    def _add(self, key: Key, value: Any, time: int, watermark: int) -> bool:
        sessions: Any = self._table.own(FLAT, key)
        end = time + self._gap
        joined = [] if sessions is MISSING else [s for s in sessions if s.start < end and time < s.end]
        if not joined and end - 1 + self._lateness <= watermark:
            return False
        if len(joined) == 1:
            session = joined[0]
            self._again.pop((key, session.start), None)
            session.start, session.end = min(session.start, time), max(session.end, end)
            session.kept = self._fold.add(session.kept, value)
        else:
            session = self._new_or_merged(key, value, time, joined)
            others = [] if sessions is MISSING else [other for other in sessions if other not in joined]
            self._table.put(FLAT, key, sorted([*others, session], key=lambda s: s.start))
        was_done, session.done = session.done, session.end - 1 <= watermark
        if session.done:
            self._again[key, session.start] = None
        if len(joined) != 1 or was_done != session.done:
            self._set_timer(session, key)
        return True

    def _new_or_merged(self, key: Key, value: Any, time: int, joined: list[_Session]) -> _Session:
        """A session of the record, or of the record and the sessions between which it closes the gap."""
        if not joined:
            return _Session(time, time + self._gap, self._fold.first(value), False)
        kept = joined[0].kept
        for session in joined[1:]:
            kept = self._fold.merge(kept, session.kept)
        for session in joined:
            self._again.pop((key, session.start), None)
        start, end = min(joined[0].start, time), max(joined[-1].end, time + self._gap)
        return _Session(start, end, self._fold.add(kept, value), False)

    def again(self) -> Iterator[Result]:
        again, self._again = self._again, {}
        for key, start in again:
            for session in self._table.spaces[FLAT].get(key, ()):
                if session.start == start:
                    yield key, Window(session.start, session.end), session.kept

    def over(self, watermark: int) -> Iterator[Result]:
        for time, key in self._timers.due(watermark):
            sessions = self._table.own(FLAT, key)
            if sessions is MISSING:
                continue  # the timer of a session that was joined to another
            for session in sessions:
                if session.end - 1 <= time and not session.done:
                    session.done = True
                    yield key, Window(session.start, session.end), session.kept
            kept = [session for session in sessions if session.end - 1 + self._lateness > time]
            for session in kept:
                self._set_timer(session, key)
            if kept:
                self._table.put(FLAT, key, kept)
            else:
                self._table.remove(FLAT, key)

    def _set_timer(self, session: _Session, key: Key) -> None:
        self._timers.register(session.end - 1 + (self._lateness if session.done else 0), key)
