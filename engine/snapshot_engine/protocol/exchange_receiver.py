"""The consumer's side of a numbered channel: takes each record once, however batches are cut or sent
again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from snapshot_engine.protocol.elements import ChannelId, Watermark


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


def joins_what_is_taken(waiting: Iterable[object], rows_of: Callable[[object], int | None], room: int) -> int:
    """How many of the elements that wait behind a batch may be taken together with it: batches of `room` rows
    at most, and the watermarks between and behind them, of which the last one is what comes next.

    At a low rate a log is made of crumbs, a row or two with a watermark behind them; who has much of it to
    read would never catch up if each were handled by itself. Rows that pass a watermark do no harm: it is only
    later than it was. Nothing passes any other element, above all no barrier. `rows_of` is None for what is no
    batch.
    """
    joining = 0
    for element in waiting:
        rows = rows_of(element)
        if rows is not None:
            room -= rows
        if room < 0 or (rows is None and not isinstance(element, Watermark)):
            break
        joining += 1
    return joining
