"""The sending end of a stored exchange: what was sent since the last barrier is sealed into a segment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from snapshot_engine.channels.frames import Element
from snapshot_engine.operators.operator import StateWriter
from snapshot_engine.protocol.committed_exchange import Segment, SegmentWriter
from snapshot_engine.protocol.elements import Barrier, ChannelId, EndOfInput
from snapshot_engine.runtime.exchanges.segment_parts import Part
from snapshot_engine.runtime.exchanges.stored_segments import WrittenState
from snapshot_engine.state.handles import OperatorState

PART_BYTES = 8 << 20
"""So much is stored at once, before the barrier: memory does not grow with the checkpoint interval."""
MOST_UNSTORED_BYTES = 64 << 20
"""With more in memory the storage is too slow, and the producer waits for it."""


class SegmentOutbound:
    """`store_early` has a part stored in the background; it is asked for again with the snapshot that names it."""

    def __init__(
        self, writer: SegmentWriter, lineage: int, schema: pa.Schema, store_early: Callable[[Part], None]
    ) -> None:
        self.channel: ChannelId = writer.channel
        self.lineage = lineage
        self._writer = writer
        self._schema = schema
        self._store_early = store_early
        self._open: list[Element] = []
        self._open_bytes = 0
        self._parts: list[Part] = []
        self._records = 0
        self._unstored: list[Part] = []

    def has_room(self) -> bool:
        if not self._unstored:
            return True
        self._unstored = [part for part in self._unstored if part.handle is None]
        return self.unstored_bytes < MOST_UNSTORED_BYTES

    @property
    def unstored_bytes(self) -> int:
        return self._open_bytes + sum(part.size for part in self._unstored)

    def send(self, element: Element) -> None:
        """Barriers do not cross; the end seals what is left."""
        if isinstance(element, EndOfInput):
            self.seal(0, last=True)
        elif not isinstance(element, Barrier):
            self._open.append(element)
            if isinstance(element, pa.RecordBatch):
                self._records += element.num_rows
                self._open_bytes += element.nbytes
                if self._open_bytes >= PART_BYTES:
                    self._end_part()
                    self._store_early(self._parts[-1])

    def seal(self, checkpoint: int, last: bool = False) -> None:
        """The barrier of `checkpoint` is here, behind all that was sent."""
        if self._open:
            self._end_part()
        if self._parts or last:
            self._writer.seal(checkpoint, self._records, tuple(self._parts), last)
        self._parts = []
        self._records = 0

    def completed(self, checkpoint: int) -> None:
        self._writer.completed(checkpoint)

    @property
    def next_number(self) -> int:
        return self._writer.next_number

    def named(self) -> tuple[Segment, ...]:
        return self._writer.named()

    def close(self) -> None:
        """What is sealed is in storage, or is written again by the next attempt."""

    def _end_part(self) -> None:
        part = Part(self._open, self._schema, self._open_bytes)
        self._parts.append(part)
        self._unstored.append(part)
        self._open = []
        self._open_bytes = 0


@dataclass(frozen=True, slots=True)
class WrittenSnapshot:
    """What all channels of one edge have sealed, frozen at the barrier."""

    uid: str
    lineage: int
    next_numbers: Mapping[int, int]
    sealed: tuple[Segment, ...]

    def write(self, writer: StateWriter) -> OperatorState:
        stored = tuple(_stored(segment, writer) for segment in self.sealed)
        return WrittenState(self.lineage, self.next_numbers, stored).to_state(self.uid)


def _stored(segment: Segment, writer: StateWriter) -> Segment:
    parts: tuple[Part, ...] = segment.payload  # type: ignore[assignment]
    handles = tuple(part.store(writer) for part in parts)
    return Segment(segment.channel, segment.number, segment.epoch, segment.records, handles, segment.last)
