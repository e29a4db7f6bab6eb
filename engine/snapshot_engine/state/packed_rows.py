"""Keys of several columns, at least one of them strings, as one byte string each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.accumulate import ALL_VALID
from snapshot_engine.kernels.arrow_views import (
    ByteStrings,
    Words,
    byte_strings_of,
    is_wordlike,
    validity,
    words_of,
)
from snapshot_engine.kernels.memory import COPY_SLACK
from snapshot_engine.kernels.row_packing import (
    add_lengths,
    pack_byte_strings,
    pack_marks,
    pack_words,
    unpack_byte_strings,
    unpack_marks,
    unpack_offsets,
    unpack_words,
)
from snapshot_engine.state.stored_columns import array_of_strings, array_of_words

Validity = npt.NDArray[np.bool_]


def pack_rows(arrays: Sequence[pa.Array]) -> ByteStrings:
    valid = [validity(array) for array in arrays]
    present = [ALL_VALID if mask is None else mask for mask in valid]
    marks = _null_marks(valid, len(arrays[0]))
    columns: list[Words | ByteStrings] = [
        words_of(array) if is_wordlike(array.type) else byte_strings_of(array) for array in arrays
    ]
    offsets = _offsets(columns, present, len(marks), len(arrays[0]))
    packed = np.empty(int(offsets[-1]), np.uint8)
    cursors = offsets[:-1].copy()
    for mark in marks:
        pack_marks(mark, cursors, packed)
    for column, mask in zip(columns, present, strict=True):
        if isinstance(column, ByteStrings):
            pack_byte_strings(column.data, column.offsets, mask, cursors, packed)
        else:
            pack_words(column, mask, cursors, packed)
    return ByteStrings(packed, offsets)


def unpack_rows(strings: ByteStrings, types: Sequence[pa.DataType]) -> list[pa.Array]:
    cursors = strings.offsets[:-1].astype(np.int64)
    marks = []
    for _ in range(_mark_bytes(len(types))):
        mark = np.empty(len(cursors), np.uint8)
        unpack_marks(strings.data, cursors, mark)
        marks.append(mark)
    columns = []
    for number, type_ in enumerate(types):
        valid = marks[number // 8] >> (number % 8) & 1 == 0
        unpack = _unpack_words if is_wordlike(type_) else _unpack_strings
        columns.append(unpack(strings.data, cursors, valid, type_))
    return columns


def _mark_bytes(columns: int) -> int:
    return (columns + 7) // 8


def _null_marks(valid: Sequence[Validity | None], rows: int) -> list[npt.NDArray[np.uint8]]:
    marks = [np.zeros(rows, np.uint8) for _ in range(_mark_bytes(len(valid)))]
    for number, mask in enumerate(valid):
        if mask is not None:
            marks[number // 8] |= np.where(mask, 0, 1 << number % 8).astype(np.uint8)
    return marks


def _offsets(columns: Sequence[Words | ByteStrings], present: Sequence[Validity], marks: int, rows: int) -> Words:
    words = sum(not isinstance(column, ByteStrings) for column in columns)
    lengths = np.full(rows, marks + 8 * words, np.int64)
    for column, mask in zip(columns, present, strict=True):
        if isinstance(column, ByteStrings):
            add_lengths(column.data, column.offsets, mask, lengths)
    offsets = np.zeros(rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _unpack_words(packed: npt.NDArray[np.uint8], cursors: Words, valid: Validity, type_: pa.DataType) -> pa.Array:
    words = np.empty(len(cursors), np.int64)
    unpack_words(packed, cursors, words)
    return array_of_words(words, valid, type_)


def _unpack_strings(packed: npt.NDArray[np.uint8], cursors: Words, valid: Validity, type_: pa.DataType) -> pa.Array:
    offsets = np.empty(len(cursors) + 1, np.int64)
    unpack_offsets(packed, cursors, offsets)
    data = np.empty(int(offsets[-1]) + COPY_SLACK, np.uint8)
    unpack_byte_strings(packed, cursors, offsets, data)
    return array_of_strings(ByteStrings(data[: offsets[-1]], offsets), valid, type_)
