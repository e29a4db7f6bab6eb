"""How much a subtask of a loop takes in hand at a time: a body that makes a hundred records of each must not fill the
memory in one go. There is a look at the room for output between two slices.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

FIRST_ROWS = 64
FEWEST_ROWS = 16
MOST_ROWS = 16_384
MOST_BYTES = 256 << 10
CAREFUL_ROWS = 256
"""At most, while the body makes more records than it gets: those that come next may be larger than these."""
GROWING = 4
"""Records made of one, from which on a body counts as one that makes more than it gets."""
ENOUGH_OUTPUT = 4 << 20
"""When a slice led to more bytes of output than this, the next ones are smaller; if to much less, larger."""


class SliceSize:
    """In rows; follows what the slices before led to."""

    def __init__(self) -> None:
        self.rows = FIRST_ROWS

    def adapt(self, rows_in: int, rows_out: int, bytes_out: int) -> None:
        """A slice of `rows_in` has led to this output."""
        if bytes_out > ENOUGH_OUTPUT:
            self.rows = max(FEWEST_ROWS, min(self.rows // 2, rows_in * ENOUGH_OUTPUT // bytes_out))
        elif bytes_out < ENOUGH_OUTPUT // 4:
            self.rows = min(CAREFUL_ROWS if rows_out > GROWING * rows_in else MOST_ROWS, self.rows * 2)


def slices(batch: pa.RecordBatch, most_rows: int) -> Sequence[pa.RecordBatch]:
    """In order, none of them larger than a slice should be."""
    by_size = batch.num_rows * MOST_BYTES // max(1, batch.nbytes)
    rows = max(1, min(most_rows, by_size))
    return [batch] if batch.num_rows <= rows else [batch.slice(at, rows) for at in range(0, batch.num_rows, rows)]
