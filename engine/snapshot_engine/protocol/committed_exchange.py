"""The committed exchange: a two-phase-commit sink and a source in one, so that both sides restart alone.

Barriers do not cross it. The writer seals what it wrote since the last barrier into a *segment*, one per
channel and epoch, and names it in its snapshot; when that checkpoint completes, the segment becomes visible
to the reader, which is triggered like a source and acknowledges its own position. Segments of a channel are
numbered without a gap.

- Like prepared transactions, a sealed segment survives the abort of its checkpoint: it is named by every
  later snapshot of the same lineage until a completed checkpoint has made it visible.
- A manifest names every segment its readers still need. A segment that no retained manifest names is deleted,
  but not while a checkpoint older than the latest completed one is active (a savepoint is not subsumed): its
  reader may have stood further back. Younger ones have read at least as far.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from snapshot_engine.protocol.elements import ChannelId


class SegmentPosition(NamedTuple):
    """Where a reader goes on: behind `offset` records of segment `segment`."""

    segment: int = 0
    offset: int = 0


BEGINNING = SegmentPosition()


@dataclass(frozen=True, slots=True)
class Segment:
    """What one writer sealed for one reader at one barrier. `payload` is where it is stored."""

    channel: ChannelId
    number: int
    epoch: int
    """The checkpoint whose barrier sealed it; for what a finished writer left, the newest it had seen."""
    records: int
    payload: object
    last: bool = False
    """The channel ends behind it."""


class SegmentWriter:
    """The writer of one channel. `restored` is what its restored snapshot named, `next_number` where it goes
    on.
    """

    def __init__(self, channel: ChannelId, next_number: int = 0, restored: Iterable[Segment] = ()) -> None:
        self.channel = channel
        self.next_number = next_number
        self._sealed: list[Segment] = list(restored)

    def seal(self, epoch: int, records: int, payload: object, last: bool = False) -> Segment:
        """Close what was written since the last seal. It must be stored before the snapshot is
        acknowledged.
        """
        segment = Segment(self.channel, self.next_number, epoch, records, payload, last)
        self.next_number += 1
        self._sealed.append(segment)
        return segment

    def named(self) -> tuple[Segment, ...]:
        """What the snapshot must name: all that is not known to be visible."""
        return tuple(self._sealed)

    def completed(self, checkpoint: int) -> None:
        """What was sealed up to `checkpoint` is visible. Not to be called for a running job's savepoint."""
        self._sealed = [segment for segment in self._sealed if segment.epoch > checkpoint]


class SegmentReader:
    """The reader of one channel. It sees only what is published, in order, each segment once."""

    def __init__(self, channel: ChannelId, position: SegmentPosition = BEGINNING) -> None:
        self.channel = channel
        self.position = position
        self._visible: dict[int, Segment] = {}

    def publish(self, segments: Iterable[Segment]) -> None:
        """These have become visible. Those read already, or known, are ignored: it may be told twice."""
        for segment in segments:
            if segment.number >= self.position.segment:
                self._visible.setdefault(segment.number, segment)

    def current(self, ahead: int = 0) -> Segment | None:
        """The segment to read from, behind `position.offset` records; None: wait for the next to be
        published. With `ahead`, the one that many behind it, which may be fetched already.
        """
        return self._visible.get(self.position.segment + ahead)

    def advance(self, records: int) -> None:
        """`records` more of the current segment were taken."""
        self.position = SegmentPosition(self.position.segment, self.position.offset + records)

    def finish_segment(self) -> bool:
        """The current segment is read to its end. True if the channel ends here."""
        segment = self._visible.pop(self.position.segment)
        self.position = SegmentPosition(self.position.segment + 1, 0)
        return segment.last


Segments = Mapping[ChannelId, Sequence[Segment]]
Stream = TypeVar("Stream", bound=Hashable)
"""How the caller names a channel; one that outlived a change of parallelism is not a ChannelId any more."""


def segments_of_manifest(
    visible: Mapping[Stream, Sequence[Segment]],
    sealed: Mapping[Stream, Sequence[Segment]],
    positions: Mapping[Stream, SegmentPosition],
) -> dict[Stream, tuple[Segment, ...]]:
    """What a manifest must name: what was visible and what its writers have sealed, from its readers'
    positions on.

    `visible` is what the latest completed checkpoint named; `sealed` and `positions` are from the snapshots
    of the one that is completing.
    """
    named: dict[Stream, tuple[Segment, ...]] = {}
    for channel, position in positions.items():
        known = {segment.number: segment for segment in visible.get(channel, ())}
        # A result that was lost and made again has the same numbers.
        known.update({segment.number: segment for segment in sealed.get(channel, ())})
        named[channel] = tuple(known[number] for number in sorted(known) if number >= position.segment)
    return named


def unneeded(before: Iterable[Segments], retained: Iterable[Segments]) -> list[Segment]:
    """Segments that manifests `before` named and none of the `retained` ones does: these may be deleted."""
    kept = {segment for manifest in retained for segments in manifest.values() for segment in segments}
    named = {segment: None for manifest in before for segments in manifest.values() for segment in segments}
    return [segment for segment in named if segment not in kept]
