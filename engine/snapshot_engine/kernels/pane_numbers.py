"""Which pane of time each row falls into."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write
from snapshot_engine.kernels.ordering import LANES


@kernel((read(types.int64), types.int64, types.int64, write(types.uint16), write(types.int64, 2)))
def number_panes(
    times: npt.NDArray[np.int64],
    first: int,
    size: int,
    out: npt.NDArray[np.uint16],
    counts: npt.NDArray[np.int64],
) -> None:
    """The number of each row's pane, counted from the one that starts at `first`, and how many rows each pane has.

    Divides only where a row is in another pane than the row before it: divisions are slow, and time is mostly in order.
    The counts are those that `sort_by_destination` takes.
    """
    quarter = len(times) // LANES
    number = 0
    start = first
    for i in range(len(times)):
        if times[i] < start or times[i] >= start + size:
            number = (times[i] - first) // size
            start = first + number * size
        out[i] = number
        lane = min(i // quarter, LANES - 1) if quarter > 0 else LANES - 1
        counts[lane, number] += 1
