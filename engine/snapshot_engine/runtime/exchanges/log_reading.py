"""The receiving end of a memory or durable exchange: takes each record once, however often it is sent."""

from __future__ import annotations

import pyarrow as pa

from snapshot_engine.channels.frames import Element
from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.protocol.elements import ChannelId, EndOfInput
from snapshot_engine.protocol.exchange_receiver import ChannelReceiver

REMEMBERED_BARRIERS = 8


class NumberedQueue(InboundQueue):
    def __init__(self, channel: ChannelId, port: int, expected: int = 0) -> None:
        super().__init__(channel, port)
        self.receiver = ChannelReceiver(channel, expected)
        self.ended = False
        """Its end has come, though perhaps it is not processed yet: nothing more is wanted from the producer."""
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
        element = super().take()
        if isinstance(element, pa.RecordBatch):
            self._waiting_rows -= element.num_rows
        return element

    def barrier(self, checkpoint: int) -> None:
        """The barrier of `checkpoint` was taken here: that is where the snapshot stands on this channel.

        In at-least-once mode rows behind it may be processed before the snapshot is taken; they are read again.
        """
        self._at_barrier[checkpoint] = self._processed()
        while len(self._at_barrier) > REMEMBERED_BARRIERS:
            del self._at_barrier[next(iter(self._at_barrier))]

    def position(self, checkpoint: int) -> int:
        """The number of the next record to process after a restore from `checkpoint`."""
        return self._at_barrier.get(checkpoint, self._processed())

    def _processed(self) -> int:
        """What was received but not processed does not count."""
        return self.receiver.expected - self._waiting_rows
