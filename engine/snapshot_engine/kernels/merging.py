"""Merging rows of accumulators into others, one pair after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write

Rows = npt.NDArray[np.int32]
Matrix = npt.NDArray[Any]

ADD_INTEGERS = 0
ADD_FLOATS = 1
LOWER_INTEGERS = 2
RAISE_INTEGERS = 3
LOWER_FLOATS = 4
RAISE_FLOATS = 5
KEEP = 6


@kernel((read(types.int64, 2), read(types.int32), write(types.int64, 2), read(types.int32), read(types.int64)))
def merge_rows(source: Matrix, source_rows: Rows, target: Matrix, rows: Rows, codes: npt.NDArray[np.int64]) -> None:
    """target[rows[i]] takes in source[source_rows[i]], column by column as `codes` has it.

    In order, so that source and target may be one matrix, in which what was merged is merged on. Columns behind those
    of `codes` stay as they are. Floats are kept as their bits.
    """
    source_floats = source.view(np.float64)
    floats = target.view(np.float64)
    for i in range(len(rows)):
        a, b = source_rows[i], rows[i]
        for column in range(len(codes)):
            code = codes[column]
            if code == ADD_INTEGERS:
                target[b, column] += source[a, column]
            elif code == ADD_FLOATS:
                floats[b, column] += source_floats[a, column]
            elif code == LOWER_INTEGERS:
                target[b, column] = min(target[b, column], source[a, column])
            elif code == RAISE_INTEGERS:
                target[b, column] = max(target[b, column], source[a, column])
            elif code == LOWER_FLOATS:
                if source_floats[a, column] < floats[b, column] or np.isnan(floats[b, column]):
                    floats[b, column] = source_floats[a, column]
            elif code == RAISE_FLOATS and (source_floats[a, column] > floats[b, column] or np.isnan(floats[b, column])):
                floats[b, column] = source_floats[a, column]
