"""The log of a loop as a part of a checkpoint, and back into the queues of its head."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, cast

import pyarrow as pa

from snapshot_engine.graph.job_graph import JobEdge, Partitioning
from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.operator import StateReader, StateWriter, iterate_states
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.loop_log import LoopContents, LoopEntry
from snapshot_engine.runtime.loops.held_records import HeldRecords
from snapshot_engine.state.handles import OperatorState, PieceHandle

KIND = "loop"
PIECE_BYTES = 16 << 20
"""What is read back into memory at a time to be written, however large the log is."""


@dataclass(frozen=True)
class LoopSnapshot:
    """The head's share of a checkpoint: how far the loop was, and what was on its way round."""

    uid: str
    time_is_over: bool
    feedback: Sequence[int]
    """The edges by which records come back. Checkpoints name them by their place here."""
    contents: LoopContents

    def write(self, writer: StateWriter) -> OperatorState:
        pieces: list[PieceHandle] = []
        places: list[list[int]] = []
        for channel, entries in self.contents.entries.items():
            for round, batches in _pieces(entries):
                # In one chunk: each small one would stop the loop for a moment where it is written.
                pieces.append(writer.write_table("loop", pa.Table.from_batches(batches).combine_chunks()))
                places.append([*self._place(channel), round])
        meta = {
            "round": self.contents.round,
            "over": self.time_is_over,
            "arriving": self.contents.arriving,
            "log": places,
        }
        return OperatorState(self.uid, KIND, meta=meta, pieces=tuple(pieces))

    def _place(self, channel: ChannelId) -> tuple[int, int]:
        return self.feedback.index(channel.edge), channel.producer


def _pieces(entries: Sequence[LoopEntry]) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    for round, of_round in groupby(entries, key=lambda entry: entry.round):
        batches: list[pa.RecordBatch] = []
        size = 0
        for entry in of_round:
            held = cast(HeldRecords, entry.payload)
            batches.append(held.batch())
            size += held.size
            if size >= PIECE_BYTES:
                yield round, batches
                batches, size = [], 0
        if batches:
            yield round, batches


@dataclass(frozen=True)
class Share:
    """Which part of the stored logs belongs to one head subtask."""

    index: int
    parallelism: int
    key_groups: int
    rescaled: bool
    edges: Sequence[JobEdge]
    """The feedback edges, in order."""
    channels: Sequence[ChannelId]
    """The feedback channels of this subtask."""


class RestoredLoop:
    """What the restored checkpoint says of the loop, for one head subtask."""

    def __init__(self, states: Sequence[OperatorState], reader: StateReader, share: Share) -> None:
        self._states = iterate_states(states, KIND)
        self._reader = reader
        self._share = share
        self.round = max((int(state.meta["round"]) for state in self._states), default=0)
        self.arriving = min((int(state.meta["arriving"]) for state in self._states), default=0)
        self.time_is_over = bool(self._states) and all(state.meta["over"] for state in self._states)

    def records(self) -> Iterator[tuple[ChannelId, int, pa.RecordBatch]]:
        """(feedback channel, round, rows), a piece at a time. They enter the queues before anything else."""
        pieces = self._stored()
        if self._share.rescaled:
            pieces = self._dealt_out(pieces)
        for place, table in pieces:
            for batch in table.to_batches():
                if batch.num_rows:
                    yield self._channel(place), place[2], batch

    def _stored(self) -> Iterator[tuple[list[int], pa.Table]]:
        for state in self._states:
            for place, piece in zip(state.meta["log"], state.pieces, strict=True):
                yield place, self._read(place, piece)

    def _read(self, place: list[int], piece: PieceHandle) -> pa.Table:
        table = self._reader.read_table(piece)
        expected = self._edge(place).schema
        if table.schema.equals(expected):
            return table
        if table.schema.names == expected.names:
            return table.cast(expected)  # nullability and metadata; a changed type is an error that says so
        raise ValueError(
            f"records on their way round the loop have the columns {', '.join(table.schema.names)} in the checkpoint, "
            f"but {', '.join(expected.names)} now: let the loop run empty before its columns change"
        )

    def _dealt_out(self, pieces: Iterator[tuple[list[int], pa.Table]]) -> Iterator[tuple[list[int], pa.Table]]:
        """By key group where feedback is keyed; otherwise each stored piece to one subtask, or one copy to every."""
        share = self._share
        turn = 0
        for place, table in pieces:
            edge = self._edge(place)
            if edge.partitioning is Partitioning.HASH:
                split = HashPartitioner(edge.key_columns, share.parallelism, share.key_groups).split
                parts = [split(batch)[share.index] for batch in table.to_batches() if batch.num_rows]
                yield place, pa.Table.from_batches([part for part in parts if part is not None], table.schema)
            elif edge.partitioning is not Partitioning.BROADCAST:
                if turn % share.parallelism == share.index:
                    yield place, table
                turn += 1
        yield from self._copies()

    def _copies(self) -> Iterator[tuple[list[int], pa.Table]]:
        """Broadcast feedback: every old subtask had the same records coming from a producer, and kept those that it had
        not processed, so that the longest of their logs is all that is left; one copy of it for each subtask.
        """
        for edge_number, edge in enumerate(self._share.edges):
            if edge.partitioning is Partitioning.BROADCAST:
                logs = [self._logs_of(state, edge_number) for state in self._states]
                for producer in sorted({producer for log in logs for producer in log}):
                    yield from max((log.get(producer, []) for log in logs), key=_rows)

    def _logs_of(self, state: OperatorState, edge_number: int) -> Mapping[int, list[tuple[list[int], pa.Table]]]:
        found: dict[int, list[tuple[list[int], pa.Table]]] = {}
        for place, piece in zip(state.meta["log"], state.pieces, strict=True):
            if place[0] == edge_number:
                found.setdefault(place[1], []).append((place, self._read(place, piece)))
        return found

    def _edge(self, place: list[int]) -> JobEdge:
        """A feedback edge that is no more leaves its records to the first one."""
        edges = self._share.edges
        return edges[place[0]] if place[0] < len(edges) else edges[0]

    def _channel(self, place: list[int]) -> ChannelId:
        """The channel they came on, or any of its edge if there is another number of producers now."""
        edge = self._edge(place)
        channels = [channel for channel in self._share.channels if channel.edge == edge.id]
        return channels[place[1] % len(channels)]


def _rows(log: list[tuple[Any, pa.Table]]) -> int:
    return sum(table.num_rows for _, table in log)
