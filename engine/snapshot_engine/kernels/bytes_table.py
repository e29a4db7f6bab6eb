"""A hash table from byte strings to row numbers: open addressing, linear probing, as `word_table.py`.

The strings of all rows lie one behind the other in an arena: row r has arena[ends[r] : ends[r + 1]], which is Arrow's
own layout of a binary column.

A slot is three words: two that are made of the string, then its length and row + 1; a slot whose last word is zero is
empty. Of a string of up to sixteen bytes the two are its first and its last eight bytes: with the length they are the
string, so that a lookup touches its slot and nothing else. Of a longer one the first is a hash of all its bytes. A hash
is not a key: the string itself is then compared too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import inner, kernel, read, write
from snapshot_engine.kernels.memory import (
    COPY_SLACK,
    address_of,
    copy_bytes,
    load_word,
    prefetch,
    store_word,
)
from snapshot_engine.kernels.mixing import first_and_last, hash_bytes

Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[Any]
Slots = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]
Integer = Any
"""Of Python or of NumPy: compiled they are the same."""

SLOT_WORDS = 3

_SHORT = 16
_BLOCK = 64
"""Strings are looked up so many at a time: what each step will need is fetched while the step before goes on."""
_LONGEST = 2**31 - 1
"""What a slot says of the length of all strings that are longer: they are compared anyway."""
_ROW_BITS = 32
_ROW_MASK = 2**32 - 1
_SLOT = 8 * SLOT_WORDS
_NOTE = 8 * 4
"""The bytes of a slot, and of what is noted about a string that is looked up: its slot's words and its first slot."""

_PRIME = np.uint64(0x9FB21C651E98DF25)
_FIBONACCI = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)

_OFFSET_TYPES = (types.int32, types.int64)


@inner
def _home_of(first: np.uint64, last: np.uint64, length: Integer, shift: np.uint64) -> Integer:
    """The slot at which the search for a string begins."""
    state = (first + np.uint64(length)) * _PRIME
    state = (state ^ (state >> _HALF) ^ last) * _FIBONACCI
    state = (state ^ (state >> _HALF)) * _PRIME
    return np.int64(state >> shift)


@inner
def _row_in(slot: Integer) -> Integer:
    """The row in the slot at that address; -1 if it is empty."""
    return (np.int64(load_word(slot + 16)) & _ROW_MASK) - 1


@inner
def _fill(slot: Integer, first: np.uint64, last: np.uint64, length_and_row: Integer) -> None:
    store_word(slot, first)
    store_word(slot + 8, last)
    store_word(slot + 16, np.uint64(length_and_row))


@inner
def _same_bytes(left: Integer, right: Integer, length: Integer) -> bool:
    """Of strings of at least eight bytes."""
    done = 0
    while done < length - 8:
        if load_word(left + done) != load_word(right + done):
            return False
        done += 8
    return bool(load_word(left + length - 8) == load_word(right + length - 8))


@inner
def _note(start: Integer, length: Integer, data_end: Integer, table: Integer, shift: np.uint64, note: Integer) -> None:
    """Write down what the slot of a string must hold and which is looked at first, and have that one fetched."""
    first, last = first_and_last(start, length, data_end)
    if length > _SHORT:
        first = hash_bytes(start, length, data_end)
    shown = min(length, _LONGEST)
    slot = table + _SLOT * _home_of(first, last, shown, shift)
    prefetch(slot)
    prefetch(slot + 16)  # every fourth slot lies in two cache lines
    _fill(note, first, last, shown)
    store_word(note + 24, np.uint64(slot))


@inner
def _fetch_strings(notes: Integer, count: Integer, ends: Integer, arena: Integer) -> None:
    """Of the rows in the slots that are looked at first, which need not be the right ones."""
    for note in range(notes, notes + _NOTE * count, _NOTE):
        prefetch(ends + 8 * max(0, _row_in(np.int64(load_word(note + 24)))))
    for note in range(notes, notes + _NOTE * count, _NOTE):
        row = max(0, _row_in(np.int64(load_word(note + 24))))
        prefetch(arena + np.int64(load_word(ends + 8 * row)))


@inner
def _look_ahead(
    data: Bytes,
    offsets: Offsets,
    begin: Integer,
    end: Integer,
    table: Integer,
    shift: Integer,
    arena: Integer,
    ends: Integer,
    notes: Integer,
) -> None:
    """Notes on the strings from `begin` to `end`. All but the strings are addresses."""
    source = address_of(data)
    longest: Integer = 0
    for i in range(begin, end):
        length = np.int64(offsets[i + 1] - offsets[i])
        note = notes + _NOTE * (i - begin)
        _note(source + offsets[i], length, source + len(data), table, np.uint64(shift), note)
        longest = max(longest, length)
    if longest > _SHORT:
        _fetch_strings(notes, end - begin, ends, arena)


@inner
def _search(
    note: Integer, start: Integer, length: Integer, table: Integer, table_end: Integer, arena: Integer, ends: Integer
) -> Integer:
    """The address of the slot that has the string, or of the empty one where it belongs."""
    first, last, shown = load_word(note), load_word(note + 8), np.int64(load_word(note + 16))
    slot = np.int64(load_word(note + 24))
    while True:
        held = np.int64(load_word(slot + 16))
        if held == 0:
            return slot
        if load_word(slot) == first and load_word(slot + 8) == last and held >> _ROW_BITS == shown:
            if shown <= _SHORT:
                return slot
            end = ends + 8 * ((held & _ROW_MASK) - 1)
            kept = np.int64(load_word(end))
            if np.int64(load_word(end + 8)) - kept == length and _same_bytes(start, arena + kept, length):
                return slot
        slot += _SLOT
        if slot == table_end:
            slot = table


@kernel(
    *[
        (
            read(types.uint8),
            read(offset),
            types.int64,
            write(types.int64),
            types.uint64,
            write(types.uint8),
            write(types.int64),
            types.int64,
            write(types.int64, 2),
            write(types.int32),
        )
        for offset in _OFFSET_TYPES
    ]
)
def add_byte_strings(
    data: Bytes,
    offsets: Offsets,
    begin: int,
    slots: Slots,
    shift: int,
    arena: Bytes,
    ends: Offsets,
    count: int,
    notes: Slots,
    rows: Rows,
) -> tuple[int, int]:
    """As `add_words`; it also stops where the arena has no room left for a string and COPY_SLACK.

    `ends` has room for as many rows as there may be, and one more; `notes` is memory to work with (`new_notes`).
    """
    source, kept = address_of(data), address_of(arena)
    table, first_end, first_note = address_of(slots), address_of(ends), address_of(notes)
    table_end = table + 8 * len(slots)
    for block in range(begin, len(rows), len(notes)):
        block_end = min(block + len(notes), len(rows))
        _look_ahead(data, offsets, block, block_end, table, shift, kept, first_end, first_note)
        note = first_note
        for i in range(block, block_end):
            start, length = source + offsets[i], offsets[i + 1] - offsets[i]
            slot = _search(note, start, length, table, table_end, kept, first_end)
            row = _row_in(slot)
            if row < 0:
                end = ends[count]
                if count + 1 == len(ends) or end + length + COPY_SLACK > len(arena):
                    return count, i
                row = count
                count += 1
                copy_bytes(start, length, source + len(data), kept + end)
                ends[count] = end + length
                shown = np.int64(load_word(note + 16))
                _fill(slot, load_word(note), load_word(note + 8), (shown << _ROW_BITS) | count)
            rows[i] = row
            note += _NOTE
    return count, len(rows)


@kernel(
    *[
        (
            read(types.uint8),
            read(offset),
            read(types.int64),
            types.uint64,
            read(types.uint8),
            read(types.int64),
            write(types.int64, 2),
            write(types.int32),
        )
        for offset in _OFFSET_TYPES
    ]
)
def find_byte_strings(
    data: Bytes, offsets: Offsets, slots: Slots, shift: int, arena: Bytes, ends: Offsets, notes: Slots, rows: Rows
) -> None:
    """The row of each byte string, -1 where it has none."""
    source, kept = address_of(data), address_of(arena)
    table, first_end, first_note = address_of(slots), address_of(ends), address_of(notes)
    table_end = table + 8 * len(slots)
    for block in range(0, len(rows), len(notes)):
        block_end = min(block + len(notes), len(rows))
        _look_ahead(data, offsets, block, block_end, table, shift, kept, first_end, first_note)
        for i in range(block, block_end):
            note = first_note + _NOTE * (i - block)
            start, length = source + offsets[i], np.int64(offsets[i + 1] - offsets[i])
            rows[i] = _row_in(_search(note, start, length, table, table_end, kept, first_end))


@kernel((read(types.int64), write(types.int64), types.uint64))
def move_byte_strings(old: Slots, slots: Slots, shift: int) -> None:
    """Fill empty slots from those of a smaller table: they say all that is needed."""
    first_old, table = address_of(old), address_of(slots)
    for used in range(first_old, first_old + 8 * len(old), _SLOT):
        held = np.int64(load_word(used + 16))
        if held != 0:
            first, last = load_word(used), load_word(used + 8)
            slot = table + _SLOT * _home_of(first, last, held >> _ROW_BITS, np.uint64(shift))
            while load_word(slot + 16) != 0:
                slot += _SLOT
                if slot == table + 8 * len(slots):
                    slot = table
            _fill(slot, first, last, held)


def new_notes() -> Slots:
    """Not the kernels' own: memory that only its address refers to would be given back too early."""
    return np.empty((_BLOCK, _NOTE // 8), np.int64)
