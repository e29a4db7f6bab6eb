"""Which record of a batch follows which of the same key, and which of them is the key's newest.

Column 0 of the matrix is the number of each key's newest row in a store. The records of a batch are given the numbers
from `base` on, which is greater than any in the store: a number that is not less says that the key came before in this
very batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Matrix = npt.NDArray[Any]


@kernel((read(types.int32), write(types.int64, 2), types.int64, write(types.int64), write(types.int64)))
def link_records(rows: Rows, matrix: Matrix, base: int, before: Numbers, stored: Numbers) -> int:
    """For each record what its key had before it; returns how many keys there are.

    `before` is the number of the key (in the order in which they first come) where the record is its first one in the
    batch, else ~p of the record p that precedes it. `stored` is the number of each key's row in the store.
    """
    count = 0
    for i in range(len(rows)):
        newest = matrix[rows[i], 0]
        matrix[rows[i], 0] = base + i
        if newest >= base:
            before[i] = ~(newest - base)
        else:
            before[i] = count
            stored[count] = newest
            count += 1
    return count


@kernel((read(types.int32), write(types.int64, 2), types.int64, write(types.int64)))
def number_newest(rows: Rows, matrix: Matrix, base: int, newest: Numbers) -> None:
    """Which record is the last of its key, into `newest`; from here on these alone have numbers, without gaps."""
    count = 0
    for i in range(len(rows)):
        if matrix[rows[i], 0] == base + i:
            matrix[rows[i], 0] = base + count
            newest[count] = i
            count += 1


@kernel((read(types.int64), types.int64, read(types.boolean), read(types.boolean), write(types.int64)))
def trace_results(before: Numbers, stored: int, is_new: Flags, is_old: Flags, origins: Numbers) -> int:
    """Where each result is to be found, if first come the `stored` rows, then the records, then results of their own.

    `before` is as `newest_rows.Linked` has it. Returns how many results are neither what came in nor what was there.
    """
    own = 0
    for i in range(len(before)):
        if is_new[i]:
            origins[i] = stored + i
        elif is_old[i]:
            origins[i] = before[i] if before[i] < stored else origins[before[i] - stored - 1]
        else:
            origins[i] = stored + len(before) + own
            own += 1
    return own
