"""Pairs of rows with equal keys. Keys are the row numbers of a key index; -1 is a key that equals none."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write

Numbers = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]

_NUMBERS = read(types.int32)


@kernel((_NUMBERS, write(types.int32), write(types.int32), types.int64))
def link_rows(keys: Numbers, heads: Numbers, nexts: Numbers, first: int) -> None:
    """Put rows `first`, `first` + 1, … at the heads of their keys' lists."""
    for i in range(len(keys)):
        if keys[i] >= 0:
            nexts[first + i] = heads[keys[i]]
            heads[keys[i]] = first + i


@kernel((_NUMBERS, _NUMBERS, _NUMBERS, write(types.int64)))
def count_partners(keys: Numbers, heads: Numbers, nexts: Numbers, out: Counts) -> None:
    """How many rows each key's list has."""
    for i in range(len(keys)):
        count = 0
        if keys[i] >= 0:
            row = heads[keys[i]]
            while row >= 0:
                count += 1
                row = nexts[row]
        out[i] = count


@kernel((_NUMBERS, types.int64, types.int64, _NUMBERS, _NUMBERS, write(types.int32), write(types.int32)))
def list_pairs(
    keys: Numbers, begin: int, end: int, heads: Numbers, nexts: Numbers, probes: Numbers, partners: Numbers
) -> None:
    """The pairs of the probing rows from `begin` to `end`; the room for them has been counted."""
    count = 0
    for i in range(begin, end):
        if keys[i] >= 0:
            row = heads[keys[i]]
            while row >= 0:
                probes[count] = i
                partners[count] = row
                count += 1
                row = nexts[row]
