"""What comes out of a numbered channel: each record once, crumbs put together, barriers where they were."""

from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot_engine.protocol.elements import Barrier, ChannelId, EndOfInput, Idle, Watermark
from snapshot_engine.protocol.exchange_receiver import GapError
from snapshot_engine.runtime.exchanges import log_reading
from snapshot_engine.runtime.exchanges.log_reading import NumberedQueue


def rows(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(numbers, pa.int64())})


def filled(*elements: object, expected: int = 0, **options: bool) -> NumberedQueue:
    """A queue that has received these; the rows are their own numbers."""
    queue = NumberedQueue(ChannelId(0, 0, 0), 0, expected, **options)
    for element in elements:
        queue.receive(element, element["n"][0].as_py() if isinstance(element, pa.RecordBatch) else 0)
    return queue


def taken(queue: NumberedQueue) -> list[object]:
    found: list[object] = []
    while queue.elements:
        element = queue.take()
        found.append(element["n"].to_pylist() if isinstance(element, pa.RecordBatch) else element)
    return found


def test_crumbs_that_wait_are_put_together() -> None:
    queue = filled(rows(0), rows(1, 2), rows(3))
    assert taken(queue) == [[0, 1, 2, 3]]
    assert queue.bytes == 0
    assert queue.position(1) == 4


def test_rows_pass_watermarks_of_which_the_last_is_left() -> None:
    queue = filled(rows(0), Watermark(5), rows(1), Watermark(6), rows(2), Watermark(7), EndOfInput())
    assert taken(queue) == [[0, 1, 2], Watermark(7), EndOfInput()]


@pytest.mark.parametrize("wall", [Barrier(3, 0.0), Idle(), EndOfInput()])
def test_rows_pass_nothing_else(wall: object) -> None:
    queue = filled(rows(0), Watermark(5), wall, rows(1), rows(2))
    assert taken(queue) == [[0], Watermark(5), wall, [1, 2]]


def test_the_position_at_a_barrier_is_that_of_the_rows_before_it() -> None:
    queue = filled(rows(0), Watermark(1), rows(1), Barrier(3, 0.0), rows(2), rows(3))
    assert queue.take()["n"].to_pylist() == [0, 1]
    queue.take()
    assert queue.take() == Barrier(3, 0.0)
    queue.barrier(3)
    queue.take()
    assert (queue.position(3), queue.position(4)) == (2, 4)


def test_no_more_than_enough_rows_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "ENOUGH_ROWS", 3)
    queue = filled(rows(0, 1), rows(2), rows(3, 4, 5, 6), rows(7))
    assert taken(queue) == [[0, 1, 2], [3, 4, 5, 6], [7]]


def test_a_deterministic_consumer_gets_watermarks_where_they_were() -> None:
    queue = filled(rows(0), Watermark(5), rows(1), rows(2), in_batches_as_sent=True)
    assert taken(queue) == [[0], Watermark(5), [1], [2]]


def test_what_was_seen_before_is_left_out_and_what_is_missing_is_an_error() -> None:
    queue = filled(rows(0, 1), rows(2, 3, 4), expected=3)
    assert taken(queue) == [[3, 4]]
    with pytest.raises(GapError):
        queue.receive(rows(9), 9)


def test_a_slice_counts_as_processed_and_the_rest_stays_in_front() -> None:
    queue = filled(rows(0, 1, 2, 3, 4), Barrier(3, 0.0))
    assert queue.take_slice(2)["n"].to_pylist() == [0, 1]
    assert queue.position(3) == 2
    assert queue.take_slice(2)["n"].to_pylist() == [2, 3]
    assert queue.take_slice(2)["n"].to_pylist() == [4]
    assert queue.take_slice(2) == Barrier(3, 0.0)
    assert (queue.position(3), queue.bytes, queue.rows_taken) == (5, 0, 5)


def test_no_more_is_put_together_than_the_slice_may_have() -> None:
    queue = filled(rows(0), rows(1), rows(2), rows(3))
    assert queue.take_slice(2)["n"].to_pylist() == [0, 1]
    assert queue.take_slice(9)["n"].to_pylist() == [2, 3]


def test_the_position_at_a_barrier_is_known_however_many_come_before_the_snapshot() -> None:
    """At-least-once: a fast channel brings those of all 64 checkpoints that may be under way, and savepoints'."""
    many = 100
    queue = filled(*(element for n in range(many) for element in (rows(n), Barrier(n + 1, 0.0))))
    for n in range(many):
        queue.take()
        queue.take()
        queue.barrier(n + 1)
    assert [queue.position(n + 1) for n in range(many)] == [n + 1 for n in range(many)]
