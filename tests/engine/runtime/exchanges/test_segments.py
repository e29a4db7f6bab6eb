"""Both ends of a stored exchange, without slots: what is sealed is read, in order, each record once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from snapshot_engine.protocol.committed_exchange import SegmentPosition, SegmentReader, SegmentWriter
from snapshot_engine.protocol.elements import Attempt, Barrier, ChannelId, EndOfInput, Idle, Watermark
from snapshot_engine.runtime.exchanges import segment_parts
from snapshot_engine.runtime.exchanges.segment_parts import from_table, to_table
from snapshot_engine.runtime.exchanges.segment_reading import Fetched, SegmentQueue, Stream
from snapshot_engine.runtime.exchanges.segment_writing import SegmentOutbound, WrittenSnapshot
from snapshot_engine.runtime.exchanges.stored_segments import ReadState, StreamId, StreamPosition, WrittenState
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.pieces import PieceReader, PieceWriter

SCHEMA = pa.schema([("n", pa.int64())])
CHANNEL = ChannelId(0, 0, 0)
STREAM = StreamId(0, 0, 0)


def batch(*values: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


def flat(elements) -> list[object]:
    """Rows as numbers, control elements as themselves."""
    found: list[object] = []
    for element in elements:
        found += element.column("n").to_pylist() if isinstance(element, pa.RecordBatch) else [element]
    return found


def test_a_part_holds_rows_and_event_times_in_their_order() -> None:
    elements = [Watermark(1), Watermark(2), batch(1, 2), Idle(), batch(3), Watermark(9), Idle()]
    table = to_table(elements, SCHEMA)
    assert flat(from_table(table, SCHEMA)) == [Watermark(2), 1, 2, Idle(), 3, Watermark(9), Idle()]


def test_crumbs_come_back_as_one_batch_with_the_last_of_their_watermarks() -> None:
    elements = [part for n in range(50) for part in (batch(n), Watermark(n))]
    read = list(from_table(to_table([*elements, Idle(), batch(50), Watermark(50)], SCHEMA), SCHEMA))
    assert read == [batch(*range(50)), Watermark(49), Idle(), batch(50), Watermark(50)]


def test_watermarks_with_many_rows_between_them_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_parts, "ENOUGH_ROWS", 4)
    elements = [part for n in range(10) for part in (batch(n), Watermark(n))]
    said = [each for each in from_table(to_table(elements, SCHEMA), SCHEMA) if isinstance(each, Watermark)]
    assert said == [Watermark(3), Watermark(7), Watermark(9)]


class Storage:
    """A writer's and a reader's view of one folder."""

    def __init__(self, folder: Path) -> None:
        blobs, where = LocalBlobs(str(folder)), Layout("test", "job")
        self.writer = PieceWriter(blobs, where, checkpoint=1, vertex="v", subtask=0, attempt=Attempt(1, 1))
        self.reader = PieceReader(blobs, where)

    def sealed(self, outbound: SegmentOutbound):
        snapshot = WrittenSnapshot("e/written", 0, {0: outbound.next_number}, outbound.named())
        return WrittenState.from_state(snapshot.write(self.writer), 0, 0).sealed

    def fetch(self, queue: SegmentQueue, wanted: Fetched) -> None:
        tables = [self.reader.read_table(handle) for handle in wanted.segment.payload]
        wanted.elements = [element for table in tables for element in from_table(table, SCHEMA)]


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


def outbound() -> SegmentOutbound:
    return SegmentOutbound(SegmentWriter(CHANNEL), 0, SCHEMA, lambda part: None)


def reading(storage: Storage, position: SegmentPosition | None = None, **stream) -> SegmentQueue:
    reader = SegmentReader(CHANNEL, position or SegmentPosition())
    return SegmentQueue(CHANNEL, 0, [Stream(STREAM, reader, **stream)], storage.fetch)


def drain(queue: SegmentQueue) -> list[object]:
    queue.advance()
    found = []
    while queue.elements:
        element = queue.take()
        if element is not None:
            found.append(element)
    return flat(found)


def test_what_is_sealed_at_barriers_is_read_in_order_to_its_end(storage: Storage) -> None:
    writing = outbound()
    writing.send(batch(1, 2))
    writing.send(Watermark(5))
    writing.seal(1)
    writing.send(Barrier(1, 0.0))
    writing.send(batch(3))
    writing.seal(2)
    writing.send(EndOfInput())
    queue = reading(storage)
    queue.publish(storage.sealed(writing))
    assert drain(queue) == [1, 2, Watermark(5), 3, EndOfInput()]


def test_a_reader_goes_on_behind_its_position_inside_a_batch(storage: Storage) -> None:
    writing = outbound()
    writing.send(batch(1, 2, 3))
    writing.send(Watermark(5))
    writing.send(batch(4))
    writing.seal(1)
    queue = reading(storage, SegmentPosition(0, 2))
    queue.publish(storage.sealed(writing))
    assert drain(queue) == [3, Watermark(5), 4]
    assert queue.positions() == [StreamPosition(STREAM, SegmentPosition(1, 0))]


def test_the_position_counts_what_was_taken_and_not_what_was_fetched(storage: Storage) -> None:
    writing = outbound()
    writing.send(batch(1, 2))
    writing.send(Watermark(3))
    writing.send(batch(4))
    writing.seal(1)
    queue = reading(storage)
    queue.publish(storage.sealed(writing))
    queue.take()
    assert queue.positions() == [StreamPosition(STREAM, SegmentPosition(0, 2))]


def test_the_position_counts_slices_and_what_is_left_out_of_them(storage: Storage) -> None:
    writing = outbound()
    writing.send(batch(1, 2, 3, 4, 5))
    writing.seal(1)
    queue = reading(storage, keep=lambda rows: rows.filter(pc.equal(rows.column(0), 4)) or None)
    queue.publish(storage.sealed(writing))
    assert queue.take_slice(2) is None
    assert queue.positions() == [StreamPosition(STREAM, SegmentPosition(0, 2))]
    assert flat([queue.take_slice(2)]) == [4]
    assert queue.positions() == [StreamPosition(STREAM, SegmentPosition(0, 4))]
    assert drain(queue) == []
    assert queue.positions() == [StreamPosition(STREAM, SegmentPosition(1, 0))]


def test_what_an_aborted_checkpoint_had_sealed_is_named_by_the_next(storage: Storage) -> None:
    writing = outbound()
    writing.send(batch(1))
    writing.seal(1)
    writing.send(batch(2))
    writing.seal(2)
    assert [segment.number for segment in storage.sealed(writing)] == [0, 1]
    writing.completed(2)
    assert storage.sealed(writing) == ()


def test_rows_that_a_filter_drops_count_for_the_position_all_the_same(storage: Storage) -> None:
    writing = outbound()
    writing.send(batch(1, 2))
    writing.send(Watermark(7))
    writing.seal(1)
    queue = reading(storage, filters=((0, 2),), keep=lambda rows: None, inherited=True)
    queue.publish(storage.sealed(writing))
    assert drain(queue) == []
    assert queue.positions()[0].position == SegmentPosition(1, 0)


def test_large_epochs_are_stored_before_their_barrier(storage: Storage) -> None:
    early = []
    writing = SegmentOutbound(SegmentWriter(CHANNEL), 0, SCHEMA, early.append)
    big = batch(*range(200_000))
    for _ in range(10):
        writing.send(big)
    assert len(early) == 1
    early[0].store(storage.writer)
    writing.seal(1)
    (segment,) = storage.sealed(writing)
    assert len(segment.payload) == 2
    queue = reading(storage)
    queue.publish([segment])
    assert len(drain(queue)) == 10 * 200_000


def test_read_states_survive_the_manifest(storage: Storage) -> None:
    writing = outbound()
    writing.send(batch(1))
    writing.seal(1)
    positions = (StreamPosition(STREAM, SegmentPosition(0, 1), ((1, 3),)),)
    state = ReadState(4, positions, {STREAM: storage.sealed(writing)}).to_state("e/read")
    assert ReadState.from_state(state, 0).to_state("e/read") == state
