"""How window results go out: the two window columns behind the key columns, in batches of bounded size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.operators.operator import Output
from snapshot_engine.operators.windows import WINDOW_END, WINDOW_START

MOST_ROWS = 65_536
"""In one batch that is put out."""

_TIMESTAMP = pa.timestamp("ms")


def window_fields() -> list[pa.Field]:
    return [pa.field(WINDOW_START, _TIMESTAMP), pa.field(WINDOW_END, _TIMESTAMP)]


def emit_window(output: Output, schema: pa.Schema, keys: int, columns: list[pa.Array], start: int, end: int) -> None:
    """Put out one window's results: `keys` key columns first, then the others."""
    rows = len(columns[0])
    emit_windows(output, schema, keys, columns, np.full(rows, start, np.int64), np.full(rows, end, np.int64))


def emit_windows(
    output: Output,
    schema: pa.Schema,
    keys: int,
    columns: list[pa.Array],
    starts: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
) -> None:
    """The same where each row has a window of its own."""
    times = [pa.array(starts.view("datetime64[ms]")), pa.array(ends.view("datetime64[ms]"))]
    batch = pa.RecordBatch.from_arrays([*columns[:keys], *times, *columns[keys:]], schema=schema)
    for part in bounded(batch):
        output.emit(part)


def bounded(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Slices of at most MOST_ROWS rows; none of an empty batch."""
    for start in range(0, batch.num_rows, MOST_ROWS):
        yield batch.slice(start, MOST_ROWS)
