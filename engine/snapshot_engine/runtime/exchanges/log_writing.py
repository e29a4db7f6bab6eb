"""The sending end of a memory or durable exchange: a log, and the connection that reads from it."""

from __future__ import annotations

import socket

import pyarrow as pa

from snapshot_engine.channels.frames import Element, encode, encode_batch
from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.sockets import SocketOutbound
from snapshot_engine.protocol.exchange_log import ChannelLog, LogReader, SendControl, SendRecords
from snapshot_engine.runtime.exchanges.log_storage import DiskStorage, MemoryStorage, Payload

AT_ONCE_BYTES = 1 << 18
AT_ONCE_BUFFERS = 64


class LogOutbound:
    """Always has room: a full log pauses its region's sources, not those who bring the barrier that empties it."""

    def __init__(
        self,
        log: ChannelLog,
        storage: MemoryStorage | DiskStorage,
        poller: Poller,
    ) -> None:
        self.log = log
        self.channel = log.channel
        self._storage = storage
        self._poller = poller
        self._reader: LogReader | None = None
        self._connection: SocketOutbound | None = None
        self._consumer_attempt: tuple[int, int] = (0, 0)

    def has_room(self) -> bool:
        return True

    def send(self, element: Element) -> None:
        if isinstance(element, pa.RecordBatch):
            buffer = element.serialize()
            self.log.append_records(element.num_rows, buffer.size, self._storage.put(buffer))
        else:
            self.log.append_control(element)
        self.pump()

    def attach(self, connection: socket.socket, consumer_attempt: tuple[int, int], position: int, settled: int) -> bool:
        """A consumer wants to read from record `position` on; barriers up to `settled` are over for it.

        An older attempt of the consumer than one that was here before is refused.
        """
        if consumer_attempt < self._consumer_attempt:
            return False
        self.detach()
        self._consumer_attempt = consumer_attempt
        self._reader = self.log.attach(position, self.log.barriers_after(settled))
        self._connection = SocketOutbound(self.channel, self._poller, on_room=self.pump, on_lost=self.detach)
        self._connection.attach(connection)
        self.pump()
        return True

    def consumer_finished(self, consumer_attempt: tuple[int, int] | None = None) -> None:
        """Nothing is kept any more, on the word of the driver or of a consumer that is not older than one that was
        here before.
        """
        if consumer_attempt is None or consumer_attempt >= self._consumer_attempt:
            self.detach()
            self.log.consumer_finished()

    def detach(self) -> None:
        """The consumer is away: what it has not read is kept."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()
        self._reader = None
        self.log.detach()

    def pump(self) -> None:
        """Send what the connection takes, many small entries at once."""
        while self._connection is not None and self._reader is not None and self._connection.has_room():
            buffers: list[memoryview] = []
            size = 0
            while size < AT_ONCE_BYTES and len(buffers) < AT_ONCE_BUFFERS:
                sending = self._reader.next_send()
                if sending is None:
                    break
                buffers += self._buffers(sending)
                size += len(buffers[-1])
            if not buffers:
                return
            self._connection.send_buffers(buffers)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _buffers(self, sending: SendRecords | SendControl) -> list[memoryview]:
        if isinstance(sending, SendControl):
            return encode(sending.element, 0)
        payload: Payload = sending.payload  # type: ignore[assignment]
        # Whole, under its own number: the receiver leaves out what it has.
        return encode_batch(payload.read(), sending.first - sending.skip)
