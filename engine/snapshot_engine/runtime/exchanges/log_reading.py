"""The receiving end of a memory or durable exchange: takes each record once, however often it is sent."""

from __future__ import annotations

import pyarrow as pa

from snapshot_engine.channels.frames import Element
from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.protocol.elements import ChannelId, EndOfInput, Watermark
from snapshot_engine.protocol.exchange_receiver import ChannelReceiver, joins_what_is_taken

ENOUGH_ROWS = 4096
"""Batches that wait are put together up to this many rows: more would save nothing."""


class NumberedQueue(InboundQueue):
    def __init__(self, channel: ChannelId, port: int, expected: int = 0, *, in_batches_as_sent: bool = False) -> None:
        """`in_batches_as_sent`: rows must not pass a watermark, since the consumer promises the same sequence again."""
        super().__init__(channel, port)
        self.receiver = ChannelReceiver(channel, expected)
        self.ended = False
        """Its end has come, though perhaps it is not processed yet: nothing more is wanted from the producer."""
        self._as_sent = in_batches_as_sent
        self._waiting_rows = 0
        self._at_barrier: dict[int, int] = {}

    def receive(self, element: Element, first: int) -> None:
        if not isinstance(element, pa.RecordBatch):
            self.ended = self.ended or isinstance(element, EndOfInput)
            self.put(element)
            return
        skip, take = self.receiver.records(first, element.num_rows)
        if take:
            self.put(element.slice(skip, take) if skip else element)
            self._waiting_rows += take

    def take(self) -> Element:
        return self._take_joined(ENOUGH_ROWS)

    def take_slice(self, rows: int) -> Element:
        first = self.elements[0]
        if not isinstance(first, pa.RecordBatch) or first.num_rows <= rows:
            return self._take_joined(min(rows, ENOUGH_ROWS))
        self._waiting_rows -= rows
        return super().take_slice(rows)

    def _take_joined(self, rows: int) -> Element:
        element = super().take()
        if isinstance(element, pa.RecordBatch):
            if self.elements and not self._as_sent:
                element = self._with_what_follows(element, rows)
            self._waiting_rows -= element.num_rows
        return element

    def _with_what_follows(self, first: pa.RecordBatch, rows: int) -> pa.RecordBatch:
        joining = [
            super(NumberedQueue, self).take()
            for _ in range(joins_what_is_taken(self.elements, _rows_of, rows - first.num_rows))
        ]
        watermarks = [element for element in joining if isinstance(element, Watermark)]
        self.elements.extendleft(watermarks[-1:])
        batches = [first, *(element for element in joining if isinstance(element, pa.RecordBatch))]
        return pa.concat_batches(batches) if len(batches) > 1 else first

    def barrier(self, checkpoint: int) -> None:
        """The barrier of `checkpoint` was taken here: that is where the snapshot stands on this channel.

        In at-least-once mode rows behind it may be processed before the snapshot is taken; they are read again.
        """
        self._at_barrier[checkpoint] = self._processed()

    def position(self, checkpoint: int) -> int:
        """The number of the next record to process after a restore from `checkpoint`. Not to be asked for an older one
        any more: there may be many between a barrier here and the snapshot, but snapshots are taken in their order.
        """
        self._at_barrier = {number: at for number, at in self._at_barrier.items() if number >= checkpoint}
        return self._at_barrier.get(checkpoint, self._processed())

    def _processed(self) -> int:
        """What was received but not processed does not count."""
        return self.receiver.expected - self._waiting_rows


def _rows_of(element: object) -> int | None:
    return element.num_rows if isinstance(element, pa.RecordBatch) else None
