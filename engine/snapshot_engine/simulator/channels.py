"""Both ends of a channel, for each exchange. Batches are cut at random where they are taken.

A port belongs to the consumer: `ready` says whether there is something to take, `take` takes it. An outlet
belongs to the producer. Records travel as tuples, control elements as themselves.
"""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING

from snapshot_engine.protocol.committed_exchange import SegmentPosition, SegmentReader, SegmentWriter
from snapshot_engine.protocol.elements import Attempt, Barrier, ChannelId, Control, EndOfInput, Watermark
from snapshot_engine.protocol.exchange_log import ChannelLog, LogReader, SendRecords
from snapshot_engine.protocol.exchange_receiver import ChannelReceiver, joins_what_is_taken
from snapshot_engine.simulator.records import Batch
from snapshot_engine.simulator.storage import Storage
from snapshot_engine.simulator.topology import Edge

if TYPE_CHECKING:
    from snapshot_engine.simulator.network import Network

Element = Batch | Control

CUT = 0.3  # how often a batch is taken in two
TOGETHER = 0.2  # how often what lies behind a batch in a log is taken together with it


def _records_in(element: object) -> int | None:
    return len(element) if isinstance(element, tuple) else None


class QueuePort:
    """The end of a pipelined channel: a queue, filled by the producers of the same attempt."""

    __slots__ = ("channel", "edge", "queue")

    def __init__(self, edge: Edge, channel: ChannelId) -> None:
        self.edge = edge
        self.channel = channel
        self.queue: deque[Element] = deque()

    def ready(self) -> bool:
        return bool(self.queue)

    def take(self, random: Random) -> Element:
        element = self.queue.popleft()
        if type(element) is tuple and len(element) > 1 and random.random() < CUT:
            cut = 1 + int(random.random() * (len(element) - 1))
            self.queue.appendleft(element[cut:])
            return element[:cut]
        return element

    def barrier(self, checkpoint: int) -> None:
        """The barrier of `checkpoint` was taken here."""

    def position(self, checkpoint: int) -> object:
        return None


class LogPort(QueuePort):
    """The end of a memory or durable channel: reads the producer's log, and takes each record once."""

    __slots__ = ("_as_sent", "_at_barrier", "reader", "receiver")

    def __init__(self, edge: Edge, channel: ChannelId, receiver: ChannelReceiver, as_sent: bool) -> None:
        """`as_sent`: the consumer promises the same sequence again, so no record may pass a watermark."""
        super().__init__(edge, channel)
        self.receiver = receiver
        self._as_sent = as_sent
        self.reader: LogReader | None = None
        self._at_barrier: dict[int, int] = {}

    def ready(self) -> bool:
        if not self.queue and self.reader is not None:
            self._receive()
        return bool(self.queue)

    def take(self, random: Random) -> Element:
        element = super().take(random)
        if type(element) is not tuple or self._as_sent or random.random() >= TOGETHER:
            return element
        for _ in range(int(random.random() * 6)):
            self._receive()
        joining = [self.queue.popleft() for _ in range(joins_what_is_taken(self.queue, _records_in, 5))]
        self.queue.extendleft([each for each in joining if type(each) is Watermark][-1:])
        return sum((each for each in joining if type(each) is tuple), element)

    def _receive(self) -> None:
        send = self.reader.next_send() if self.reader is not None else None
        if send is None:
            return
        if not isinstance(send, SendRecords):
            self.queue.append(send.element)
            return
        records: Batch = send.payload[send.skip : send.skip + send.count]  # type: ignore[index]
        skip, take = self.receiver.records(send.first, len(records))
        if take:
            self.queue.append(records[skip : skip + take])

    def barrier(self, checkpoint: int) -> None:
        self._at_barrier = {n: at for n, at in self._at_barrier.items() if n > checkpoint - 8}
        self._at_barrier[checkpoint] = self._processed()

    def position(self, checkpoint: int) -> int:
        """Where the barrier lay. In at-least-once mode records behind it may have been processed since; they
        are read again, for a producer that is restored too may not send the same ones under the same
        numbers.
        """
        return self._at_barrier.get(checkpoint, self._processed())

    def _processed(self) -> int:
        """The number of the next record to process: what was received but not processed does not count."""
        return self.receiver.expected - sum(len(e) for e in self.queue if type(e) is tuple)


class SegmentPort:
    """The end of a committed channel: reads published segments from storage."""

    __slots__ = ("_entries", "_inside", "_next", "_opened", "_storage", "channel", "edge", "reader")

    def __init__(self, edge: Edge, channel: ChannelId, storage: Storage, position: SegmentPosition) -> None:
        self.edge = edge
        self.channel = channel
        self.reader = SegmentReader(channel, position)
        self._storage = storage
        self._opened: int | None = None
        self._entries: tuple[Element, ...] = ()
        self._next = 0
        self._inside = 0  # records of the entry that were taken before

    def ready(self) -> bool:
        return self.reader.current() is not None

    def take(self, random: Random) -> Element | None:
        """None where a segment holds nothing more, not even its channel's end."""
        segment = self.reader.current()
        assert segment is not None
        if self._opened != segment.number:
            self._open(segment.number, segment.payload)
        if self._next == len(self._entries):
            return EndOfInput() if self.reader.finish_segment() else None
        entry = self._entries[self._next]
        if type(entry) is not tuple:
            self._next += 1
            return entry
        return self._take_records(entry, random)

    def _open(self, number: int, name: object) -> None:
        self._opened = number
        self._entries = self._storage.read(str(name))  # type: ignore[assignment]
        self._next = self._inside = 0
        behind = self.reader.position.offset
        while behind:
            entry = self._entries[self._next]
            size = len(entry) if type(entry) is tuple else 0
            if size > behind:
                self._inside = behind
                break
            behind -= size
            self._next += 1

    def _take_records(self, entry: Batch, random: Random) -> Batch:
        rest = entry[self._inside :]
        if len(rest) > 1 and random.random() < CUT:
            taken = rest[: 1 + int(random.random() * (len(rest) - 1))]
            self._inside += len(taken)
        else:
            taken = rest
            self._next += 1
            self._inside = 0
        self.reader.advance(len(taken))
        return taken

    def barrier(self, checkpoint: int) -> None:
        """Barriers do not cross a committed exchange."""

    def position(self, checkpoint: int) -> SegmentPosition:
        return self.reader.position


Port = QueuePort | LogPort | SegmentPort


class QueueOutlet:
    """The beginning of a pipelined channel: puts into the queue of the same channel and attempt."""

    __slots__ = ("attempt", "channel", "network")

    def __init__(self, channel: ChannelId, attempt: Attempt, network: Network) -> None:
        self.channel = channel
        self.attempt = attempt
        self.network = network

    @property
    def full(self) -> bool:
        queue = self.network.queue(self.channel, self.attempt)
        return queue is not None and len(queue) >= self.network.capacity

    def push(self, element: Element) -> None:
        queue = self.network.queue(self.channel, self.attempt)
        if queue is not None:  # a closed connection takes nothing
            queue.append(element)
            if not self.network.in_order and type(element) is Barrier and len(queue) > 1:
                queue.rotate(1)

    def before_snapshot(self, checkpoint: int) -> None:
        pass

    def completed(self, checkpoint: int) -> None:
        pass

    def state(self) -> object:
        return None


class FeedbackOutlet(QueueOutlet):
    """The beginning of a feedback channel: its head receives at any time, on disk if it must."""

    __slots__ = ()

    @property
    def full(self) -> bool:
        return False


class LogOutlet:
    """The beginning of a memory or durable channel: appends to the log."""

    __slots__ = ("channel", "log")

    full = False  # a full log pauses the region's sources, not those who bring the barrier that will empty it

    def __init__(self, log: ChannelLog) -> None:
        self.log = log
        self.channel = log.channel

    def push(self, element: Element) -> None:
        if type(element) is tuple:
            self.log.append_records(len(element), len(element), element)
        else:
            self.log.append_control(element)  # type: ignore[arg-type]

    def before_snapshot(self, checkpoint: int) -> None:
        pass

    def completed(self, checkpoint: int) -> None:
        self.log.completed(checkpoint)

    def state(self) -> int:
        return self.log.next_number


class SegmentOutlet:
    """The beginning of a committed channel: seals what was written at every barrier, and at the end."""

    __slots__ = ("_attempt", "_open", "_storage", "channel", "writer")

    full = False

    def __init__(self, writer: SegmentWriter, attempt: Attempt, storage: Storage) -> None:
        self.writer = writer
        self.channel = writer.channel
        self._attempt = attempt
        self._storage = storage
        self._open: list[Element] = []

    def push(self, element: Element) -> None:
        if type(element) is EndOfInput:
            self._seal(0, last=True)
        elif type(element) is not Barrier:  # barriers do not cross
            self._open.append(element)

    def before_snapshot(self, checkpoint: int) -> None:
        if self._open:
            self._seal(checkpoint, last=False)

    def _seal(self, checkpoint: int, last: bool) -> None:
        name = f"segment {self.channel} {self.writer.next_number} {self._attempt} {checkpoint}"
        records = sum(len(e) for e in self._open if type(e) is tuple)
        self._storage.files[name] = tuple(self._open)
        self.writer.seal(checkpoint, records, name, last)
        self._open = []

    def completed(self, checkpoint: int) -> None:
        self.writer.completed(checkpoint)

    def state(self) -> object:
        return self.writer.next_number, self.writer.named()


Outlet = QueueOutlet | LogOutlet | SegmentOutlet
