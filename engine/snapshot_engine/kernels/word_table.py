"""A hash table from 64-bit words to row numbers: open addressing, linear probing.

A slot is a pair (word, row + 1), so that a lookup touches one cache line; zero is an empty slot. Rows are numbered in
the order in which their words were first seen, and `words[row]` is the word again. The number of slots is a power of
two; the upper bits of the product choose the slot, because the lower bits of a hash have already chosen the subtask.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import inner, kernel, read, write
from snapshot_engine.kernels.memory import address_of, prefetch

Words = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]

AHEAD = 32
"""How many keys ahead their slots are fetched, where the table is larger than a cache and every lookup would wait."""
_NEAR = 1 << 15
"""Words of slots that a cache holds: there, finding a slot twice costs more than it saves."""

_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)


@inner
def _slot_of(word: int, shift: np.uint64) -> np.int64:
    """Neighbouring numbers spread evenly: keys that are counted up hardly ever collide."""
    bits = np.uint64(word)
    return np.int64(((bits ^ (bits >> _HALF)) * _FIBONACCI) >> shift)


@kernel(
    (
        read(types.int64),
        types.int64,
        write(types.int64),
        types.uint64,
        write(types.int64),
        types.int64,
        write(types.int32),
    )
)
def add_words(
    new: Words, begin: int, slots: Words, shift: int, words: Words, count: int, rows: Rows
) -> tuple[int, int]:
    """Find the row of each word from `begin` on, adding those that are not there.

    Returns how many rows the table has then, and at which word to go on: `words` may have to be given room first.
    """
    mask = (len(slots) >> 1) - 1
    start = address_of(slots)
    fetched = len(new) - AHEAD if len(slots) > _NEAR else 0
    for i in range(begin, len(new)):
        if i < fetched:
            prefetch(start + 16 * _slot_of(new[i + AHEAD], np.uint64(shift)))
        word = new[i]
        slot = _slot_of(word, np.uint64(shift))
        while True:
            row = slots[2 * slot + 1]
            if row == 0:
                if count == len(words):
                    return count, i
                words[count] = word
                count += 1
                slots[2 * slot] = word
                slots[2 * slot + 1] = count
                rows[i] = count - 1
                break
            if slots[2 * slot] == word:
                rows[i] = row - 1
                break
            slot = (slot + 1) & mask
    return count, len(new)


@kernel((read(types.int64), read(types.int64), types.uint64, write(types.int32)))
def find_words(wanted: Words, slots: Words, shift: int, rows: Rows) -> None:
    """The row of each word, -1 where it has none."""
    mask = (len(slots) >> 1) - 1
    start = address_of(slots)
    fetched = len(wanted) - AHEAD if len(slots) > _NEAR else 0
    for i in range(len(wanted)):
        if i < fetched:
            prefetch(start + 16 * _slot_of(wanted[i + AHEAD], np.uint64(shift)))
        slot = _slot_of(wanted[i], np.uint64(shift))
        while slots[2 * slot + 1] != 0 and slots[2 * slot] != wanted[i]:
            slot = (slot + 1) & mask
        rows[i] = slots[2 * slot + 1] - 1


@kernel((read(types.int64), types.int64, write(types.int64), types.uint64))
def rehash_words(words: Words, skipped: int, slots: Words, shift: int) -> None:
    """Fill empty slots from the rows' words; the row `skipped` stands for no word."""
    mask = (len(slots) >> 1) - 1
    for row in range(len(words)):
        if row == skipped:
            continue
        slot = _slot_of(words[row], np.uint64(shift))
        while slots[2 * slot + 1] != 0:
            slot = (slot + 1) & mask
        slots[2 * slot] = words[row]
        slots[2 * slot + 1] = row + 1
