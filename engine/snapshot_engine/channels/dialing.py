"""How a consumer's slot finds and is let in by a producer's slot.

The consumer proves that it knows the job's channel key and says which channel and which attempts it means; the producer
refuses what is not of its own attempt. The consumer waits for no answer, so two slots that dial each other cannot
wait for each other. Nor does it wait for the connection: a host that does not answer would hold up all else in the
consumer's slot.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import ormsgpack

from snapshot_engine.channels.poller import Poller
from snapshot_engine.protocol.elements import ChannelId

_LENGTH = struct.Struct("<I")
_MAX_GREETING = 1 << 16
_SOCKET_BUFFER = 1 << 20
_LOCAL_SECONDS = 5.0
"""A slot of the same machine whose queue of callers is full lets in nobody for so long."""
SYN_RETRIES = 2
"""A host that does not answer is given up after some seconds: the waits for the first answers are 1, 2 and 4 s."""


@dataclass(frozen=True)
class SlotAddress:
    """Where a slot listens: an abstract Unix socket for slots in the same network namespace, TCP for all others."""

    namespace: str
    unix: str
    host: str
    port: int


@dataclass(frozen=True)
class Greeting:
    """What a consumer says first."""

    channel: ChannelId
    producer_attempt: tuple[int, int]
    consumer_attempt: tuple[int, int]
    position: int = 0
    """To a log: the number of the next record that the consumer wants; negative if it needs nothing any more."""
    settled: int = 0
    """To a log: barriers up to this checkpoint are over for the consumer."""

    def signed(self, key: bytes) -> bytes:
        """As it is sent."""
        attempts = (*self.producer_attempt, *self.consumer_attempt)
        body = ormsgpack.packb([*self.channel, *attempts, self.position, self.settled])
        signature = hmac.digest(key, body, hashlib.sha256)
        return _LENGTH.pack(len(signature) + len(body)) + signature + body

    @classmethod
    def verified(cls, data: bytes, key: bytes) -> Greeting | None:
        """The greeting, or None if it was not made with `key`."""
        signature, body = data[:32], data[32:]
        if not hmac.compare_digest(signature, hmac.digest(key, body, hashlib.sha256)):
            return None
        values = ormsgpack.unpackb(body)
        return cls(ChannelId(*values[:3]), (values[3], values[4]), (values[5], values[6]), *values[7:])


def network_namespace() -> str:
    """Equal for two processes exactly if they can reach each other's abstract Unix sockets."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot}:{Path('/proc/self/ns/net').stat().st_ino}"


def dial(address: SlotAddress) -> socket.socket:
    """A non-blocking connection to a slot. It may take seconds to be made, or not to be: `SocketInbound` looks."""
    if address.namespace == network_namespace():
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(_LOCAL_SECONDS)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
        connection.connect(address.unix)
        connection.setblocking(False)
        return connection
    connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_SYNCNT, SYN_RETRIES)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SOCKET_BUFFER)
    with contextlib.suppress(BlockingIOError):
        connection.connect((address.host, address.port))
    return connection


class Listener:
    """Accepts consumers and hands each that proves itself to `on_consumer`; the others are hung up on."""

    def __init__(
        self, poller: Poller, key: bytes, host: str, on_consumer: Callable[[Greeting, socket.socket], bool]
    ) -> None:
        self._poller = poller
        self._key = key
        self._on_consumer = on_consumer
        self._waiting: dict[int, tuple[socket.socket, bytearray]] = {}
        self._unix = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._unix.bind("\0streamingjob-" + os.urandom(12).hex())
        self._tcp = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._tcp.bind((host, 0))
        for server in (self._unix, self._tcp):
            server.setblocking(False)
            server.listen(1024)
            poller.register(server.fileno(), partial(self._accept, server))
        name = self._unix.getsockname()
        self.address = SlotAddress(
            network_namespace(),
            name.decode() if isinstance(name, bytes) else name,
            host,
            self._tcp.getsockname()[1],
        )

    def close(self) -> None:
        for connection, _ in list(self._waiting.values()):
            self._hang_up(connection)
        for server in (self._unix, self._tcp):
            self._poller.unregister(server.fileno())
            server.close()

    def _accept(self, server: socket.socket) -> None:
        try:
            while True:
                connection, _ = server.accept()
                connection.setblocking(False)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BUFFER)
                self._waiting[connection.fileno()] = (connection, bytearray())
                self._poller.register(connection.fileno(), partial(self._greet, connection))
        except BlockingIOError:
            pass

    def _greet(self, connection: socket.socket) -> None:
        _, received = self._waiting[connection.fileno()]
        try:
            data = connection.recv(_MAX_GREETING)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        received += data
        if not data or len(received) > _MAX_GREETING:
            self._hang_up(connection)
            return
        if len(received) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack_from(received)
        if len(received) < _LENGTH.size + length:
            return
        greeting = Greeting.verified(bytes(received[_LENGTH.size :]), self._key)
        self._poller.unregister(connection.fileno())
        del self._waiting[connection.fileno()]
        if greeting is None or not self._on_consumer(greeting, connection):
            connection.close()

    def _hang_up(self, connection: socket.socket) -> None:
        self._waiting.pop(connection.fileno(), None)
        self._poller.unregister(connection.fileno())
        connection.close()
