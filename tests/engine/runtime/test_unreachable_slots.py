"""A slot whose machine is cut off is noticed by what the network does not acknowledge, long before its heartbeats are
missed.

The test has a network of its own, whose only link it can take down.
"""

from __future__ import annotations

import asyncio
import fcntl
import shutil
import socket
import struct
import subprocess
import sys
import time

import pytest

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.control_server import ControlServer, SlotConnection
from snapshot_engine.runtime.messages import Hello, Message, Ping, pack, proof_of
from snapshot_engine.runtime.slot_watch import out_of_reach

SECRET = b"secret"
OUT_OF_REACH = 0.5


def test_a_hung_slot_gets_more_patience_than_a_machine_that_cannot_be_reached() -> None:
    assert [out_of_reach(timeout) for timeout in (1.0, 5.0, 60.0)] == [0.5, 0.5, 6.0]


def in_a_network_of_its_own(*arguments: str) -> subprocess.CompletedProcess[str]:
    unshare = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*unshare, "true"], check=False).returncode != 0:
        pytest.skip("this machine allows no network namespaces, so there is no link that a test may take down")
    command = [*unshare, sys.executable, __file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_slot_that_is_cut_off_is_gone() -> None:
    done = in_a_network_of_its_own("cut")
    assert done.returncode == 0, done.stderr
    assert "cannot be reached" in done.stdout


def test_a_slot_that_does_not_read_is_not_taken_for_one_that_is_cut_off() -> None:
    done = in_a_network_of_its_own("hang")
    assert (done.returncode, done.stdout.strip()) == (0, "still there"), done.stderr


# What runs in the network of its own.


class Listener:
    def __init__(self) -> None:
        self.arrived: asyncio.Queue[SlotConnection] = asyncio.Queue()
        self.gone = asyncio.Event()

    def slot_arrived(self, connection: SlotConnection) -> bool:
        self.arrived.put_nowait(connection)
        return True

    def slot_said(self, connection: SlotConnection, message: Message) -> None: ...

    def slot_gone(self, connection: SlotConnection) -> None:
        self.gone.set()

    def broke_down(self, what: str, error: Exception) -> None:
        raise error


def set_link(up: bool) -> None:
    """The loopback interface's flags: SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        name, flags = struct.unpack("16sh", fcntl.ioctl(any_socket, 0x8913, struct.pack("16sh", b"lo", 0)))
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", name, flags | 1 if up else flags & ~1))


def hello() -> Hello:
    attempt = Attempt(1, 1)
    return Hello(0, *attempt, 0, "1", None, "host", 1, [], proof_of(SECRET, 0, *attempt, 0))


async def talk(cut: bool) -> None:
    listener = Listener()
    server = ControlServer(SECRET, listener, OUT_OF_REACH)
    await server.start("127.0.0.1")
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1)
    writer.write(pack(hello()))
    connection = await listener.arrived.get()
    for _ in range(4):  # the connection is well before anything happens
        connection.send(Ping())
        await asyncio.sleep(0.1)
    if cut:
        set_link(False)
    began = time.monotonic()
    patience = 20 if cut else 4 * OUT_OF_REACH
    while not listener.gone.is_set() and time.monotonic() < began + patience:
        connection.send(Ping())
        await asyncio.sleep(0.1)
    print(connection.end if listener.gone.is_set() else "still there")


if __name__ == "__main__":
    set_link(True)
    asyncio.run(talk(cut=sys.argv[1] == "cut"))
