"""Timers per key, in event time or processing time: kept in keyed state, fired in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from snapshot_engine.protocol.elements import MAX_WATERMARK
from snapshot_engine.state.cells import CurrentKey
from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.record_state import KEYS_ONLY, RecordState


class TimerQueue:
    """The timers of one time domain: for each time, the keys that want to be called then."""

    def __init__(self, state: RecordState, name: str) -> None:
        self._table = state.declare(name, KEYS_ONLY, None, spaced=True)
        self._times = list(self._table.spaces)
        heapq.heapify(self._times)

        self._generation: dict[tuple[int, Key], int] | None = None
        """While time ends: of timers that were set since, how many firings led to them, one by another."""
        self._firing = 0

    def __len__(self) -> int:
        return len(self._table)

    def register(self, timestamp: int, key: Key) -> None:
        """Once for each key and time: again is no change."""
        keys = self._table.spaces.get(timestamp)
        if keys is None:
            heapq.heappush(self._times, timestamp)
        elif key in keys:
            return
        if self._generation is not None:
            self._generation[timestamp, key] = self._firing + 1
        self._table.writable(timestamp)[key] = None
        self._table.touch(timestamp, key)

    def delete(self, timestamp: int, key: Key) -> None:
        self._table.remove(timestamp, key)
        if not self._table.spaces.get(timestamp, True):
            self._table.drop(timestamp)

    def next_time(self) -> int | None:
        """The time of the first timer."""
        while self._times and self._times[0] not in self._table.spaces:
            heapq.heappop(self._times)
        return self._times[0] if self._times else None

    def due(self, until: int) -> Iterator[tuple[int, Key]]:
        """Take out each timer up to `until`, in order; those that are set meanwhile are taken in their turn."""
        while (timestamp := self.next_time()) is not None and timestamp <= until:
            for key in list(self._table.drop(timestamp)):
                yield timestamp, key

    def due_at_the_end(self) -> Iterator[tuple[int, Key]]:
        """Take out all, in order, for time itself is over; those that are set meanwhile are taken in their turn.

        But what such a timer sets in turn is dropped: who always sets the next one would never come to an end. The
        first is not, since it may be one that was only moved on.
        """
        self._generation = {}
        for timestamp, key in self.due(MAX_WATERMARK):
            self._firing = self._generation.pop((timestamp, key), 0)
            if self._firing <= 1:
                yield timestamp, key
        self._generation = None


class KeyTimers:
    """What users' functions set timers of the current key with."""

    def __init__(
        self, event: TimerQueue, processing: TimerQueue, current: CurrentKey, rounds: TimerQueue | None = None
    ) -> None:
        self._event = event
        self._processing = processing
        self._rounds = rounds
        self._current = current
        self.round = 0
        """The round whose end comes next, as far as it is known here."""

    def register_round_end(self) -> None:
        if self._rounds is None:
            raise TypeError("register_round_end() in a function without on_round_end: define it")
        self._rounds.register(self.round, self._current.key)

    def register_event_time(self, timestamp: int) -> None:
        self._event.register(int(timestamp), self._current.key)

    def register_processing_time(self, timestamp: int) -> None:
        self._processing.register(int(timestamp), self._current.key)

    def delete_event_time(self, timestamp: int) -> None:
        self._event.delete(int(timestamp), self._current.key)

    def delete_processing_time(self, timestamp: int) -> None:
        self._processing.delete(int(timestamp), self._current.key)
