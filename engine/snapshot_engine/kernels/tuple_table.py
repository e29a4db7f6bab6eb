"""A hash table from fixed tuples of words to row numbers; laid out like `word_table.py`.

A slot is a pair (hash, row + 1). A hash is not a key: the tuple behind it is compared before a row is found.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import inner, kernel, read, write
from snapshot_engine.kernels.memory import address_of, load_word, prefetch
from snapshot_engine.kernels.mixing import combine, mix
from snapshot_engine.kernels.word_table import AHEAD

Tuples = npt.NDArray[np.int64]
Slots = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int32]


@kernel((read(types.int64, 2), write(types.uint64)))
def hash_tuples(tuples: Tuples, out: Hashes) -> None:
    for i in range(len(tuples)):
        state = mix(np.uint64(tuples[i, 0]))
        for j in range(1, tuples.shape[1]):
            state = combine(state, np.uint64(tuples[i, j]))
        out[i] = state


@inner
def _same_words(left: int, right: int, count: int) -> bool:
    position = 0
    while position < 8 * count:
        if load_word(left + position) != load_word(right + position):
            return False
        position += 8
    return True


@kernel(
    (
        read(types.int64, 2),
        read(types.uint64),
        types.int64,
        write(types.int64),
        types.uint64,
        write(types.int64, 2),
        write(types.uint64),
        types.int64,
        write(types.int32),
    )
)
def add_tuples(
    new: Tuples,
    new_hashes: Hashes,
    begin: int,
    slots: Slots,
    shift: int,
    tuples: Tuples,
    hashes: Hashes,
    count: int,
    rows: Rows,
) -> tuple[int, int]:
    """As `add_words`."""
    mask = (len(slots) >> 1) - 1
    width = new.shape[1]
    size = 8 * width
    source, kept, start = address_of(new), address_of(tuples), address_of(slots)
    for i in range(begin, len(new)):
        if i + AHEAD < len(new):
            prefetch(start + 16 * np.int64(new_hashes[i + AHEAD] >> np.uint64(shift)))
            row = slots[2 * np.int64(new_hashes[i + AHEAD // 2] >> np.uint64(shift)) + 1]
            prefetch(kept + max(row - 1, 0) * size)
        wanted = np.int64(new_hashes[i])
        slot = np.int64(new_hashes[i] >> np.uint64(shift))
        while True:
            row = slots[2 * slot + 1]
            if row == 0:
                if count == len(hashes):
                    return count, i
                for column in range(new.shape[1]):
                    tuples[count, column] = new[i, column]
                hashes[count] = new_hashes[i]
                count += 1
                slots[2 * slot] = wanted
                slots[2 * slot + 1] = count
                rows[i] = count - 1
                break
            if slots[2 * slot] == wanted and _same_words(source + i * size, kept + (row - 1) * size, width):
                rows[i] = row - 1
                break
            slot = (slot + 1) & mask
    return count, len(new)


@kernel(
    (
        read(types.int64, 2),
        read(types.uint64),
        read(types.int64),
        types.uint64,
        read(types.int64, 2),
        write(types.int32),
    )
)
def find_tuples(wanted: Tuples, hashes: Hashes, slots: Slots, shift: int, tuples: Tuples, rows: Rows) -> None:
    """The row of each tuple, -1 where it has none."""
    mask = (len(slots) >> 1) - 1
    width = wanted.shape[1]
    size = 8 * width
    source, kept, start = address_of(wanted), address_of(tuples), address_of(slots)
    for i in range(len(wanted)):
        if i + AHEAD < len(wanted):
            prefetch(start + 16 * np.int64(hashes[i + AHEAD] >> np.uint64(shift)))
            row = slots[2 * np.int64(hashes[i + AHEAD // 2] >> np.uint64(shift)) + 1]
            prefetch(kept + max(row - 1, 0) * size)
        hash_ = np.int64(hashes[i])
        slot = np.int64(hashes[i] >> np.uint64(shift))
        while slots[2 * slot + 1] != 0:
            if slots[2 * slot] == hash_:
                row = slots[2 * slot + 1] - 1
                if _same_words(source + i * size, kept + row * size, width):
                    break
            slot = (slot + 1) & mask
        rows[i] = slots[2 * slot + 1] - 1


@kernel((read(types.uint64), types.int64, write(types.int64), types.uint64))
def rehash(hashes: Hashes, skipped: int, slots: Slots, shift: int) -> None:
    """Fill empty slots from the rows' hashes; the row `skipped` stands for no key."""
    mask = (len(slots) >> 1) - 1
    for row in range(len(hashes)):
        if row == skipped:
            continue
        slot = np.int64(hashes[row] >> np.uint64(shift))
        while slots[2 * slot + 1] != 0:
            slot = (slot + 1) & mask
        slots[2 * slot] = np.int64(hashes[row])
        slots[2 * slot + 1] = row + 1
