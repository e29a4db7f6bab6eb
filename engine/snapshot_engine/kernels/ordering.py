"""Bringing rows into the order of their destinations: a counting sort of row numbers, then a pass per column.

The sort walks four quarters of the batch at once: one counter per destination would make every row wait for
the one before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import inner, kernel, read, write
from snapshot_engine.kernels.memory import address_of, copy_bytes

LANES = 4

Destinations = npt.NDArray[np.uint16]
LaneCounts = npt.NDArray[np.int64]
Order = npt.NDArray[np.uint32]

_ONE = np.uint64(1)


@kernel((read(types.uint64), types.uint64, read(types.uint16), write(types.uint16), write(types.int64, 2)))
def find_destinations(
    hashes: npt.NDArray[np.uint64],
    key_groups: int,
    owners: Destinations,
    out: Destinations,
    counts: LaneCounts,
) -> None:
    """The owner of each row's key group, and how many rows each has per quarter (counts: LANES x owners)."""
    groups = np.uint64(key_groups)
    low_bits = groups - _ONE
    if groups & low_bits == 0:
        for i in range(len(out)):
            out[i] = owners[hashes[i] & low_bits]
    else:
        for i in range(len(out)):
            out[i] = owners[hashes[i] % groups]
    quarter = len(out) // LANES
    for i in range(quarter):
        counts[0, out[i]] += 1
        counts[1, out[quarter + i]] += 1
        counts[2, out[2 * quarter + i]] += 1
        counts[3, out[3 * quarter + i]] += 1
    for i in range(LANES * quarter, len(out)):
        counts[3, out[i]] += 1


@inner
def _place(row: int, lane: int, destinations: Destinations, cursors: npt.NDArray[np.uint64], out: Order) -> None:
    destination = destinations[row]
    position = cursors[lane, destination]
    out[position] = row
    cursors[lane, destination] = position + _ONE


@kernel((read(types.uint16), read(types.int64, 2), write(types.uint32)))
def sort_by_destination(destinations: Destinations, counts: LaneCounts, out: Order) -> None:
    """The rows' numbers by destination; within a destination they keep their order."""
    cursors = np.empty(counts.shape, np.uint64)
    position = 0
    for destination in range(counts.shape[1]):
        for lane in range(LANES):
            cursors[lane, destination] = position
            position += counts[lane, destination]
    quarter = len(destinations) // LANES
    for i in range(quarter):
        _place(i, 0, destinations, cursors, out)
        _place(quarter + i, 1, destinations, cursors, out)
        _place(2 * quarter + i, 2, destinations, cursors, out)
        _place(3 * quarter + i, 3, destinations, cursors, out)
    for i in range(LANES * quarter, len(destinations)):
        _place(i, 3, destinations, cursors, out)


@kernel(
    *[(read(word), read(types.uint32), write(word)) for word in (types.uint8, types.uint16, types.uint32, types.uint64)]
)
def gather_values(source: npt.NDArray[Any], order: Order, out: npt.NDArray[Any]) -> None:
    for position in range(len(order)):
        out[position] = source[order[position]]


@kernel(
    *[
        (read(types.uint8), read(offset), read(types.uint32), write(types.uint8), write(offset))
        for offset in (types.int32, types.int64)
    ]
)
def gather_bytes(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[Any],
    order: Order,
    out: npt.NDArray[np.uint8],
    new_offsets: npt.NDArray[Any],
) -> None:
    """Copy the byte strings in the new order; `out` has COPY_SLACK bytes to spare."""
    source, target = address_of(data), address_of(out)
    end = 0
    new_offsets[0] = 0
    for position in range(len(order)):
        row = order[position]
        start = offsets[row]
        length = offsets[row + np.uint32(1)] - start
        copy_bytes(source + start, length, source + len(data), target + end)
        end += length
        new_offsets[position + 1] = end
