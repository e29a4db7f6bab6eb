"""The head of a loop as a subtask: receives what comes back at any time, and has a log for every pending checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pyarrow as pa

from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.protocol.alignment import DeclineCheckpoint, TakeSnapshot
from snapshot_engine.protocol.elements import MAX_WATERMARK, Barrier, ChannelId, EndOfInput, RoundEnd
from snapshot_engine.protocol.loop_end import LoopCounts
from snapshot_engine.protocol.loop_log import LoopAction, LoopContents, LoopLog
from snapshot_engine.protocol.round_ends import NO_ROUND
from snapshot_engine.runtime.loops.held_records import HeldRecords, RecordStore
from snapshot_engine.runtime.loops.log_state import LoopSnapshot
from snapshot_engine.runtime.loops.slices import MOST_BYTES, SliceSize
from snapshot_engine.runtime.snapshot_writer import SnapshotJob
from snapshot_engine.runtime.subtask import Subtask, Waiting

FEEDBACK_FIRST = 8
"""How often the loop is served for once that new records are let in, while it is over its budget without a barrier."""


@dataclass
class Loop:
    """What a head has besides any subtask: the feedback side."""

    uid: str
    feedback: Sequence[InboundQueue]
    log: LoopLog
    store: RecordStore
    restored_bytes: int = 0
    time_is_over: bool = False
    snapshots: dict[int, SnapshotJob] = field(default_factory=dict)
    """Taken, and waiting for their log to be whole."""
    rounds_ended: int = NO_ROUND
    """In this attempt."""
    ending: bool = False
    said_end: bool = False

    @property
    def edges(self) -> list[int]:
        return sorted({queue.channel.edge for queue in self.feedback})


class HeadSubtask(Subtask):
    """Its `queues` are the regular inputs only."""

    def __init__(self, *subtask: Any, loop: Loop, **more: Any) -> None:
        super().__init__(*subtask, **more)
        self._slices = SliceSize()
        self._loop = loop
        self._queue_bytes = loop.restored_bytes
        self._served_in_a_row = 0

    # Records.

    def step(self, now_ms: int) -> bool:
        """Receiving comes first and needs no room, so that whoever sends to this head always finds some."""
        if self.ended:
            return False
        received = self._receive()
        if not self.router.has_room():
            self.activity.wait(Waiting.FOR_ROOM)
            return received
        if self.chain.unfinished:
            self._go_on()
            return True
        started = time.perf_counter()
        if self._work():
            self.activity.go_on()
            self.activity.busy_seconds += time.perf_counter() - started
            return True
        self.activity.wait(Waiting.FOR_INPUT)
        return received

    def _work(self) -> bool:
        """The loop and the regular inputs in turn: neither may starve, or no barrier would come through."""
        limit = FEEDBACK_FIRST if self._loop.store.over_budget and not self._barrier_waits() else 1
        if self._served_in_a_row < limit and self._go_round():
            self._served_in_a_row += 1
            return True
        self._served_in_a_row = 0
        queue = self._next_readable()
        if queue is None:
            return self._go_round()
        self._handle(queue)
        return True

    def _barrier_waits(self) -> bool:
        """Then what lies in front of it is not held back: a loop that is too full needs its checkpoints too."""
        return any(isinstance(element, Barrier) for queue in self._open_queues for element in queue.elements)

    def _go_round(self) -> bool:
        batches = self._take()
        if not batches:
            return False
        self._process(0, batches[0] if len(batches) == 1 else pa.concat_batches(batches))
        return True

    def _take(self) -> list[pa.RecordBatch]:
        """As much as makes a slice: what came back in crumbs goes on in one piece, or the loop would only make more."""
        batches: list[pa.RecordBatch] = []
        rows = size = 0
        while rows < self._most_rows and size < MOST_BYTES and (taken := self._loop.log.take()) is not None:
            held = cast(HeldRecords, taken[1])
            batches.append(held.batch())
            rows, size = rows + held.rows, size + held.size
        self._queue_bytes -= size
        return batches

    def _receive(self) -> bool:
        received = False
        for queue in self._loop.feedback:
            while queue.elements:
                received = True
                self._arrived(queue.channel, queue.take())
        return received

    def _arrived(self, channel: ChannelId, element: Any) -> None:
        loop = self._loop
        if isinstance(element, pa.RecordBatch):
            for held in loop.store.hold(element, self._most_rows):
                self._queue_bytes += held.size
                loop.log.arrived(channel, held)
            return
        match element:
            case Barrier():
                self._act_on_loop(loop.log.returned(channel, element.checkpoint))
            case RoundEnd() if loop.log.rounds:
                loop.log.round_ended(channel, element.round)
            case EndOfInput():
                self._act_on_loop(loop.log.ended(channel))
                if loop.log.all_ended:
                    self._hand_in_final()

    # Snapshots: handed in when the barrier has gone round.

    def _take_snapshot(self, action: TakeSnapshot) -> None:
        super()._take_snapshot(action)
        self._act_on_loop(self._loop.log.snapshot_taken(action.barrier.checkpoint))

    def _hand_in(self, job: SnapshotJob) -> None:
        job.snapshots = [*job.snapshots, self._snapshot()]
        if job.checkpoint is None:
            super()._hand_in(job)
        else:
            self._loop.snapshots[job.checkpoint] = job

    def _act_on_loop(self, actions: Iterable[LoopAction]) -> None:
        for action in actions:
            job = self._loop.snapshots.pop(action.checkpoint, None)
            if isinstance(action, DeclineCheckpoint):
                self._decline(self.id, action)
            elif job is not None:
                taken = cast(LoopSnapshot, job.snapshots[-1])
                job.snapshots = [*job.snapshots[:-1], replace(taken, contents=action.contents)]
                super()._hand_in(job)

    def _snapshot(self) -> LoopSnapshot:
        """The log is filled in when it is whole."""
        loop = self._loop
        return LoopSnapshot(loop.uid, loop.time_is_over, loop.edges, LoopContents(round=loop.log.round))

    def abort(self, checkpoint: int) -> None:
        self._loop.log.abort(checkpoint)
        self._loop.snapshots.pop(checkpoint, None)
        super().abort(checkpoint)

    def _trigger(self, barrier: Barrier, stop: bool) -> None:
        if not self._loop.said_end:  # no barrier follows the end
            super()._trigger(barrier, stop)

    # The end, and rounds: counted by the driver.

    def _advance(self, watermark: int | None) -> None:
        """That the regular inputs have ended is not yet the end of time: the loop may go on."""
        if watermark != MAX_WATERMARK:
            super()._advance(watermark)

    def _all_inputs_ended(self) -> None:
        self._inputs_ended(self.id)
        self._go_on_ending()

    def end_round(self, round: int) -> None:
        if self._loop.log.rounds and round > self._loop.rounds_ended:
            self._loop.rounds_ended = round
            self.chain.head.on_round_end(round)

    def open_round(self, round: int) -> None:
        if self._loop.log.rounds:
            self._loop.log.open_round(round)

    def begin_round(self, round: int) -> None:
        if self._loop.log.rounds:
            self._loop.log.next_round(round)

    def let_time_run_out(self) -> None:
        """Not before it has for the regular inputs: what another loop puts out at its end of time is not late here."""
        if not self._loop.time_is_over and self._watermarks.current == MAX_WATERMARK:
            self._loop.time_is_over = True
            super()._advance(MAX_WATERMARK)

    def end_loop(self) -> None:
        self._loop.ending = True
        self._go_on_ending()

    def _go_on_ending(self) -> None:
        """The end goes out when it is told and the regular inputs (of an inner loop, the outer one) have ended."""
        if self._loop.ending and not self._open_queues and not self._loop.said_end:
            self._loop.said_end = True
            self._say_end()

    def loop_counts(self) -> LoopCounts:
        log = self._loop.log
        received = self._rows_received_inside() + sum(queue.rows_taken for queue in self._loop.feedback)
        if self.ended:
            return LoopCounts(self.router.rows_sent_inside, received, quiet=True)
        return LoopCounts(
            self.router.rows_sent_inside,
            received,
            log.quiet and not self._outside_is_open() and self._chain_is_quiet,
            log.waiting if log.rounds else 0,
            log.round if log.rounds else None,
            log.round_over,
            self._loop.time_is_over,
            log.arriving if log.rounds else None,
            log.pending,
        )

    def loop_bytes(self) -> tuple[int, int]:
        """(in the queues, in the logs of pending checkpoints); what is in several of them is counted in each."""
        return self._queue_bytes, sum(cast(HeldRecords, entry.payload).size for entry in self._loop.log.logged())
