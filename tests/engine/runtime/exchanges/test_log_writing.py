"""A log and its consumer over a real socket: a replay, then what comes, and who may read."""

from __future__ import annotations

import socket

import pyarrow as pa

from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.sockets import SocketInbound
from snapshot_engine.protocol.elements import Barrier, ChannelId, EndOfInput, Watermark
from snapshot_engine.protocol.exchange_log import ChannelLog
from snapshot_engine.runtime.exchanges.log_reading import NumberedQueue
from snapshot_engine.runtime.exchanges.log_storage import MemoryStorage
from snapshot_engine.runtime.exchanges.log_writing import LogOutbound

CHANNEL = ChannelId(0, 0, 0)
SCHEMA = pa.schema([("n", pa.int64())])


def rows(first: int, count: int = 1) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(first, first + count), pa.int64())})


class Ends:
    """A log in one poller with its consumer's queue."""

    def __init__(self) -> None:
        self.poller = Poller()
        self.log = ChannelLog(CHANNEL, True, 1 << 20, 1 << 21)
        self.outbound = LogOutbound(self.log, MemoryStorage(), self.poller)
        self.lost: list[ChannelId] = []

    def dial(self, position: int = 0, attempt: int = 1, settled: int = 0) -> NumberedQueue | None:
        here, there = socket.socketpair()
        for each in (here, there):
            each.setblocking(False)
        queue = NumberedQueue(CHANNEL, 0, position)
        if not self.outbound.attach(here, (1, attempt), position, settled):
            return None
        SocketInbound(queue, there, SCHEMA, self.poller, lambda lost, _: self.lost.append(lost))
        return queue

    def read(self, queue: NumberedQueue) -> list[object]:
        found: list[object] = []
        while self.poller.poll(0.05) or queue.elements:
            while queue.elements:
                element = queue.take()
                found += element["n"].to_pylist() if isinstance(element, pa.RecordBatch) else [element]
        return found


def test_a_replay_of_many_crumbs_is_followed_by_what_comes() -> None:
    ends = Ends()
    for number in range(500):
        ends.outbound.send(rows(number))
    queue = ends.dial()
    assert queue is not None
    assert ends.read(queue) == list(range(500))
    ends.outbound.send(rows(500, 3))
    ends.outbound.send(Watermark(7))
    ends.outbound.send(EndOfInput())
    assert ends.read(queue) == [500, 501, 502, Watermark(7), EndOfInput()]


def test_a_consumer_that_dials_late_gets_the_barrier_that_was_sent_before_it_came() -> None:
    ends = Ends()
    ends.outbound.send(Barrier(3, 0.0))
    ends.outbound.send(rows(0, 2))
    ends.outbound.send(EndOfInput())
    queue = ends.dial(settled=2)
    assert queue is not None
    assert ends.read(queue) == [Barrier(3, 0.0), 0, 1, EndOfInput()]


def test_an_older_attempt_of_the_consumer_neither_reads_nor_ends_the_log() -> None:
    ends = Ends()
    queue = ends.dial(attempt=2)
    assert ends.dial(attempt=1) is None
    ends.outbound.consumer_finished((1, 1))
    ends.outbound.send(rows(0))
    assert queue is not None
    assert ends.read(queue) == [0]
    assert ends.log.is_whole_for(0)
