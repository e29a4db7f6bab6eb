"""What process functions see and put out while they handle one record or timer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from snapshot_engine.operators.functions import TimeDomain
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.operator import Output
from snapshot_engine.operators.records import Records
from snapshot_engine.protocol.elements import MAX_WATERMARK, MIN_WATERMARK
from snapshot_engine.state.cells import CurrentKey
from snapshot_engine.state.timers import KeyTimers

FULL = 16_384
"""How many records are collected before they go out as one batch."""


class Emissions:
    """Records on their way out, in the order they were emitted, with the event times they go out with."""

    def __init__(self, producer: str, *, keeps_times: bool) -> None:
        self.values: list[Any] = []
        self.times: list[int] = []
        self._sides: dict[str, tuple[list[Any], list[int]]] = {}
        self._producer = producer
        self.keeps_times = keeps_times

    def add_all(self, values: Iterable[Any], time: int) -> None:
        self.values.extend(values)
        self.stamp(time)

    def stamp(self, time: int) -> None:
        """Give all values added since the last call this event time: those of one record or timer."""
        if self.keeps_times:
            self.times.extend([time] * (len(self.values) - len(self.times)))

    def add_side(self, tag: str, value: Any, time: int) -> None:
        values, times = self._sides.setdefault(tag, ([], []))
        values.append(value)
        times.append(time)

    def flush(self, output: Output) -> None:
        """Put everything out; the lists are handed over, not used again."""
        if self.values:
            times = np.array(self.times, np.int64) if self.keeps_times else None
            output.emit(Records(self.values, times, self._producer))
            self.values, self.times = [], []
        if self._sides:
            for tag, (values, times_list) in self._sides.items():
                output.emit_side(tag, Records(values, np.array(times_list, np.int64), self._producer))
            self._sides = {}

    @property
    def full(self) -> bool:
        return len(self.values) >= FULL


class CallContext:
    """Implements `functions.ProcessContext`; one per operator, set anew for each record and timer."""

    def __init__(
        self, current: CurrentKey, reader: KeyReader, timers: KeyTimers, emissions: Emissions, clock: Callable[[], int]
    ) -> None:
        self.timers = timers
        self.timestamp: int | None = None
        self.current_watermark = MIN_WATERMARK
        self.time_domain: TimeDomain | None = None
        self._current = current
        self._reader = reader
        self._emissions = emissions
        self._clock = clock

    @property
    def current_key(self) -> Any:
        return self._reader.for_user(self._current.key)

    def processing_time(self) -> int:
        return self._clock()

    def emit(self, value: Any) -> None:
        self._emissions.values.append(value)

    def emit_side(self, tag: str, value: Any) -> None:
        self._emissions.add_side(tag, value, self.emitted_time())

    def emitted_time(self) -> int:
        """The event time of what is emitted now: the record's or timer's own.

        Processing time timers have none: what they emit must not be late, so it gets the first time after the
        watermark.
        """
        if self.timestamp is not None:
            return self.timestamp
        if self.current_watermark > MIN_WATERMARK:
            return min(self.current_watermark, MAX_WATERMARK - 1) + 1
        return self._clock()
