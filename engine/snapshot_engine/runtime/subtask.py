"""A subtask: reads its channels in order, lets its chain work, and takes part in snapshots. Never blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import pyarrow as pa

from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.operators.operator import SourceStatus
from snapshot_engine.operators.weights import rows_counted
from snapshot_engine.protocol.alignment import Alignment, AlignmentAction, DeclineCheckpoint, TakeSnapshot
from snapshot_engine.protocol.elements import (
    MAX_WATERMARK,
    Barrier,
    ChannelId,
    EndOfInput,
    Idle,
    RoundEnd,
    SubtaskId,
    Watermark,
)
from snapshot_engine.protocol.loop_end import LoopCounts
from snapshot_engine.protocol.round_ends import RoundEnds
from snapshot_engine.protocol.source_drift import SourceDrift
from snapshot_engine.protocol.watermarks import WatermarkMerge
from snapshot_engine.runtime.chain import Chain
from snapshot_engine.runtime.exchanges.segment_reading import SegmentQueue
from snapshot_engine.runtime.exchanges.subtask_exchanges import InputQueue, SubtaskExchanges
from snapshot_engine.runtime.loops.slices import SliceSize
from snapshot_engine.runtime.router import Router
from snapshot_engine.runtime.snapshot_writer import SnapshotJob
from snapshot_engine.runtime.timed_size import TimedSize

SOURCE_PAUSE_MS = 2
"""How long a source that had nothing is left alone, when it names no deadline itself."""


class Waiting(Enum):
    """What a subtask waits for when it is not run."""

    FOR_INPUT = "idle"
    FOR_ROOM = "blocked"


@dataclass
class Activity:
    """Where the time of a subtask goes, and what passed through it; read by the metrics.

    What is neither busy nor waiting, it spent in line while other subtasks of its slot were at work.
    """

    rows_in: int = 0
    bytes_in: int = 0
    busy_seconds: float = 0.0
    watermark: int | None = None
    _waited: dict[Waiting, float] = field(default_factory=lambda: dict.fromkeys(Waiting, 0.0))
    _waits_for: Waiting | None = None
    _since: float = 0.0

    def wait(self, what: Waiting) -> None:
        if self._waits_for is not what:
            self.go_on()
            self._waits_for, self._since = what, time.perf_counter()

    def go_on(self) -> None:
        if self._waits_for is not None:
            self._waited[self._waits_for] += time.perf_counter() - self._since
            self._waits_for = None

    def waited(self, what: Waiting) -> float:
        """Seconds until now, also while it still waits."""
        under_way = time.perf_counter() - self._since if self._waits_for is what else 0.0
        return self._waited[what] + under_way


class Subtask:
    """`step` does one small piece of work; the slot calls it for each of its subtasks in turn."""

    def __init__(
        self,
        id: SubtaskId,
        chain: Chain,
        router: Router,
        queues: Sequence[InputQueue],
        ended: Collection[ChannelId],
        exchanges: SubtaskExchanges,
        alignment: Alignment,
        watermarks: WatermarkMerge,
        submit: Callable[[SnapshotJob], None],
        decline: Callable[[SubtaskId, DeclineCheckpoint], None],
        inputs_ended: Callable[[SubtaskId], None],
        round_ends: RoundEnds | None = None,
        slices: SliceSize | None = None,
        timed: TimedSize | None = None,
    ) -> None:
        """`ended` are channels that had ended at the restored checkpoint and will not say so again. Batches are taken
        in parts: never more rows than take some time, and in a loop, with `slices`, than lead to some output.
        """
        self.id = id
        self.chain = chain
        self.router = router
        self.activity = Activity()
        self.ended = False
        self.has_worked = False
        """Whether any row has passed through it since it was restored."""
        self.exchanges = exchanges
        self.sources_paused = False
        self.drift: SourceDrift | None = None
        """Where it is a source that keeps together with others."""
        self._pipelined = [queue for queue in queues if type(queue) is InboundQueue]
        self._open_queues = [queue for queue in queues if queue.channel not in ended]
        self._inputs_ended = inputs_ended
        self._alignment = alignment
        self._watermarks = watermarks
        self._submit = submit
        self._decline = decline
        self._round_ends = round_ends
        self._slices = slices
        self._timed = timed or TimedSize()
        self._next = 0
        self._is_source = not queues
        self._told_inputs_ended = alignment.all_ended and not alignment.ended
        self._idle_until = 0
        self._stopped_at: int | None = None
        self._when_through: list[Callable[[], None]] = []
        """What comes behind an event that the chain is still at work on."""
        self._triggers: list[tuple[Barrier, bool]] = []
        """As well, but behind all that."""

    def run(self, now_ms: int, seconds: float) -> bool:
        """Elements until there are none or the time is up (at least one), or one poll of the source; whether any."""
        if self._is_source:
            return self.step(now_ms)
        until = time.perf_counter() + seconds
        worked = False
        while self.step(now_ms):
            worked = True
            if time.perf_counter() >= until:
                break
        return worked

    def step(self, now_ms: int) -> bool:
        """Process one element, or poll the source once; whether anything was done."""
        if self.ended:
            return False
        if not self.router.has_room():
            self.activity.wait(Waiting.FOR_ROOM)
            return False
        if self.chain.unfinished:
            self._go_on()
            return True
        if self._is_source:
            return self._poll_source(now_ms)
        queue = self._next_readable()
        if queue is None:
            self.activity.wait(Waiting.FOR_INPUT)
            return False
        self.activity.go_on()
        started = time.perf_counter()
        self._handle(queue)
        self.activity.busy_seconds += time.perf_counter() - started
        return True

    def _go_on(self) -> None:
        self.activity.go_on()
        started = time.perf_counter()
        self.chain.go_on()
        self._look_whether_through()
        self.activity.busy_seconds += time.perf_counter() - started

    def _then(self, what: Callable[[], None]) -> None:
        """Do it behind the event that was just given to the chain: at once, unless the chain is not through with it."""
        self._when_through.append(what)
        self._look_whether_through()

    def _look_whether_through(self) -> None:
        while self._when_through and not self.chain.unfinished:
            self._when_through.pop(0)()
        while self._triggers and not self.chain.unfinished:
            self._trigger(*self._triggers.pop(0))

    def deadline(self) -> int | None:
        """When `on_deadline` should be called (epoch ms); None also while there is no room for its output, or other
        work to be done first.
        """
        waits = self.ended or not self.router.has_room() or self.chain.unfinished
        return None if waits else self.chain.next_deadline()

    def on_deadline(self, now_ms: int) -> None:
        self.chain.on_deadline(now_ms)

    def source_wait(self) -> int | None:
        """Until when (epoch ms) the source has nothing to do; None if this is no source, or has to wait for room."""
        may_run = not self.ended and self._stopped_at is None and not self.sources_paused
        waits = self._is_source and may_run and self.router.has_room()
        return self._idle_until if waits else None

    def told_least_time(self, time: int | None) -> None:
        """How far the slowest has come of the sources that keep together with this one."""
        if self.drift is not None:
            self.drift.told(time)
            self._idle_until = 0

    def trigger(self, barrier: Barrier, stop: bool) -> None:
        """A checkpoint begins here: the position is recorded, and the barrier goes out behind what was emitted.

        With `stop` nothing follows the barrier, unless the checkpoint is aborted. A newer one without `stop` says so
        too: none is triggered by time while a stop is under way.
        """
        self._triggers.append((barrier, stop))
        self._look_whether_through()

    def _trigger(self, barrier: Barrier, stop: bool) -> None:
        if not self.ended:
            self._act(self._alignment.trigger(barrier, time.time()))
            self._stopped_at = barrier.checkpoint if stop else None

    def abort(self, checkpoint: int) -> None:
        if self._stopped_at == checkpoint:
            self._stopped_at = None
        self._triggers = [(barrier, stop) for barrier, stop in self._triggers if barrier.checkpoint != checkpoint]
        self._act(self._alignment.abort(checkpoint, time.time()))
        for operator in self.chain.opened:
            operator.on_aborted(checkpoint)

    def complete(self, checkpoint: int) -> None:
        self.exchanges.completed(checkpoint)
        for operator in self.chain.opened:
            operator.on_completed(checkpoint)

    def end_at_once(self) -> None:
        """The restored checkpoint says that this subtask had finished: only tell the consumers again."""
        self.ended = True
        self.router.watermark(MAX_WATERMARK)
        self.router.broadcast(EndOfInput())

    def state_size(self) -> tuple[int, int]:
        sizes = [operator.state_size() for operator in self.chain.opened]
        return sum(keys for keys, _ in sizes), sum(size for _, size in sizes)

    def late_rows(self) -> int:
        return sum(operator.late_rows for operator in self.chain.opened)

    def source_lag(self) -> int | None:
        """Rows that wait to be read; None if this is no source, or one that cannot tell."""
        return self.chain.source.lag() if self._is_source and not self.ended else None

    def close(self) -> None:
        self.chain.close()
        self.router.close()

    def _poll_source(self, now_ms: int) -> bool:
        if now_ms < self._idle_until or self._stopped_at is not None or self.sources_paused:
            self.activity.wait(Waiting.FOR_INPUT)
            return False
        self.activity.go_on()
        source, started = self.chain.source, time.perf_counter()
        read_before = source.rows_read
        status = source.poll(self._timed.rows)
        seconds = time.perf_counter() - started
        self.activity.busy_seconds += seconds
        if status == SourceStatus.MORE:
            self.has_worked = True
            self._timed.took(source.rows_read - read_before, seconds)
            return True
        if status != SourceStatus.ENDED:
            self.activity.wait(Waiting.FOR_INPUT if status == SourceStatus.NOTHING else Waiting.FOR_ROOM)
            self._idle_until = self.chain.head.next_deadline() or now_ms + SOURCE_PAUSE_MS
            return False
        self.chain.head.on_watermark(MAX_WATERMARK)
        self._then(self._finish)
        return True

    def _next_readable(self) -> InputQueue | None:
        """The next channel in turn that has something and is not blocked by an alignment."""
        blocked = self._alignment.blocked
        count = len(self._open_queues)
        for offset in range(count):
            queue = self._open_queues[(self._next + offset) % count]
            if queue.elements and queue.channel not in blocked and not self._is_held(queue):
                self._next = (self._next + offset + 1) % count
                return queue
        return None

    def _is_held(self, queue: InputQueue) -> bool:
        """A reader of a stored exchange is a source: it stops and pauses like one."""
        return isinstance(queue, SegmentQueue) and (self.sources_paused or self._stopped_at is not None)

    def _handle(self, queue: InputQueue) -> None:
        element = queue.take_slice(self._most_rows)
        if isinstance(element, pa.RecordBatch):
            self._watermarks.active(queue.channel)
            self._process(queue.port, element)
            return
        match element:
            case Watermark():
                self._advance(self._watermarks.watermark(queue.channel, element.timestamp))
            case Idle():
                self._advance(self._watermarks.idle(queue.channel))
                if self._watermarks.all_idle:
                    self.chain.head.on_idle()
            case Barrier():
                self.exchanges.barrier(queue, element.checkpoint)
                self._watermarks.barrier(queue.channel, element.checkpoint)
                self._act(self._alignment.barrier(queue.channel, element, time.time()))
            case EndOfInput():
                self._end_channel(queue)
            case RoundEnd():
                self._end_round(queue, element.round)

    @property
    def _most_rows(self) -> int:
        """How much is taken in hand at a time. The rest of a batch stays in front of its queue, before any barrier."""
        return self._timed.rows if self._slices is None else min(self._timed.rows, self._slices.rows)

    def _process(self, port: int, batch: pa.RecordBatch) -> None:
        self.has_worked = True
        self.activity.rows_in += rows_counted(batch)
        self.activity.bytes_in += batch.nbytes
        rows, size = self.router.rows_out, self.router.bytes_out
        started = time.perf_counter()
        self.chain.head.process(port, batch)
        self._timed.took(batch.num_rows, time.perf_counter() - started)
        if self._slices is not None:
            self._slices.adapt(batch.num_rows, self.router.rows_out - rows, self.router.bytes_out - size)

    def _end_round(self, queue: InputQueue, round: int) -> None:
        """Told again after a restore: keys that were told before are not in the restored state any more."""
        assert self._round_ends is not None
        passed_on = self._round_ends.ended(queue.channel, round)
        if passed_on is not None:
            self.chain.head.on_round_end(passed_on.round)

    def _advance(self, watermark: int | None) -> None:
        if watermark is not None:
            self.activity.watermark = watermark
            self.chain.head.on_watermark(watermark)

    def _end_channel(self, queue: InputQueue) -> None:
        self._open_queues.remove(queue)
        self._next = 0
        self._advance(self._watermarks.end(queue.channel))
        self._then(lambda: self._channel_ended(queue.channel))

    def _channel_ended(self, channel: ChannelId) -> None:
        self._act(self._alignment.end(channel, time.time()))
        self.look_whether_inputs_ended()

    def look_whether_inputs_ended(self) -> None:
        """Finish, or say that no barrier will come any more although stored exchanges are still open."""
        if self._is_source or self.ended:
            return
        if not self._open_queues:
            self._all_inputs_ended()
        elif self._alignment.all_ended and not self._told_inputs_ended:
            self._told_inputs_ended = True
            self._inputs_ended(self.id)

    def _all_inputs_ended(self) -> None:
        self._finish()

    def _finish(self) -> None:
        """All inputs have ended: emit the rest, tell the consumers, and hand in the final state."""
        self._say_end()
        self._hand_in_final()

    def _say_end(self) -> None:
        self.chain.end_input()
        self.router.broadcast(EndOfInput())

    def _hand_in_final(self) -> None:
        self.ended = True
        self.activity.go_on()
        snapshots, sync = self._freeze(-1)
        times = self._watermarks.snapshot()
        settled = self._alignment.settled
        job = SnapshotJob(self.id, None, snapshots, times, 0.0, 0.0, sync, finished=True, snapshotted=settled)
        job.exchanges = self.exchanges.snapshots(-1)
        self._hand_in(job)

    def _act(self, actions: Sequence[AlignmentAction]) -> None:
        for action in actions:
            if isinstance(action, TakeSnapshot):
                self._take_snapshot(action)
            else:
                self._decline(self.id, action)

    def _take_snapshot(self, action: TakeSnapshot) -> None:
        barrier = action.barrier
        snapshots, sync = self._freeze(barrier.checkpoint)
        self.router.flush()
        self.exchanges.seal(barrier.checkpoint)
        kept = self.exchanges.snapshots(barrier.checkpoint)
        self.router.broadcast(barrier)
        self._hand_in(
            SnapshotJob(
                self.id,
                barrier.checkpoint,
                snapshots,
                self._watermarks.snapshot(barrier.checkpoint),
                action.start_delay,
                action.alignment,
                sync,
                exchanges=kept,
            )
        )

    def _hand_in(self, job: SnapshotJob) -> None:
        self._submit(job)

    # For the driver, which finds out by counting whether a loop is at rest.

    def loop_counts(self) -> LoopCounts:
        quiet = self.ended or (not self._is_source and not self._outside_is_open() and self._chain_is_quiet)
        over = self.ended or self._watermarks.current == MAX_WATERMARK
        return LoopCounts(
            self.router.rows_sent_inside,
            self._rows_received_inside(),
            quiet,
            round_over=None if self._round_ends is None or self.ended else self._round_ends.over,
            time_is_over=over,
        )

    @property
    def _chain_is_quiet(self) -> bool:
        return not self.chain.has_timers and not self.chain.unfinished and not self.router.holds_rows

    def _rows_received_inside(self) -> int:
        return sum(queue.rows_taken for queue in self._pipelined)

    def _outside_is_open(self) -> bool:
        """Whether another region may still send something."""
        return any(queue not in self._pipelined for queue in self._open_queues)

    def _freeze(self, checkpoint: int) -> tuple[list[Any], float]:
        started = time.perf_counter()
        snapshots = [operator.snapshot(checkpoint) for operator in self.chain.operators]
        return [snapshot for snapshot in snapshots if snapshot is not None], time.perf_counter() - started
