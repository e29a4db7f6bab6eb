"""The receiving end of a channel: elements come out in order, whole or in parts, and its room is counted exactly."""

import pyarrow as pa

from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.protocol.elements import Barrier, ChannelId


def rows(*values: str) -> pa.RecordBatch:
    return pa.record_batch({"text": list(values)})


def test_a_batch_that_is_taken_in_parts_keeps_its_order_and_its_place():
    queue = InboundQueue(ChannelId(0, 0, 0), 0)
    queue.put(rows("a", "b", "c", "d", "e"))
    queue.put(Barrier(1, 0.0))
    parts = [queue.take_slice(2) for _ in range(3)]
    assert [part.to_pydict()["text"] for part in parts] == [["a", "b"], ["c", "d"], ["e"]]
    assert queue.rows_taken == 5
    assert queue.bytes == 0
    assert queue.take_slice(2) == Barrier(1, 0.0)


def test_room_is_told_once_when_a_part_makes_it():
    queue = InboundQueue(ChannelId(0, 0, 0), 0, limit=100)
    told = []
    queue.on_room = lambda: told.append(queue.bytes)
    queue.put(rows(*["x" * 40] * 4))
    assert queue.full
    while queue.elements:
        queue.take_slice(1)
    assert len(told) == 1 and told[0] < 100
