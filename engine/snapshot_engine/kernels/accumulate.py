"""Adding batches of values to accumulators.

Accumulators are the columns of one row-major matrix, so that all of a key's state shares a cache line. `rows` says to
which row each value goes. `valid` is empty where all values count; else values that are not valid are passed over.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write

Rows = npt.NDArray[np.int32]
Validity = npt.NDArray[np.bool_]
Matrix = npt.NDArray[Any]

ALL_VALID: Validity = np.empty(0, np.bool_)

_ROWS = read(types.int32)
_VALID = read(types.boolean)
_INTEGERS = (_ROWS, read(types.int64), _VALID, write(types.int64, 2), types.int64)
_FLOATS = (_ROWS, read(types.float64), _VALID, write(types.float64, 2), types.int64)


@kernel((_ROWS, write(types.int64, 2), types.int64))
def count_rows(rows: Rows, matrix: Matrix, column: int) -> None:
    for i in range(len(rows)):
        matrix[rows[i], column] += 1


@kernel((_ROWS, read(types.int32), write(types.int64, 2), types.int64))
def count_weights(rows: Rows, weights: Rows, matrix: Matrix, column: int) -> None:
    """As `count_rows`, where each stands for as many rows as its weight says."""
    for i in range(len(rows)):
        matrix[rows[i], column] += weights[i]


@kernel((_ROWS, write(types.int64, 2), types.int64, types.int64))
def mark_rows(rows: Rows, matrix: Matrix, column: int, mark: int) -> None:
    for i in range(len(rows)):
        matrix[rows[i], column] = mark


@kernel((_ROWS, _VALID, write(types.int64, 2), types.int64))
def count_invalid(rows: Rows, valid: Validity, matrix: Matrix, column: int) -> None:
    for i in range(len(valid)):
        if not valid[i]:
            matrix[rows[i], column] += 1


@kernel((_ROWS, _VALID, read(types.int32), write(types.int64, 2), types.int64))
def count_invalid_weights(rows: Rows, valid: Validity, weights: Rows, matrix: Matrix, column: int) -> None:
    """As `count_invalid`, by weights."""
    for i in range(len(valid)):
        if not valid[i]:
            matrix[rows[i], column] += weights[i]


@kernel((read(types.int64),))
def reach_of(values: npt.NDArray[np.int64]) -> int:
    """No value is further from zero. Not exact: it costs next to nothing, which a check of every sum does not."""
    bits = 0
    for i in range(len(values)):
        bits |= values[i] ^ (values[i] >> 63)
    return bits + 1 if bits < 2**63 - 1 else bits


@kernel(_INTEGERS, _FLOATS)
def add_values(rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int) -> None:
    if len(valid) == 0:
        for i in range(len(rows)):
            matrix[rows[i], column] += values[i]
    else:
        for i in range(len(rows)):
            if valid[i]:
                matrix[rows[i], column] += values[i]


@kernel(_INTEGERS)
def add_signed(rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int) -> bool:
    """Whether a sum has run over. All are added, whatever has: `count_carries` then finds where and how often."""
    over = 0
    for i in range(len(rows)):
        if len(valid) == 0 or valid[i]:
            before, value = matrix[rows[i], column], values[i]
            after = before + value
            matrix[rows[i], column] = after
            over |= (before ^ after) & (value ^ after)
    return over < 0


@kernel(_INTEGERS)
def add_unsigned(rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int) -> bool:
    """As `add_signed`, for the words of uint64."""
    over = 0
    for i in range(len(rows)):
        if len(valid) == 0 or valid[i]:
            before, value = matrix[rows[i], column], values[i]
            after = before + value
            matrix[rows[i], column] = after
            over |= (before & value) | ((before | value) & ~after)
    return over < 0


@kernel((*_INTEGERS, types.boolean))
def count_carries(
    rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int, signed: bool
) -> None:
    """After a batch was added that has run over: the column behind the sums is given what they lack, in units of 2**64.

    The batch is gone through backwards, so that each sum is seen before and after each value.
    """
    for i in range(len(rows) - 1, -1, -1):
        if len(valid) == 0 or valid[i]:
            after, value = matrix[rows[i], column], values[i]
            before = after - value
            matrix[rows[i], column] = before
            if signed:
                if ((before ^ after) & (value ^ after)) < 0:
                    matrix[rows[i], column + 1] += 1 if value >= 0 else -1
            elif ((before & value) | ((before | value) & ~after)) < 0:
                matrix[rows[i], column + 1] += 1
    for i in range(len(rows)):
        if len(valid) == 0 or valid[i]:
            matrix[rows[i], column] += values[i]


@kernel(_INTEGERS)
def lower_integers(rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int) -> None:
    for i in range(len(rows)):
        if (len(valid) == 0 or valid[i]) and values[i] < matrix[rows[i], column]:
            matrix[rows[i], column] = values[i]


@kernel(_INTEGERS)
def raise_integers(rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int) -> None:
    for i in range(len(rows)):
        if (len(valid) == 0 or valid[i]) and values[i] > matrix[rows[i], column]:
            matrix[rows[i], column] = values[i]


@kernel(_FLOATS)
def lower_floats(rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int) -> None:
    """NaN stands for no value yet; a NaN among the values counts only where there is nothing else."""
    for i in range(len(rows)):
        if len(valid) == 0 or valid[i]:
            current = matrix[rows[i], column]
            if values[i] < current or np.isnan(current):
                matrix[rows[i], column] = values[i]


@kernel(_FLOATS)
def raise_floats(rows: Rows, values: npt.NDArray[Any], valid: Validity, matrix: Matrix, column: int) -> None:
    """As `lower_floats`."""
    for i in range(len(rows)):
        if len(valid) == 0 or valid[i]:
            current = matrix[rows[i], column]
            if values[i] > current or np.isnan(current):
                matrix[rows[i], column] = values[i]


@kernel((read(types.int64, 2), types.int64, types.int64, write(types.int32)))
def rows_marked_after(matrix: Matrix, column: int, mark: int, out: Rows) -> int:
    """The rows whose mark is greater than `mark`, into `out`; returns how many they are."""
    count = 0
    for row in range(len(matrix)):
        out[count] = row
        count += matrix[row, column] > mark
    return count


@kernel((read(types.int64, 2), read(types.int32), write(types.int64, 2)))
def gather_rows(matrix: Matrix, rows: Rows, out: Matrix) -> None:
    for i in range(len(rows)):
        for column in range(matrix.shape[1]):
            out[i, column] = matrix[rows[i], column]
