"""Event times and watermarks: how far event time has come, given that rows may be late by some delay."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_engine.operators.event_times import Times, event_times
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Origin, StateWriter, iterate_states
from snapshot_engine.operators.records import Records, to_records
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError, shown
from snapshot_engine.protocol.elements import MAX_WATERMARK, MIN_WATERMARK
from snapshot_engine.protocol.source_drift import SourceDrift
from snapshot_engine.state.handles import OperatorState

KIND = "watermark"

_NO_SPLIT = ""
"""Stands for the whole input where no source is in the chain."""


@dataclass(slots=True)
class _Split:
    """How far one source split has come."""

    active_at: int
    """Processing time since when it could be silent: of its last rows, or of a moment when it was waiting its turn."""
    latest: int | None = None
    """The greatest event time seen."""
    idle: bool = False
    look_at: int = 0
    """When to look again whether it is idle, if that is later than `active_at` and the timeout."""


class WatermarkOperator(Operator):
    """Bounded out-of-orderness: the watermark of a split is its greatest event time - delay - 1.

    The smallest over all splits that are neither ended nor idle is emitted, after a batch, when it has advanced; of a
    batch that the source reads in parts, after the last part, so that no row is late because others were slow. A
    split of which nothing was read yet holds it back. A split that was silent for `idle_timeout_ms` of processing
    time does not; when all are, the output is declared idle. Silent is what was asked and had nothing that came here:
    a split that waits its turn, or for room downstream, is not.

    `extract` gives the event time of a record that has no column for it: epoch milliseconds, or a datetime. With
    `keeps_together` the source hears how far each split has come; one that has to wait for others is not idle.
    """

    def __init__(
        self,
        event_time: EventTime,
        delay_ms: int,
        idle_timeout_ms: int | None,
        input: StreamType,
        extract: Callable[[Any], int | dt.datetime] | None = None,
        keeps_together: bool = False,
    ) -> None:
        self.event_time = event_time
        self.delay_ms = delay_ms
        self.idle_timeout_ms = idle_timeout_ms
        self.input = input
        self.extract = extract
        self.keeps_together = keeps_together
        self.name = "?"
        self._splits: dict[str, _Split] = {}
        self._emitted = MIN_WATERMARK
        self._say_again = False
        self._held_back = False
        self._all_idle = False
        self._origin = Origin()
        self._drift: SourceDrift | None = None

    def open(self, context: OperatorContext) -> None:
        self.name = context.name
        self._uid = context.uid
        self._clock = context.clock
        self._origin = context.origin
        self._drift = context.origin.drift if self.keeps_together else None
        states = iterate_states(context.restored, KIND)
        if states:
            self._emitted = min(state.meta["watermark"] for state in states)
            self._splits = {name: _Split(self._clock(), time) for name, time in _restored_splits(states).items()}
            self._say_again = self._emitted > MIN_WATERMARK

    def process(self, port: int, data: Data) -> None:
        if not len(data):
            return
        data, times = self._with_extracted(data) if self.extract else self._with_columns(data)
        split = self._splits.setdefault(self._origin.split or _NO_SPLIT, _Split(0))
        latest = int(times.max())
        split.latest = latest if split.latest is None else max(split.latest, latest)
        split.active_at = self._clock()
        split.idle = self._all_idle = False
        self.output.emit(data)
        self._held_back = self._origin.more_of_batch
        if not self._held_back:
            self._advance()

    def on_watermark(self, timestamp: int) -> None:
        """Watermarks from before are of other event times; only the end of all time is still true."""
        if timestamp == MAX_WATERMARK:
            self._emitted = timestamp
            self.output.watermark(timestamp)

    def next_deadline(self) -> int | None:
        if self._held_back and not self._origin.more_of_batch:
            return self._clock()  # the rest of the batch has not come
        if self.idle_timeout_ms is None or self._all_idle:
            return None
        timeout, moving = self.idle_timeout_ms, [split for split in self._relevant().values() if not split.idle]
        return min((max(split.active_at + timeout, split.look_at) for split in moving), default=None)

    def on_deadline(self, now: int) -> None:
        self._held_back = self._held_back and self._origin.more_of_batch
        splits = self._relevant()
        if self.idle_timeout_ms is not None:
            for name, split in splits.items():
                if not split.idle:
                    self._look_whether_idle(name, split, self.idle_timeout_ms, now)
        if not self._held_back:
            self._advance()
        if splits and all(split.idle for split in splits.values()) and not self._all_idle:
            self._all_idle = True
            self.output.idle()

    def _look_whether_idle(self, name: str, split: _Split, timeout: int, now: int) -> None:
        silent = self._last_asked(name, now) - split.active_at
        if silent <= 0:
            split.active_at, silent = now, 0
        split.idle = silent >= timeout
        split.look_at = now + timeout - silent

    def _last_asked(self, name: str, now: int) -> int:
        """Where no source is in the chain nobody knows, and rows may come at any time."""
        if self._drift is not None and name in self._drift.held:
            return MIN_WATERMARK
        return self._origin.asked.get(name, MIN_WATERMARK) if name in self._origin.reading else now

    def snapshot(self, checkpoint: int) -> _WatermarkSnapshot:
        splits = {name: split.latest for name, split in self._splits.items() if split.latest is not None}
        return _WatermarkSnapshot(self._uid, {"watermark": self._emitted, "splits": splits})

    def _relevant(self) -> dict[str, _Split]:
        """The splits that have not ended; those just begun are heard of here for the first time."""
        for name in self._origin.reading:
            if name not in self._splits:
                self._splits[name] = _Split(self._clock())
        for name in self._origin.ended & self._splits.keys():
            del self._splits[name]
        if not self._origin.reading:
            return self._splits
        return {name: split for name, split in self._splits.items() if name in self._origin.reading}

    def _advance(self) -> None:
        splits = self._relevant()
        if self._drift is not None:
            self._drift.stands_at(
                {
                    name: split.latest - self.delay_ms - 1
                    for name, split in splits.items()
                    if split.latest is not None and not split.idle
                }
            )
        moving = [split.latest for split in splits.values() if not split.idle]
        known = [latest for latest in moving if latest is not None]
        watermark = self._emitted
        if known and len(known) == len(moving):
            watermark = max(min(known) - self.delay_ms - 1, watermark)
        if watermark > self._emitted or self._say_again:
            # After a restore the channels may be new ones, which have not heard of the restored watermark.
            self._say_again = False
            self._emitted = watermark
            self.output.watermark(watermark)

    def _with_columns(self, data: Data) -> tuple[Data, Times]:
        if not isinstance(data, Records):
            return data, event_times(data, self.event_time)
        fresh = dataclasses.replace(data, timestamps=None)
        records = to_records(fresh, StreamType(self.input.schema, self.event_time))
        assert records.timestamps is not None
        return records, records.timestamps

    def _with_extracted(self, data: Data) -> tuple[Data, Times]:
        records = to_records(data, self.input, times=False)
        times = np.array([self._extracted(value) for value in records.values], np.int64)
        source = None
        if records.source is not None and records.source[1] is None:
            source = (_with_time_column(records.source[0], times), None)
        return Records(records.values, times, records.producer, records.columns, source), times

    def _extracted(self, record: Any) -> int:
        assert self.extract is not None
        try:
            time = self.extract(record)
            if isinstance(time, dt.datetime):
                aware = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
                time = (aware - _EPOCH) // _MILLISECOND
            if type(time) is not int and not isinstance(time, np.integer):
                raise TypeError(f"an event time is an int (epoch milliseconds) or a datetime, not {shown(time)}")
            return int(time)
        except Exception as error:
            raise UserFunctionError(self.name, "the event time function", error, record, has_record=True) from error


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLISECOND = dt.timedelta(milliseconds=1)


def _with_time_column(batch: pa.RecordBatch, times: Times) -> pa.RecordBatch:
    field, column = pa.field(HIDDEN_TIME, pa.int64()), pa.array(times)
    position = batch.schema.get_field_index(HIDDEN_TIME)
    if position >= 0:
        return batch.set_column(position, field, column)
    return batch.append_column(field, column)


def _restored_splits(states: Iterable[OperatorState]) -> dict[str, int]:
    """How far each split had come; where several subtasks knew one (no split at all), the one that was behind."""
    splits: dict[str, int] = {}
    for state in states:
        for name, time in state.meta["splits"].items():
            splits[name] = min(time, splits.get(name, time))
    return splits


@dataclass(frozen=True, slots=True)
class _WatermarkSnapshot:
    uid: str
    meta: Mapping[str, Any]

    def write(self, writer: StateWriter) -> OperatorState:
        return OperatorState(self.uid, KIND, meta=self.meta)
