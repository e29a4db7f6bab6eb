"""The JobMaster's side of its connections to slots. A closed connection is a failure at once.

So is one whose other end is out of reach. A machine acknowledges what it is sent however busy its processes are: where
that fails, its node or the network is gone, and nobody need wait until heartbeats have been missing for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import socket
import time
from collections.abc import Callable
from typing import Protocol

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.messages import LENGTH, MAX_MESSAGE, BadMessage, Hello, Message, pack, proof_of, unpack

log = logging.getLogger(__name__)

HELLO_SECONDS = 10.0
CLOSED = "closed its connection"
UNREACHABLE = "cannot be reached: its node, or the network on the way there, is gone"


class SlotConnection:
    """One slot of one attempt, as the JobMaster sees it."""

    def __init__(self, hello: Hello, writer: asyncio.StreamWriter) -> None:
        self.hello = hello
        self.attempt = Attempt(hello.generation, hello.attempt)
        self.last_heard = time.monotonic()
        self.end = CLOSED
        """What is to be said of it once it is gone."""
        self._writer = writer

    @property
    def region(self) -> int:
        return self.hello.region

    @property
    def slot(self) -> int:
        return self.hello.slot

    def send(self, message: Message) -> None:
        """Queue a message; a slot that is gone is noticed by its closed connection, not here."""
        if not self._writer.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                self._writer.write(pack(message))

    def hang_up(self) -> None:
        """The slot ends itself when it finds the connection closed."""
        self._writer.close()

    def __str__(self) -> str:
        return f"slot {self.slot} of region {self.region}, attempt {self.attempt}"


class SlotListener(Protocol):
    """Who is told what slots say. All calls come from the event loop, in order per connection."""

    def slot_arrived(self, connection: SlotConnection) -> bool:
        """Whether the slot belongs to a current attempt; if not it is hung up on."""
        ...

    def slot_said(self, connection: SlotConnection, message: Message) -> None: ...

    def slot_gone(self, connection: SlotConnection) -> None: ...

    def broke_down(self, what: str, error: Exception) -> None:
        """One of the calls above raised: nobody else would hear of it."""
        ...


class ControlServer:
    def __init__(self, secret: bytes, listener: SlotListener, out_of_reach: float) -> None:
        """What a slot's machine does not acknowledge for `out_of_reach` seconds will never arrive."""
        self._secret = secret
        self._out_of_reach = out_of_reach
        self._listener = listener
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int = 0) -> None:
        self._server = await asyncio.start_server(self._serve, host, port, limit=MAX_MESSAGE)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection: SlotConnection | None = None
        milliseconds = round(1000 * self._out_of_reach)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        try:
            connection = await self._greet(reader, writer)
            if connection is not None and self._tell(self._listener.slot_arrived, connection):
                await self._listen(connection, reader)
        except (asyncio.IncompleteReadError, BadMessage, OSError) as error:
            if not isinstance(error, asyncio.IncompleteReadError):
                log.debug("control connection ended: %s", error)
            if connection is not None and isinstance(error, OSError) and not isinstance(error, ConnectionError):
                connection.end = UNREACHABLE
        finally:
            writer.close()
            if connection is not None:
                self._tell(self._listener.slot_gone, connection)

    def _tell(self, call: Callable[..., bool | None], *what: object) -> bool | None:
        """What the listener raises is no fault of the connection, whatever its type: a restart may hang on it."""
        try:
            return call(*what)
        except Exception as error:
            self._listener.broke_down("talk with its slots", error)
            return None

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> SlotConnection | None:
        hello = await asyncio.wait_for(_read(reader), HELLO_SECONDS)
        if not isinstance(hello, Hello):
            return None
        expected = proof_of(self._secret, hello.region, hello.generation, hello.attempt, hello.slot)
        if not hmac.compare_digest(expected, hello.proof):
            log.warning("a connection from %s did not know the job's secret", writer.get_extra_info("peername"))
            return None
        return SlotConnection(hello, writer)

    async def _listen(self, connection: SlotConnection, reader: asyncio.StreamReader) -> None:
        while True:
            message = await _read(reader)
            connection.last_heard = time.monotonic()
            self._tell(self._listener.slot_said, connection, message)


async def _read(reader: asyncio.StreamReader) -> Message:
    (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if length > MAX_MESSAGE:
        raise BadMessage(f"a message of {length} bytes")
    return unpack(await reader.readexactly(length))
