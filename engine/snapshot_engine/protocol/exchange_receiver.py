"""The consumer's side of a numbered channel: takes each record once, however batches are cut or sent
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from snapshot_engine.protocol.elements import ChannelId


class GapError(Exception):
    """Records are missing between what was received and what came now. The consumer must be restored."""


class Slice(NamedTuple):
    """Of a batch that came: leave out the first `skip` records, take `take`."""

    skip: int
    take: int


@dataclass(slots=True)
class ChannelReceiver:
    """`expected` is the number of the next record: part of the consumer's snapshot, and what it asks for when
    it connects.
    """

    channel: ChannelId
    expected: int = 0

    def records(self, first: int, count: int) -> Slice:
        """A batch came with the records from `first` on; what was seen before is left out, record by
        record.
        """
        if first > self.expected:
            raise GapError(
                f"channel {self.channel}: record {first} came, but {self.expected} was expected next; "
                "the consumer has to be restored from a checkpoint"
            )
        skip = min(count, self.expected - first)
        self.expected = max(self.expected, first + count)
        return Slice(skip, count - skip)
