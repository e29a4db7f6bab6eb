"""Several key columns as one byte string per row, such that equal strings mean equal keys, and back.

A row is: null marks (one bit per column, eight columns to a byte), then per column a word of eight bytes, or the
length of a byte string in eight bytes and its bytes. Each kernel moves one column and advances the rows' cursors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import kernel, read, write
from snapshot_engine.kernels.memory import (
    address_of,
    copy_bytes,
    load_byte,
    load_word,
    store_byte,
    store_word,
)

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.int64]
Offsets = npt.NDArray[Any]
Validity = npt.NDArray[np.bool_]
"""Empty where all values are valid."""

_VALIDITY = read(types.boolean)
_CURSORS = write(types.int64)


@kernel(
    (read(types.uint8), read(types.int32), _VALIDITY, _CURSORS),
    (read(types.uint8), read(types.int64), _VALIDITY, _CURSORS),
)
def add_lengths(data: Bytes, offsets: Offsets, valid: Validity, lengths: Words) -> None:  # noqa: ARG001 - as the others
    """How much room a column of byte strings takes in each row."""
    for i in range(len(lengths)):
        lengths[i] += 8
        if len(valid) == 0 or valid[i]:
            lengths[i] += offsets[i + 1] - offsets[i]


@kernel((read(types.uint8), _CURSORS, write(types.uint8)))
def pack_marks(marks: Bytes, cursors: Words, out: Bytes) -> None:
    target = address_of(out)
    for i in range(len(cursors)):
        store_byte(target + cursors[i], marks[i])
        cursors[i] += 1


@kernel((read(types.int64), _VALIDITY, _CURSORS, write(types.uint8)))
def pack_words(words: Words, valid: Validity, cursors: Words, out: Bytes) -> None:
    target = address_of(out)
    for i in range(len(cursors)):
        word = words[i] if len(valid) == 0 or valid[i] else 0
        store_word(target + cursors[i], np.uint64(word))
        cursors[i] += 8


@kernel(
    (read(types.uint8), read(types.int32), _VALIDITY, _CURSORS, write(types.uint8)),
    (read(types.uint8), read(types.int64), _VALIDITY, _CURSORS, write(types.uint8)),
)
def pack_byte_strings(data: Bytes, offsets: Offsets, valid: Validity, cursors: Words, out: Bytes) -> None:
    source = address_of(data)
    target = address_of(out)
    for i in range(len(cursors)):
        length = 0
        if len(valid) == 0 or valid[i]:
            length = offsets[i + 1] - offsets[i]
        position = target + cursors[i]
        store_word(position, np.uint64(length))
        # Rows are complete only after all columns: nothing behind the string may be spoiled, so no slack here.
        done = 0
        while length - done >= 8:
            store_word(position + 8 + done, load_word(source + offsets[i] + done))
            done += 8
        while done < length:
            store_byte(position + 8 + done, load_byte(source + offsets[i] + done))
            done += 1
        cursors[i] += 8 + length


@kernel((read(types.uint8), _CURSORS, write(types.uint8)))
def unpack_marks(packed: Bytes, cursors: Words, out: Bytes) -> None:
    for i in range(len(cursors)):
        out[i] = packed[cursors[i]]
        cursors[i] += 1


@kernel((read(types.uint8), _CURSORS, write(types.int64)))
def unpack_words(packed: Bytes, cursors: Words, out: Words) -> None:
    source = address_of(packed)
    for i in range(len(cursors)):
        out[i] = np.int64(load_word(source + cursors[i]))
        cursors[i] += 8


@kernel((read(types.uint8), read(types.int64), write(types.int64)))
def unpack_offsets(packed: Bytes, cursors: Words, out: Words) -> None:
    """The offsets that a column of byte strings will have; the cursors stay for `unpack_byte_strings`."""
    source = address_of(packed)
    out[0] = 0
    for i in range(len(cursors)):
        out[i + 1] = out[i] + np.int64(load_word(source + cursors[i]))


@kernel((read(types.uint8), _CURSORS, read(types.int64), write(types.uint8)))
def unpack_byte_strings(packed: Bytes, cursors: Words, offsets: Words, out: Bytes) -> None:
    """`out` has COPY_SLACK bytes to spare."""
    source = address_of(packed)
    target = address_of(out)
    for i in range(len(cursors)):
        length = offsets[i + 1] - offsets[i]
        copy_bytes(source + cursors[i] + 8, length, source + len(packed), target + offsets[i])
        cursors[i] += 8 + length
