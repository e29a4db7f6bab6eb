"""The kinds of subtask: sources, steps that count, windows that wait for the watermark,
transactional sinks.
"""

from __future__ import annotations

from typing import NamedTuple

from snapshot_engine.protocol.elements import Barrier, Idle, Watermark
from snapshot_engine.simulator.loops import Body, Head
from snapshot_engine.simulator.records import WINDOW, Batch, count
from snapshot_engine.simulator.subtask import Subtask
from snapshot_engine.simulator.topology import Kind

SPLIT = "the only one"
IDLE = 0.04  # how often a source says that it will be silent


class SourceState(NamedTuple):
    position: int = 0
    furthest: int = 0
    """The latest event time that was read."""


class Source(Subtask):
    """Reads its split in order, in batches cut at random; its watermark lags behind by a fixed delay."""

    def restore(self, own: object) -> None:
        self.position, self.furthest = own if isinstance(own, SourceState) else SourceState()
        self.split = self.world.records.splits[self.id.vertex, self.id.index]
        self.stopped_for: int | None = None
        drift = self.world.config.max_drift
        self.drift = None if drift is None else self.world.parts.source_drift(drift)

    def own_state(self) -> SourceState:
        return SourceState(self.position, self.furthest)

    def step(self) -> bool:
        if self.finished or self.stopped_for is not None or self.instance.is_paused() or self._is_held_back():
            return False
        if self.drift is not None and self.drift.held:
            self.world.covered.add("source held")
            return False
        if self.position == len(self.split):
            self.end_of_time()
            self.finish()
            return True
        if self.random.random() < IDLE:
            self.broadcast(Idle())
            self._stands_at({})
            return True
        self._read()
        return True

    def _read(self) -> None:
        size = 1 + int(self.random.random() * 3)
        batch = tuple(self.split[self.position : self.position + size])
        self.position += len(batch)
        self.emit(batch)
        self.furthest = max(self.furthest, max(self.world.records.time[record] for record in batch))
        if self.random.random() < 0.6:
            self.broadcast(Watermark(self.furthest - self.world.config.watermark_delay))
        self._stands_at({SPLIT: self.furthest})

    def _stands_at(self, times: dict[str, int]) -> None:
        if self.drift is not None:
            self.drift.stands_at(times)
            if self.drift.has_news:
                self.instance.send("source_time", self.id.index, self.id, self.drift.say())

    def come_up(self) -> None:
        pass

    def trigger(self, barrier: Barrier, stop: bool) -> None:
        before = self.alignment.settled
        super().trigger(barrier, stop)
        if self.alignment.settled > before:
            self.stopped_for = barrier.checkpoint if stop else None

    def on_aborted(self, checkpoint: int) -> None:
        if self.stopped_for == checkpoint:
            self.stopped_for = None


class Step(Subtask):
    """Keeps in its state how often it saw each record, and passes them on."""

    def restore(self, own: object) -> None:
        self.counts = own if isinstance(own, int) else 0

    def own_state(self) -> int:
        return self.counts

    def process(self, batch: Batch) -> None:
        self.counts += count(batch)
        self.emit(batch)


class Window(Subtask):
    """Keeps records until the watermark has passed their window, then emits them with the window's marker.

    A record that comes too late is passed on at once. A window that fires twice has lost track of event time.
    """

    def restore(self, own: object) -> None:
        self.windows: dict[tuple[int, int], Batch] = dict(own) if isinstance(own, dict) else {}

    def own_state(self) -> object:
        return dict(self.windows)

    def process(self, batch: Batch) -> None:
        records = self.world.records
        late = []
        for record in batch:
            window = records.time[record] // WINDOW
            if (window + 1) * WINDOW - 1 <= self.watermarks.current:
                late.append(record)
            else:
                key = records.key[record]
                self.windows[key, window] = (*self.windows.get((key, window), ()), record)
        if late:
            self.emit(tuple(late))

    def on_watermark(self, timestamp: int) -> None:
        due = [each for each in self.windows if (each[1] + 1) * WINDOW - 1 <= timestamp]
        for key, window in sorted(due):
            fired = self.windows.pop((key, window))
            self.emit((*fired, self.world.records.marker(key, window)))


class Sink(Subtask):
    """Writes into a transaction that is prepared at every barrier and committed when the checkpoint is
    complete.
    """

    def restore(self, own: object) -> None:
        listed = own if isinstance(own, tuple) else ()
        self.lineage = self.world.parts.lineage(listed, self.instance.checkpoint)
        self.written: list[int] = []
        self.number = 0

    def own_state(self) -> tuple[str, ...]:
        return tuple(self.lineage.listed())

    def transactions(self) -> tuple[str, ...]:
        return tuple(self.lineage.listed())

    def process(self, batch: Batch) -> None:
        self.written.extend(batch)

    def before_snapshot(self, checkpoint: int) -> None:
        if self.written:
            self.number += 1
            name = f"{self.id}@{self.instance.attempt} number {self.number} for {checkpoint}"
            self.world.outside.prepare(name, tuple(self.written))
            self.lineage.prepared(checkpoint, [name])
            self.written = []

    def on_completed(self, checkpoint: int) -> None:
        self.lineage.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self.lineage.aborted(checkpoint)


KINDS: dict[Kind, type[Subtask]] = {
    Kind.SOURCE: Source,
    Kind.STEP: Step,
    Kind.WINDOW: Window,
    Kind.SINK: Sink,
    Kind.HEAD: Head,
    Kind.BODY: Body,
}
