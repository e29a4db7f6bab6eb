"""Two ends of a channel in one process, over real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import pyarrow as pa
import pytest

from snapshot_engine.channels import dialing
from snapshot_engine.channels.dialing import Greeting, Listener, SlotAddress, dial
from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.channels.sockets import SocketInbound, SocketOutbound
from snapshot_engine.protocol.elements import Barrier, ChannelId, EndOfInput, Idle, RoundEnd, Watermark

CHANNEL = ChannelId(3, 0, 1)
KEY = b"the job's secret"
SCHEMA = pa.schema({"n": pa.int64(), "city": pa.string()})


def batch(rows: int) -> pa.RecordBatch:
    return pa.record_batch({"n": list(range(rows)), "city": ["Köln"] * rows}, schema=SCHEMA)


class Pair:
    """A producer that listens and a consumer that dials it."""

    def __init__(self, poller: Poller, address: str, limit: int = 1 << 20) -> None:
        self.poller = poller
        self.outbound = SocketOutbound(CHANNEL, poller, limit)
        self.listener = Listener(poller, KEY, "127.0.0.1", self.let_in)
        self.queue = InboundQueue(CHANNEL, 0, limit)
        self.lost: list[ChannelId] = []
        self.why = ""
        self.refuse = False
        here = self.listener.address
        self.address = here if address == "unix" else SlotAddress("elsewhere", here.unix, here.host, here.port)

    def let_in(self, greeting: Greeting, connection: socket.socket) -> bool:
        if self.refuse or greeting.channel != CHANNEL:
            return False
        self.outbound.attach(connection)
        return True

    def connect(self, key: bytes = KEY) -> None:
        said = Greeting(CHANNEL, (1, 1), (1, 1)).signed(key)
        self.inbound = SocketInbound(self.queue, dial(self.address), SCHEMA, self.poller, self.lose, said)

    def lose(self, channel: ChannelId, why: str) -> None:
        self.lost.append(channel)
        self.why = why

    def pump(self, rounds: int = 50) -> None:
        for _ in range(rounds):
            self.poller.poll(0.001)

    def received(self) -> list[object]:
        return [self.queue.take() for _ in range(len(self.queue.elements))]


@pytest.fixture(params=["unix", "tcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    poller = Poller()
    made = Pair(poller, request.param)
    yield made
    made.listener.close()
    made.outbound.close()
    poller.close()


def test_elements_arrive_whole_and_in_order(pair: Pair) -> None:
    sent = [batch(5), Watermark(7), batch(0), Barrier(9, 1.5), Idle(), RoundEnd(3), batch(1000), EndOfInput()]
    pair.connect()
    for element in sent:
        pair.outbound.send(element)
    pair.pump()
    received = pair.received()
    assert len(received) == len(sent)
    for got, wanted in zip(received, sent, strict=True):
        assert got.equals(wanted) if isinstance(wanted, pa.RecordBatch) else got == wanted


def test_what_was_sent_before_the_consumer_came_is_kept(pair: Pair) -> None:
    pair.outbound.send(batch(3))
    pair.outbound.send(Watermark(1))
    pair.connect()
    pair.pump()
    assert len(pair.received()) == 2


def test_a_consumer_that_does_not_read_stops_the_producer(pair: Pair) -> None:
    pair.connect()
    sent = 0
    while pair.outbound.has_room() and sent < 10_000:
        pair.outbound.send(batch(1000))
        pair.poller.poll(0)
        sent += 1
    assert sent < 10_000, "a channel without a reader must not take rows for ever"
    taken = 0
    while taken < sent:
        pair.pump(5)
        taken += len(pair.received())
    assert pair.outbound.has_room()


def test_a_consumer_without_the_key_is_hung_up_on(pair: Pair) -> None:
    pair.connect(key=b"another secret")
    pair.outbound.send(batch(1))
    pair.pump()
    assert not pair.outbound.connected
    assert pair.lost == [CHANNEL]


def test_a_consumer_of_another_attempt_is_hung_up_on(pair: Pair) -> None:
    pair.refuse = True
    pair.connect()
    pair.pump()
    assert pair.lost == [CHANNEL]


def test_a_producer_that_is_gone_is_noticed(pair: Pair) -> None:
    pair.connect()
    pair.outbound.send(batch(1))
    pair.pump()
    pair.outbound.close()
    pair.pump()
    assert pair.lost == [CHANNEL]
    assert len(pair.received()) == 1


def test_a_consumer_that_is_gone_leaves_the_producer_without_room_in_the_end(pair: Pair) -> None:
    pair.connect()
    pair.pump()
    pair.inbound.close()
    pair.pump()
    assert not pair.outbound.connected
    for _ in range(200):
        pair.outbound.send(batch(1000))
    assert not pair.outbound.has_room()


@pytest.fixture
def tcp() -> Iterator[Pair]:
    poller = Poller()
    made = Pair(poller, "tcp")
    yield made
    made.listener.close()
    made.inbound.close()
    poller.close()


@pytest.fixture
def deaf(tcp: Pair, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """The producer's host answers nobody: its queue of callers is full."""
    monkeypatch.setattr(dialing, "SYN_RETRIES", 1)
    server = socket.create_server(("127.0.0.1", 0), backlog=0)
    tcp.address = SlotAddress("elsewhere", "", *server.getsockname())
    callers = [dial(tcp.address) for _ in range(3)]
    yield tcp
    for each in (server, *callers):
        each.close()


def test_a_producer_whose_host_does_not_answer_holds_up_nobody_and_is_given_up_after_a_while(deaf: Pair) -> None:
    """In the same loop are the heartbeats, the barriers and all other channels of the slot."""
    began = time.monotonic()
    deaf.connect()
    deaf.pump(rounds=1)
    assert time.monotonic() - began < 0.5
    assert deaf.lost == []
    while not deaf.lost and time.monotonic() - began < 30.0:
        deaf.pump(rounds=1)
    assert (deaf.lost, deaf.why) == ([CHANNEL], "it cannot be reached: [Errno 110] Connection timed out")


def test_a_producer_whose_host_refuses_is_lost_with_the_reason(tcp: Pair) -> None:
    tcp.listener.close()
    tcp.connect()
    tcp.pump(rounds=5)
    assert (tcp.lost, tcp.why) == ([CHANNEL], "it cannot be reached: [Errno 111] Connection refused")


def test_a_producer_that_is_gone_does_not_keep_a_consumer_busy_that_has_no_room(pair: Pair) -> None:
    """It waits for its own consumers, and would look again and again at what it cannot take."""
    pair.connect()
    while not pair.queue.full:
        pair.outbound.send(batch(1000))
        pair.poller.poll(0)
    while pair.poller.poll(0):
        pass
    pair.outbound.close()
    pair.pump(3)
    assert not pair.poller.poll(0.01)
    while not pair.lost:
        pair.received()
        assert pair.poller.poll(1.0)
