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
SUM_SIGNED = 7
SUM_UNSIGNED = 8
"""As ADD_INTEGERS; but what runs over is told."""
CARRYING = 16
"""Added to a code of a sum: what runs over is added to the next column, which has it in units of 2**64."""


@kernel((read(types.int64, 2), read(types.int32), write(types.int64, 2), read(types.int32), read(types.int64)))
def merge_rows(source: Matrix, source_rows: Rows, target: Matrix, rows: Rows, codes: npt.NDArray[np.int64]) -> bool:
    """target[rows[i]] takes in source[source_rows[i]], column by column as `codes` has it.

    In order, so that source and target may be one matrix, in which what was merged is merged on. Columns behind those
    of `codes` stay as they are. Floats are kept as their bits. Returns whether a sum that does not carry has run over.
    """
    overflowed = False
    source_floats = source.view(np.float64)
    floats = target.view(np.float64)
    for i in range(len(rows)):
        a, b = source_rows[i], rows[i]
        for column in range(len(codes)):
            code = codes[column]
            if code == ADD_INTEGERS:
                target[b, column] += source[a, column]
            elif code & ~CARRYING == SUM_SIGNED or code & ~CARRYING == SUM_UNSIGNED:
                before, value = target[b, column], source[a, column]
                after = before + value
                target[b, column] = after
                signed = code & ~CARRYING == SUM_SIGNED
                over = (before ^ after) & (value ^ after) if signed else (before & value) | ((before | value) & ~after)
                if over < 0 and code & CARRYING:
                    target[b, column + 1] += -1 if signed and value < 0 else 1
                elif over < 0:
                    overflowed = True
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
    return overflowed
