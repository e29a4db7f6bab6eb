"""Channels between slots: the producer's sending end, the consumer's receiving end."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable

import pyarrow as pa

from snapshot_engine.channels.frames import Element, FrameReader, encode
from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.queues import DEFAULT_LIMIT_BYTES, InboundQueue
from snapshot_engine.protocol.elements import ChannelId

_MOST_BUFFERS = 64  # per sendmsg; well below IOV_MAX


class SocketOutbound:
    """Queues frames and sends them whenever the socket takes them. Before a consumer has dialled in, it only queues."""

    def __init__(
        self,
        channel: ChannelId,
        poller: Poller,
        limit: int = DEFAULT_LIMIT_BYTES,
        on_room: Callable[[], None] | None = None,
        on_lost: Callable[[], None] | None = None,
    ) -> None:
        """`on_room` is called when the socket has taken something, `on_lost` when the consumer has hung up."""
        self.channel = channel
        self._poller = poller
        self._limit = limit
        self._on_room = on_room
        self._on_lost = on_lost
        self._buffers: deque[memoryview] = deque()
        self._queued = 0
        self._position = 0
        self._socket: socket.socket | None = None

    def has_room(self) -> bool:
        return self._queued < self._limit

    @property
    def connected(self) -> bool:
        return self._socket is not None

    def attach(self, connection: socket.socket) -> None:
        """A consumer has dialled in and was let in: it gets all that is queued, and what comes."""
        self._socket = connection
        self._poller.register(connection.fileno(), self._hung_up, self._writable)
        self._flush()

    def send(self, element: Element) -> None:
        buffers = encode(element, self._position)
        if isinstance(element, pa.RecordBatch):
            self._position += element.num_rows
        self.send_buffers(buffers)

    def send_buffers(self, buffers: Iterable[memoryview]) -> None:
        for buffer in buffers:
            self._buffers.append(buffer)
            self._queued += len(buffer)
        self._flush()

    def close(self) -> None:
        if self._socket is not None:
            self._poller.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _flush(self) -> None:
        if self._socket is None:
            return
        try:
            while self._buffers:
                self._drop_sent(self._socket.sendmsg(list(self._first_buffers())))
        except BlockingIOError:
            pass
        except OSError:
            # The consumer is gone. Its own control connection tells the JobMaster; here there is just no room any more.
            self._hung_up()
            return
        self._poller.want_write(self._socket.fileno(), bool(self._buffers))

    def _writable(self) -> None:
        self._flush()
        if self._on_room is not None and self.has_room():
            self._on_room()

    def _hung_up(self) -> None:
        """A consumer says nothing after its greeting: whatever makes the socket readable is its end."""
        self.close()
        if self._on_lost is not None:
            self._on_lost()

    def _first_buffers(self) -> list[memoryview]:
        return [self._buffers[index] for index in range(min(len(self._buffers), _MOST_BUFFERS))]

    def _drop_sent(self, count: int) -> None:
        self._queued -= count
        while count:
            first = self._buffers[0]
            if count < len(first):
                self._buffers[0] = first[count:]
                return
            count -= len(first)
            self._buffers.popleft()


class SocketInbound:
    """Reads a producer's frames into a queue while the queue has room: that is all the back pressure there is."""

    def __init__(
        self,
        queue: InboundQueue,
        connection: socket.socket,
        schema: pa.Schema,
        poller: Poller,
        on_lost: Callable[[ChannelId, str], None],
        greeting: bytes = b"",
    ) -> None:
        """`connection` may not be made yet; `greeting` is the first thing that is said when it is. `on_lost` is told
        why.
        """
        self._queue = queue
        self._socket: socket.socket | None = connection
        self._reader = FrameReader(schema)
        self._poller = poller
        self._on_lost = on_lost
        self._greeting = greeting
        queue.on_room = self._resume
        poller.register(connection.fileno(), self._read, self._greet)
        poller.want_write(connection.fileno(), bool(greeting))

    def close(self) -> None:
        if self._socket is not None:
            self._poller.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self._queue.on_room = None

    def _greet(self) -> None:
        """The connection is made, or it is known that it will not be."""
        if self._socket is None:
            return
        try:
            self._greeting = self._greeting[self._socket.send(self._greeting) :]
        except BlockingIOError:
            return
        except OSError as error:
            self._lose(f"it cannot be reached: {error}")
            return
        self._poller.want_write(self._socket.fileno(), bool(self._greeting))

    def _read(self) -> None:
        if self._socket is None:
            return
        try:
            while not self._queue.full:
                frame = self._reader.read(self._socket)
                if frame is None:
                    return
                self._queue.receive(frame[0], frame[1])
        except BlockingIOError:
            return
        except EOFError:
            self._lose("the producer hung up")
            return
        except OSError as error:
            self._lose(f"it cannot be reached: {error}")
            return
        self._poller.want_read(self._socket.fileno(), False)

    def _lose(self, why: str) -> None:
        self.close()
        self._on_lost(self._queue.channel, why)

    def _resume(self) -> None:
        if self._socket is not None:
            self._poller.want_read(self._socket.fileno(), True)
