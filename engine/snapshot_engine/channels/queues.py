"""The receiving end of a channel: a bounded queue of elements that a subtask reads from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pyarrow as pa

from snapshot_engine.channels.frames import Element
from snapshot_engine.protocol.elements import ChannelId

DEFAULT_LIMIT_BYTES = 1 << 20
"""What a channel holds before its producer must wait: a few batches, so that a barrier is never far behind."""


class InboundQueue:
    """Elements that have arrived and are not yet processed.

    The limit is soft by one element: what has arrived whole is kept, and no more is read until there is room again.
    """

    def __init__(self, channel: ChannelId, port: int, limit: int = DEFAULT_LIMIT_BYTES, *, inside: bool = True) -> None:
        self.channel = channel
        self.port = port
        self.inside = inside
        """Whether the producer belongs to the same region, so that a loop of the region waits for what is here."""
        self.elements: deque[Element] = deque()
        self.bytes = 0
        self.rows_taken = 0
        self.on_room: Callable[[], None] | None = None
        self._limit = limit

    @property
    def full(self) -> bool:
        return self.bytes >= self._limit

    def receive(self, element: Element, first: int) -> None:
        """From the network; `first` is the number of a batch's first record, which matters only to logs."""
        self.put(element)

    def put(self, element: Element) -> None:
        self.elements.append(element)
        if isinstance(element, pa.RecordBatch):
            self.bytes += element.nbytes

    def take(self) -> Element:
        element = self.elements.popleft()
        if isinstance(element, pa.RecordBatch):
            self._count(element.num_rows, element.nbytes)
        return element

    def take_slice(self, rows: int) -> Element:
        """Like `take`, but at most so many rows of a batch: the rest stays in front."""
        first = self.elements[0]
        if not isinstance(first, pa.RecordBatch) or first.num_rows <= rows:
            return self.take()
        rest = first.slice(rows)
        self.elements[0] = rest
        self._count(rows, first.nbytes - rest.nbytes)
        return first.slice(0, rows)

    def _count(self, rows: int, size: int) -> None:
        was_full = self.full
        self.bytes -= size
        self.rows_taken += rows
        if was_full and not self.full and self.on_room:
            self.on_room()


class LocalOutbound:
    """The sending end of a channel whose consumer lives in the same slot."""

    def __init__(self, queue: InboundQueue) -> None:
        self._queue = queue
        self.channel = queue.channel

    def has_room(self) -> bool:
        return not self._queue.full

    def send(self, element: Element) -> None:
        self._queue.put(element)

    def close(self) -> None:
        """Nothing to release."""
