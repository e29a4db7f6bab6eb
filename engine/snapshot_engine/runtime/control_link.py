"""The slot's side of its connection to the JobMaster: non-blocking, in the slot's own loop.

The loop being alive is what the heartbeat means, so nothing here has a thread of its own.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable

from snapshot_engine.channels.poller import Poller
from snapshot_engine.runtime.messages import LENGTH, Message, pack, unpack


class ControlLink:
    """Calls `on_message` for each message, and `on_lost` once when the JobMaster is gone."""

    def __init__(
        self,
        address: tuple[str, int],
        poller: Poller,
        on_message: Callable[[Message], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._socket = socket.create_connection(address, timeout=10.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._poller = poller
        self._on_message = on_message
        self._on_lost = on_lost
        self._received = bytearray()
        self._to_send: deque[memoryview] = deque()
        self._closed = False
        poller.register(self._socket.fileno(), self._read, self._flush)

    @property
    def local_host(self) -> str:
        """The address of this machine as seen on the way to the JobMaster: where other slots can reach this one."""
        return str(self._socket.getsockname()[0])

    def send(self, message: Message) -> None:
        self._to_send.append(memoryview(pack(message)))
        self._flush()

    def drain(self, timeout: float) -> None:
        """Get the last words out before the slot ends."""
        if not self._closed:
            self._socket.settimeout(timeout)
            try:
                while self._to_send:
                    self._socket.sendall(self._to_send.popleft())
            except OSError:
                pass

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._poller.unregister(self._socket.fileno())
            self._socket.close()

    def _flush(self) -> None:
        if self._closed:
            return
        try:
            while self._to_send:
                first = self._to_send[0]
                count = self._socket.send(first)
                if count == len(first):
                    self._to_send.popleft()
                else:
                    self._to_send[0] = first[count:]
        except BlockingIOError:
            pass
        except OSError:
            self._lose()
            return
        self._poller.want_write(self._socket.fileno(), bool(self._to_send))

    def _read(self) -> None:
        try:
            data = self._socket.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        self._received += data
        self._deliver()

    def _deliver(self) -> None:
        while len(self._received) >= LENGTH.size:
            (length,) = LENGTH.unpack_from(self._received)
            end = LENGTH.size + length
            if len(self._received) < end:
                return
            body = bytes(self._received[LENGTH.size : end])
            del self._received[:end]
            self._on_message(unpack(body))

    def _lose(self) -> None:
        self.close()
        self._on_lost()
