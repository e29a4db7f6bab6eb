"""A hash table from byte strings to row numbers; laid out like `tuple_table.py`.

The strings of all rows lie one behind the other in an arena: row r has arena[ends[r] : ends[r + 1]], which is Arrow's
own layout of a binary column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import inner, kernel, read, write
from snapshot_engine.kernels.memory import COPY_SLACK, address_of, copy_bytes, load_byte, load_word, prefetch
from snapshot_engine.kernels.word_table import AHEAD

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[Any]
Slots = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]

_OFFSET_TYPES = (types.int32, types.int64)


@inner
def _same_bytes(left: int, right: int, length: int) -> bool:
    done = 0
    if length >= 8:
        while done < length - 8:
            if load_word(left + done) != load_word(right + done):
                return False
            done += 8
        return bool(load_word(left + length - 8) == load_word(right + length - 8))
    while done < length:
        if load_byte(left + done) != load_byte(right + done):
            return False
        done += 1
    return True


@inner
def _row_of(hash_: int, slots: int, shift: np.uint64) -> int:
    """The row in the first slot of a hash, which need not be the right one; 0 if there is none."""
    slot = np.int64(load_word(hash_) >> shift)
    row: Any = np.int64(load_word(slots + 16 * slot + 8)) - 1
    return int(max(row, 0))


@inner
def _fetch_ahead(hash_: int, slots: int, shift: np.uint64, ends: int, arena: int) -> None:
    """A lookup waits three times: for its slot, for where the row's string is, and for the string. So the slot is
    fetched first, some keys later what it refers to, and so on. All are addresses, `hash_` that of the key's hash."""
    prefetch(slots + 16 * np.int64(load_word(hash_ + 8 * AHEAD) >> shift))
    prefetch(ends + 8 * _row_of(hash_ + 4 * AHEAD, slots, shift))
    prefetch(arena + np.int64(load_word(ends + 8 * _row_of(hash_ + 2 * AHEAD, slots, shift))))


@kernel(
    *[
        (
            read(types.uint8),
            read(offset),
            read(types.uint64),
            types.int64,
            write(types.int64),
            types.uint64,
            write(types.uint8),
            write(types.int64),
            write(types.uint64),
            types.int64,
            write(types.int32),
        )
        for offset in _OFFSET_TYPES
    ]
)
def add_byte_strings(
    data: Bytes,
    offsets: Offsets,
    new_hashes: Hashes,
    begin: int,
    slots: Slots,
    shift: int,
    arena: Bytes,
    ends: Offsets,
    hashes: Hashes,
    count: int,
    rows: Rows,
) -> tuple[int, int]:
    """As `add_words`; it also stops where the arena has no room left for a string and COPY_SLACK."""
    mask = (len(slots) >> 1) - 1
    source = address_of(data)
    kept, table = address_of(arena), address_of(slots)
    first_hash, first_end = address_of(new_hashes), address_of(ends)
    for i in range(begin, len(new_hashes)):
        if i + AHEAD < len(new_hashes):
            _fetch_ahead(first_hash + 8 * i, table, np.uint64(shift), first_end, kept)
        wanted = np.int64(new_hashes[i])
        slot = np.int64(new_hashes[i] >> np.uint64(shift))
        start = source + offsets[i]
        length = offsets[i + 1] - offsets[i]
        while True:
            row = slots[2 * slot + 1]
            if row == 0:
                end = ends[count]
                if count == len(hashes) or end + length + COPY_SLACK > len(arena):
                    return count, i
                copy_bytes(start, length, source + len(data), kept + end)
                hashes[count] = new_hashes[i]
                count += 1
                ends[count] = end + length
                slots[2 * slot] = wanted
                slots[2 * slot + 1] = count
                rows[i] = count - 1
                break
            if slots[2 * slot] == wanted:
                end = ends[row]
                if end - ends[row - 1] == length and _same_bytes(start, kept + end - length, length):
                    rows[i] = row - 1
                    break
            slot = (slot + 1) & mask
    return count, len(new_hashes)


@kernel(
    *[
        (
            read(types.uint8),
            read(offset),
            read(types.uint64),
            read(types.int64),
            types.uint64,
            read(types.uint8),
            read(types.int64),
            write(types.int32),
        )
        for offset in _OFFSET_TYPES
    ]
)
def find_byte_strings(
    data: Bytes,
    offsets: Offsets,
    hashes: Hashes,
    slots: Slots,
    shift: int,
    arena: Bytes,
    ends: Offsets,
    rows: Rows,
) -> None:
    """The row of each byte string, -1 where it has none."""
    mask = (len(slots) >> 1) - 1
    source = address_of(data)
    kept, table = address_of(arena), address_of(slots)
    first_hash, first_end = address_of(hashes), address_of(ends)
    for i in range(len(hashes)):
        if i + AHEAD < len(hashes):
            _fetch_ahead(first_hash + 8 * i, table, np.uint64(shift), first_end, kept)
        wanted = np.int64(hashes[i])
        slot = np.int64(hashes[i] >> np.uint64(shift))
        length = offsets[i + 1] - offsets[i]
        while slots[2 * slot + 1] != 0:
            row = slots[2 * slot + 1]
            if (
                slots[2 * slot] == wanted
                and ends[row] - ends[row - 1] == length
                and _same_bytes(source + offsets[i], kept + ends[row - 1], length)
            ):
                break
            slot = (slot + 1) & mask
        rows[i] = slots[2 * slot + 1] - 1
