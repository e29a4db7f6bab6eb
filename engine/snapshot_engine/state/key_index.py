"""From keys to dense row numbers: the index that every columnar state is built on.

Rows are numbered in the order in which their keys first came; a row's key never changes, so what `keys()` returns
stays as it is while the index grows.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from snapshot_engine.kernels.arrow_views import ByteStrings, Rows, Words
from snapshot_engine.kernels.bytes_table import (
    SLOT_WORDS,
    add_byte_strings,
    find_byte_strings,
    move_byte_strings,
    new_notes,
)
from snapshot_engine.kernels.memory import COPY_SLACK
from snapshot_engine.kernels.tuple_table import add_tuples, find_tuples, hash_tuples, rehash
from snapshot_engine.kernels.word_table import add_words, find_words, rehash_words
from snapshot_engine.state.encoded_keys import ByteKeys, EncodedKeys, TupleKeys, WordKeys, take_strings
from snapshot_engine.state.key_codec import KeyCodec

_SMALLEST_BITS = 6
_NO_ROW = -1


class KeyIndex(Protocol):
    size: int
    """How many rows there are."""
    slots: Words
    """The hash table itself."""

    @property
    def capacity(self) -> int:
        """How many rows there may be before the index grows."""
        ...

    @property
    def nbytes(self) -> int: ...

    def add(self, keys: Any) -> Rows:
        """The row of each key; keys that are new get the next rows."""
        ...

    def find(self, keys: Any) -> Rows:
        """The row of each key, -1 for those that are not there."""
        ...

    def keys(self) -> EncodedKeys:
        """The keys of all rows, in the order of the rows."""
        ...


def key_index(codec: KeyCodec, expected: int = 0, spare_slots: Words | None = None) -> KeyIndex:
    """An empty index for the keys of `codec`, with room for `expected` of them.

    `spare_slots` come from an index that is used no more: where they fit, no new memory has to be asked for.
    """
    bits = max(_SMALLEST_BITS, int(expected * 8 // 5).bit_length())
    if codec.single and codec.only_words:
        return WordIndex(bits, spare_slots)
    if codec.only_words:
        return TupleIndex(bits, len(codec.types) + 1, spare_slots)
    return ByteIndex(bits, spare_slots)


def _rows_at(bits: int) -> int:
    """At most five of eight slots are used: beyond that, runs of used slots get long."""
    return (1 << bits) * 5 // 8


def _empty_slots(bits: int, spare: Words | None = None, words: int = 2) -> Words:
    """`words` is how many make a slot."""
    if spare is not None and len(spare) == words << bits:
        spare.fill(0)
        return spare
    # Filled rather than `np.zeros`: NumPy asks for large pages only for memory that it does not get zeroed.
    slots = np.empty(words << bits, np.int64)
    slots.fill(0)
    return slots


def _grown(array: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    grown = np.empty((length, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown


def _all_but(null_row: int, size: int) -> npt.NDArray[np.bool_] | None:
    if null_row == _NO_ROW:
        return None
    valid = np.ones(size, np.bool_)
    valid[null_row] = False
    return valid


class WordIndex:
    """Keys that are single words."""

    def __init__(self, bits: int, spare_slots: Words | None = None) -> None:
        self.size = 0
        self._bits = bits
        self.slots = _empty_slots(bits, spare_slots)
        self._words = np.empty(_rows_at(bits), np.int64)
        self._null_row = _NO_ROW

    @property
    def capacity(self) -> int:
        return len(self._words)

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes + self._words.nbytes

    def add(self, keys: WordKeys) -> Rows:
        if keys.valid is None:
            return self._add_words(keys.words)
        rows = np.empty(len(keys), np.int32)
        rows[keys.valid] = self._add_words(keys.words[keys.valid])
        if not keys.valid.all():
            rows[~keys.valid] = self._add_null()
        return rows

    def find(self, keys: WordKeys) -> Rows:
        rows = np.empty(len(keys), np.int32)
        find_words(keys.words, self.slots, 64 - self._bits, rows)
        if keys.valid is not None:
            rows[~keys.valid] = self._null_row
        return rows

    def keys(self) -> WordKeys:
        return WordKeys(self._words[: self.size], _all_but(self._null_row, self.size))

    def _add_words(self, words: Words) -> Rows:
        rows = np.empty(len(words), np.int32)
        done = 0
        while True:
            shift = 64 - self._bits
            self.size, done = add_words(words, done, self.slots, shift, self._words, self.size, rows)
            if done == len(words):
                return rows
            self._grow()

    def _add_null(self) -> int:
        if self._null_row == _NO_ROW:
            if self.size == len(self._words):
                self._grow()
            self._null_row = self.size
            self._words[self.size] = 0
            self.size += 1
        return self._null_row

    def _grow(self) -> None:
        self._bits += 1
        self._words = _grown(self._words, _rows_at(self._bits))
        self.slots = _empty_slots(self._bits)
        rehash_words(self._words[: self.size], self._null_row, self.slots, 64 - self._bits)


class TupleIndex:
    """Keys that are tuples of words, null marks among them."""

    def __init__(self, bits: int, width: int, spare_slots: Words | None = None) -> None:
        self.size = 0
        self._bits = bits
        self.slots = _empty_slots(bits, spare_slots)
        self._tuples = np.empty((_rows_at(bits), width), np.int64)
        self._hashes = np.empty(_rows_at(bits), np.uint64)

    @property
    def capacity(self) -> int:
        return len(self._tuples)

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes + self._tuples.nbytes + self._hashes.nbytes

    def add(self, keys: TupleKeys) -> Rows:
        rows = np.empty(len(keys), np.int32)
        hashes = np.empty(len(keys), np.uint64)
        hash_tuples(keys.tuples, hashes)
        done = 0
        while True:
            self.size, done = add_tuples(
                keys.tuples, hashes, done, self.slots, 64 - self._bits, self._tuples, self._hashes, self.size, rows
            )
            if done == len(keys):
                return rows
            self._grow()

    def find(self, keys: TupleKeys) -> Rows:
        rows = np.empty(len(keys), np.int32)
        hashes = np.empty(len(keys), np.uint64)
        hash_tuples(keys.tuples, hashes)
        find_tuples(keys.tuples, hashes, self.slots, 64 - self._bits, self._tuples, rows)
        return rows

    def keys(self) -> TupleKeys:
        return TupleKeys(self._tuples[: self.size])

    def _grow(self) -> None:
        self._bits += 1
        self._tuples = _grown(self._tuples, _rows_at(self._bits))
        self._hashes = _grown(self._hashes, _rows_at(self._bits))
        self.slots = _empty_slots(self._bits)
        rehash(self._hashes[: self.size], _NO_ROW, self.slots, 64 - self._bits)


class ByteIndex:
    """Keys that are byte strings."""

    def __init__(self, bits: int, spare_slots: Words | None = None) -> None:
        self.size = 0
        self._bits = bits
        self.slots = _empty_slots(bits, spare_slots, SLOT_WORDS)
        self._ends = np.zeros(_rows_at(bits) + 1, np.int64)
        self._arena = np.empty(16 * _rows_at(bits), np.uint8)
        self._null_row = _NO_ROW

    @property
    def capacity(self) -> int:
        return len(self._ends) - 1

    @property
    def nbytes(self) -> int:
        return self.slots.nbytes + self._ends.nbytes + self._arena.nbytes

    def add(self, keys: ByteKeys) -> Rows:
        if keys.valid is None:
            return self._add_strings(keys.strings)
        rows = np.empty(len(keys), np.int32)
        present = np.flatnonzero(keys.valid).astype(np.int32)
        rows[present] = self._add_strings(take_strings(keys.strings, present))
        if len(present) < len(rows):
            rows[~keys.valid] = self._add_null()
        return rows

    def find(self, keys: ByteKeys) -> Rows:
        rows = np.empty(len(keys), np.int32)
        data, offsets = keys.strings
        find_byte_strings(data, offsets, self.slots, 64 - self._bits, self._arena, self._ends, new_notes(), rows)
        if keys.valid is not None:
            rows[~keys.valid] = self._null_row
        return rows

    def keys(self) -> ByteKeys:
        ends = self._ends[: self.size + 1]
        return ByteKeys(ByteStrings(self._arena[: ends[-1]], ends), _all_but(self._null_row, self.size))

    def _add_strings(self, strings: ByteStrings) -> Rows:
        data, offsets = strings
        rows = np.empty(len(offsets) - 1, np.int32)
        notes = new_notes()
        done = 0
        while True:
            self.size, done = add_byte_strings(
                data,
                offsets,
                done,
                self.slots,
                64 - self._bits,
                self._arena,
                self._ends,
                self.size,
                notes,
                rows,
            )
            if done == len(rows):
                return rows
            self._make_room(int(offsets[done + 1] - offsets[done]))

    def _make_room(self, length: int) -> None:
        """For one more row with a string of `length` bytes."""
        if self.size == self.capacity:
            self._grow()
        used = int(self._ends[self.size])
        if used + length + COPY_SLACK > len(self._arena):
            larger = max(2 * len(self._arena), used + length + COPY_SLACK)
            # Strings that `keys()` has handed out stay in the old arena.
            self._arena = _grown(self._arena[:used], larger)

    def _add_null(self) -> int:
        if self._null_row == _NO_ROW:
            self._make_room(0)
            self._null_row = self.size
            self.size += 1
            self._ends[self.size] = self._ends[self.size - 1]
        return self._null_row

    def _grow(self) -> None:
        self._bits += 1
        self._ends = _grown(self._ends, _rows_at(self._bits) + 1)
        smaller = self.slots
        self.slots = _empty_slots(self._bits, words=SLOT_WORDS)
        move_byte_strings(smaller, self.slots, 64 - self._bits)
