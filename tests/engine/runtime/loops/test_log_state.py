"""The log of a loop in a checkpoint: written, read back, and dealt out when the parallelism changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from snapshot_engine.graph.job_graph import Exchange, JobEdge, Partitioning
from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.loop_log import LoopContents, LoopEntry
from snapshot_engine.runtime.loops import log_state
from snapshot_engine.runtime.loops.held_records import RecordStore
from snapshot_engine.runtime.loops.log_state import LoopSnapshot, RestoredLoop, Share
from snapshot_engine.state.handles import PieceHandle

SCHEMA = pa.schema({"n": pa.int64()})
EDGE = 7


class Pieces:
    """Writes tables to memory and reads them back."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        self.tables.append(table)
        return PieceHandle(str(len(self.tables) - 1), table.nbytes, "")

    def write_bytes(self, name: str, data: bytes, *, shared: bool = False) -> PieceHandle:
        raise AssertionError("a log is made of tables")

    def read_table(self, handle: PieceHandle) -> pa.Table:
        return self.tables[int(handle.path)]

    def read_bytes(self, handle: PieceHandle) -> bytes:
        raise AssertionError("a log is made of tables")


def rows(first: int, count: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(np.arange(first, first + count))], schema=SCHEMA)


def feedback(partitioning: Partitioning) -> JobEdge:
    return JobEdge(EDGE, "body", "head", partitioning, Exchange.PIPELINED, SCHEMA, key_columns=("n",), feedback=True)


def written(pieces: Pieces, log: dict[tuple[int, int], list[tuple[int, pa.RecordBatch]]], round: int = 0):
    """`log` by (producer, consumer): the state that the consumer's head would write."""
    store = RecordStore(SCHEMA, 0)  # everything goes through the disk
    entries = {
        ChannelId(EDGE, *ends): [LoopEntry(number, held) for number, batch in batches for held in store.hold(batch)]
        for ends, batches in log.items()
    }
    contents = LoopContents(entries, round, round + 1)
    return LoopSnapshot("head", False, [EDGE], contents).write(pieces)


def restored(pieces, states, partitioning, index, parallelism, producers, rescaled) -> RestoredLoop:
    channels = [ChannelId(EDGE, producer, index) for producer in range(producers)]
    share = Share(index, parallelism, 128, rescaled, [feedback(partitioning)], channels)
    return RestoredLoop(states, pieces, share)


def numbers(loop: RestoredLoop) -> list[int]:
    return [number for _, _, batch in loop.records() for number in batch.column("n").to_pylist()]


def test_a_log_comes_back_to_its_channels_in_its_order_with_its_rounds():
    pieces = Pieces()
    log = {(0, 1): [(1, rows(0, 3)), (1, rows(3, 2)), (2, rows(5, 1))], (1, 1): [(1, rows(10, 2))]}
    loop = restored(pieces, [written(pieces, log, round=1)], Partitioning.HASH, 1, 2, 2, rescaled=False)
    found = [(channel.producer, round, batch.column("n").to_pylist()) for channel, round, batch in loop.records()]
    assert found == [(0, 1, [0, 1, 2, 3, 4]), (0, 2, [5]), (1, 1, [10, 11])]
    assert loop.round == 1
    assert loop.arriving == 2


def test_a_large_log_is_written_piece_by_piece(monkeypatch):
    monkeypatch.setattr(log_state, "PIECE_BYTES", 8_000)
    pieces = Pieces()
    state = written(pieces, {(0, 0): [(0, rows(number * 500, 500)) for number in range(10)]})
    assert len(state.pieces) == 5
    assert max(table.nbytes for table in pieces.tables) <= 8_000
    loop = restored(pieces, [state], Partitioning.FORWARD, 0, 1, 1, rescaled=False)
    assert numbers(loop) == list(range(5_000))


@pytest.mark.parametrize(("old", "new"), [(2, 3), (3, 2), (1, 4), (4, 1)])
def test_keyed_feedback_is_dealt_out_by_key_group(old, new):
    pieces = Pieces()
    states = [written(pieces, {(0, index): [(0, rows(index * 100, 100))]}) for index in range(old)]
    shares = [
        numbers(restored(pieces, states, Partitioning.HASH, index, new, 1, rescaled=True)) for index in range(new)
    ]
    assert sorted(number for share in shares for number in share) == list(range(old * 100))
    owners = HashPartitioner(["n"], new, 128).split(rows(0, old * 100))
    assert [sorted(share) for share in shares] == [sorted(part.column("n").to_pylist()) for part in owners]


@pytest.mark.parametrize("partitioning", [Partitioning.FORWARD, Partitioning.REBALANCE])
def test_other_feedback_goes_to_one_subtask_each(partitioning):
    pieces = Pieces()
    states = [written(pieces, {(index, index): [(0, rows(index * 10, 10))]}) for index in range(3)]
    shares = [numbers(restored(pieces, states, partitioning, index, 2, 2, rescaled=True)) for index in range(2)]
    assert sorted(number for share in shares for number in share) == list(range(30))
    assert all(shares)


def test_broadcast_feedback_is_one_copy_for_each_subtask():
    """Subtask 1 had processed the first of what producer 0 had sent to all; subtask 0 none of it."""
    pieces = Pieces()
    states = [
        written(pieces, {(0, 0): [(0, rows(0, 3))], (1, 0): [(0, rows(10, 1))]}),
        written(pieces, {(0, 1): [(0, rows(1, 2))], (1, 1): [(0, rows(10, 1))]}),
    ]
    for index in range(3):
        loop = restored(pieces, states, Partitioning.BROADCAST, index, 3, 2, rescaled=True)
        assert sorted(numbers(loop)) == [0, 1, 2, 10]


def test_after_a_change_of_parallelism_the_lowest_round_arrives():
    pieces = Pieces()
    states = [written(pieces, {(0, 0): []}, round=3), written(pieces, {(0, 1): []}, round=4)]
    loop = restored(pieces, states, Partitioning.HASH, 0, 3, 2, rescaled=True)
    assert loop.round == 4
    assert loop.arriving == 4


def test_other_columns_than_those_in_flight_are_refused_and_named():
    pieces = Pieces()
    state = written(pieces, {(0, 0): [(0, rows(0, 3))]})
    pieces.tables[0] = pieces.tables[0].rename_columns(["m"])
    with pytest.raises(ValueError, match="have the columns m in the checkpoint, but n now"):
        numbers(restored(pieces, [state], Partitioning.HASH, 0, 1, 1, rescaled=False))
