"""The distinct numbers among many, in the order in which they first come."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write


@kernel((read(types.int32), write(types.int64), types.int64, write(types.int32)))
def distinct_rows(
    rows: npt.NDArray[np.int32], stamps: npt.NDArray[np.int64], stamp: int, out: npt.NDArray[np.int32]
) -> int:
    """Fill `out` and return how many they are. `stamps` has an entry per row; `stamp` is one it does not have yet."""
    count = 0
    for i in range(len(rows)):
        if stamps[rows[i]] != stamp:
            stamps[rows[i]] = stamp
            out[count] = rows[i]
            count += 1
    return count
