"""Columns that say the same in every row of a batch, such as a window's start or a count of nulls: stored as one value.

What is written, and read again, gets smaller by as much; whoever reads a piece does not notice.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pyarrow as pa
import pyarrow.compute as pc

LEAST_ROWS = 1024


def with_repeats_once(table: pa.Table) -> pa.Table:
    """Each column of integers that is constant in each of its chunks is run-end encoded."""
    if table.num_rows < LEAST_ROWS:
        return table
    return _replaced(table, _may_repeat, _encoded)


def with_repeats_spelled_out(table: pa.Table) -> pa.Table:
    """The table that `with_repeats_once` was given."""
    return _replaced(table, lambda column: pa.types.is_run_end_encoded(column.type), pc.run_end_decode)


def _replaced(
    table: pa.Table,
    chosen: Callable[[pa.ChunkedArray], bool],
    change: Callable[[pa.ChunkedArray], pa.ChunkedArray | None],
) -> pa.Table:
    for number, column in zip(count(), table.columns, strict=False):
        changed = change(column) if chosen(column) else None
        if changed is not None:
            table = table.set_column(number, table.schema.field(number).with_type(changed.type), changed)
    return table


def _may_repeat(column: pa.ChunkedArray) -> bool:
    """A look at three rows: most columns are found to be of no use by that."""
    if not pa.types.is_integer(column.type) or column.null_count:
        return False
    return all(chunk[0] == chunk[len(chunk) // 2] == chunk[-1] for chunk in column.chunks if len(chunk))


def _encoded(column: pa.ChunkedArray) -> pa.ChunkedArray | None:
    runs = [pc.run_end_encode(chunk) for chunk in column.chunks if len(chunk)]
    if any(len(run.values) > 1 for run in runs):
        return None
    return pa.chunked_array(runs)
