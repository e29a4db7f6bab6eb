"""Stored exchanges (committed, blocking) in a snapshot: what a writer has sealed, where a reader stands.

Both travel as operator states under names of their own, so that pieces are counted, copied into savepoints and deleted
like all others. A writer names what it has sealed; the driver moves that into the readers' states when it makes the
manifest. So in a manifest the segments lie with those who still need them, and the writers' states have none.

A *stream* is what one writer sealed for one reader between two changes of parallelism, its *lineage*: the checkpoint
that the edge was last rescaled from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from snapshot_engine.graph.job_graph import JobEdge
from snapshot_engine.protocol.committed_exchange import BEGINNING, Segment, SegmentPosition
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.state.handles import OperatorState, PieceHandle

WRITTEN = "exchange-written"
READ = "exchange-read"
WRITTEN_SUFFIX = "/written"
READ_SUFFIX = "/read"


def written_uid(edge: JobEdge) -> str:
    return f"{edge.uid}{WRITTEN_SUFFIX}"


def read_uid(edge: JobEdge) -> str:
    return f"{edge.uid}{READ_SUFFIX}"


class StreamId(NamedTuple):
    producer: int
    consumer: int
    lineage: int


Filters = tuple[tuple[int, int], ...]
"""(subtask, parallelism) of each change of parallelism since: only rows of all of these subtasks' key groups count."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where a reader stands in a stream. One stream may be read by several readers, each with filters of its own."""

    stream: StreamId
    position: SegmentPosition = BEGINNING
    filters: Filters = ()

    def to_json(self) -> list[Any]:
        return [*self.stream, *self.position, [list(each) for each in self.filters]]

    @classmethod
    def from_json(cls, doc: Sequence[Any]) -> StreamPosition:
        filters = tuple((subtask, parallelism) for subtask, parallelism in doc[5])
        return cls(StreamId(*doc[:3]), SegmentPosition(*doc[3:5]), filters)


@dataclass(frozen=True, slots=True)
class WrittenState:
    """What one writer subtask says of one edge. `next_numbers` and `sealed` are by consumer."""

    lineage: int = 0
    next_numbers: Mapping[int, int] = field(default_factory=dict)
    sealed: tuple[Segment, ...] = ()

    def to_state(self, uid: str) -> OperatorState:
        """Every payload must be a tuple of handles."""
        meta = {
            "lineage": self.lineage,
            "numbers": [[consumer, number] for consumer, number in sorted(self.next_numbers.items())],
            "sealed": [[segment.channel.consumer, *_described(segment)] for segment in self.sealed],
        }
        return OperatorState(uid, WRITTEN, meta=meta, pieces=_pieces(self.sealed))

    @classmethod
    def from_state(cls, state: OperatorState, edge: int, producer: int) -> WrittenState:
        pieces = iter(state.pieces)
        sealed = tuple(
            _segment(ChannelId(edge, producer, consumer), described, pieces)
            for consumer, *described in state.meta["sealed"]
        )
        return cls(state.meta["lineage"], dict(state.meta["numbers"]), sealed)


@dataclass(frozen=True, slots=True)
class ReadState:
    """What one reader subtask says of one edge; `segments` are added by the driver."""

    lineage: int = 0
    positions: tuple[StreamPosition, ...] = ()
    segments: Mapping[StreamId, tuple[Segment, ...]] = field(default_factory=dict)

    def to_state(self, uid: str) -> OperatorState:
        named = [(stream, segment) for stream, segments in self.segments.items() for segment in segments]
        meta = {
            "lineage": self.lineage,
            "positions": [position.to_json() for position in self.positions],
            "segments": [[*stream, *_described(segment)] for stream, segment in named],
        }
        return OperatorState(uid, READ, meta=meta, pieces=_pieces(segment for _, segment in named))

    @classmethod
    def from_state(cls, state: OperatorState, edge: int) -> ReadState:
        pieces = iter(state.pieces)
        segments: dict[StreamId, tuple[Segment, ...]] = {}
        for producer, consumer, lineage, *described in state.meta["segments"]:
            stream = StreamId(producer, consumer, lineage)
            segment = _segment(ChannelId(edge, producer, consumer), described, pieces)
            segments[stream] = (*segments.get(stream, ()), segment)
        positions = tuple(StreamPosition.from_json(doc) for doc in state.meta["positions"])
        return cls(state.meta["lineage"], positions, segments)


def publication(segments: Iterable[Segment]) -> list[Any]:
    """Segments of one channel as a message carries them."""
    return [[*_described(segment), [piece.to_json() for piece in _handles(segment)]] for segment in segments]


def published(channel: ChannelId, doc: Iterable[Sequence[Any]]) -> list[Segment]:
    return [
        _segment(channel, described, iter([PieceHandle.from_json(piece) for piece in pieces]))
        for *described, pieces in doc
    ]


def _described(segment: Segment) -> list[Any]:
    return [segment.number, segment.epoch, segment.records, segment.last, len(_handles(segment))]


def _segment(channel: ChannelId, described: Sequence[Any], pieces: Any) -> Segment:
    number, epoch, records, last, parts = described
    return Segment(channel, number, epoch, records, tuple(next(pieces) for _ in range(parts)), last)


def _handles(segment: Segment) -> tuple[PieceHandle, ...]:
    assert isinstance(segment.payload, tuple)
    return segment.payload


def _pieces(segments: Iterable[Segment]) -> tuple[PieceHandle, ...]:
    return tuple(piece for segment in segments for piece in _handles(segment))
