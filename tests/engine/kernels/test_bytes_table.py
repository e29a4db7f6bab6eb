"""The table of byte strings: what is in a slot must never be taken for a string that it does not stand for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from snapshot_engine.kernels.bytes_table import (
    SLOT_WORDS,
    add_byte_strings,
    find_byte_strings,
    move_byte_strings,
    new_notes,
)
from snapshot_engine.kernels.memory import COPY_SLACK


class Table:
    """The kernels with memory for `rows` rows and 2**bits slots."""

    def __init__(self, bits: int, rows: int, arena: int = 1 << 16) -> None:
        self.shift = 64 - bits
        self.slots = np.zeros(SLOT_WORDS << bits, np.int64)
        self.arena = np.empty(arena, np.uint8)
        self.ends = np.zeros(rows + 1, np.int64)
        self.size = 0

    def add(self, strings: Sequence[bytes], offset_type: Any = np.int32) -> list[int]:
        """The rows of as many strings as there was room for."""
        data, offsets = laid_out(strings, offset_type)
        rows = np.full(len(strings), -7, np.int32)
        self.size, done = add_byte_strings(
            data, offsets, 0, self.slots, self.shift, self.arena, self.ends, self.size, new_notes(), rows
        )
        return [int(row) for row in rows[:done]]

    def find(self, strings: Sequence[bytes], offset_type: Any = np.int32) -> list[int]:
        data, offsets = laid_out(strings, offset_type)
        rows = np.empty(len(strings), np.int32)
        find_byte_strings(data, offsets, self.slots, self.shift, self.arena, self.ends, new_notes(), rows)
        return [int(row) for row in rows]

    def kept(self) -> list[bytes]:
        return [self.arena[self.ends[row] : self.ends[row + 1]].tobytes() for row in range(self.size)]


def laid_out(strings: Sequence[bytes], offset_type: Any) -> tuple[Any, Any]:
    """Not from zero on, as in a slice, and with nothing behind the last string that could be read."""
    data = np.frombuffer(b"before" + b"".join(strings), np.uint8)
    offsets = np.cumsum([len(b"before"), *map(len, strings)]).astype(offset_type)
    return data, offsets


def alike() -> list[bytes]:
    """Strings that differ in as little as two strings can, of all lengths at which something else is done."""
    found: dict[bytes, None] = {}
    for length in (0, 1, 2, 7, 8, 9, 12, 15, 16, 17, 23, 24, 25, 31, 32, 33, 100):
        for filler in (b"a", b"\0", b"\xff"):
            same = filler * length
            found[same] = None
            for position in range(length):
                found[same[:position] + b"b" + same[position + 1 :]] = None
    return list(found)


@pytest.mark.parametrize("offset_type", [np.int32, np.int64])
def test_strings_that_differ_in_one_byte_or_in_length_are_different_rows(offset_type: Any) -> None:
    strings = alike()
    table = Table(bits=12, rows=len(strings))
    assert table.find(strings, offset_type) == [-1] * len(strings)
    numbers = list(range(len(strings)))
    assert table.add(strings, offset_type) == numbers
    assert table.kept() == strings
    assert table.add(strings[::-1], offset_type) == numbers[::-1]
    assert table.find(strings, offset_type) == numbers
    for string, number in zip(strings, numbers, strict=True):
        assert table.find([string], offset_type) == [number], "also as the last of all the bytes"


def test_a_slot_that_holds_the_same_words_is_not_yet_the_same_long_string() -> None:
    """A hash that is taken for another string's: the slot of one is given the words of the other."""
    one, other = b"the first of them, long", b"another one, quite long"
    table = Table(bits=4, rows=4)
    assert table.add([one]) == [0]
    words = Table(bits=4, rows=4)
    words.add([other])
    used = np.flatnonzero(words.slots.reshape(-1, SLOT_WORDS)[:, 2])[0]
    table.slots[:] = words.slots
    assert table.slots[SLOT_WORDS * used + 2] & 0xFFFFFFFF == 1, "row 0, which is another string"
    assert table.find([other]) == [-1]
    assert table.add([other, other]) == [1, 1]


def test_a_full_table_is_searched_round_its_end() -> None:
    strings = [f"k{number}".encode() for number in range(15)]
    table = Table(bits=4, rows=15)
    assert table.add(strings) == list(range(15))
    assert table.find(strings) == list(range(15))
    assert table.find([b"k15", b"another that is not there"]) == [-1, -1]


def test_adding_stops_where_there_is_no_room_for_a_row_and_goes_on_with_known_ones() -> None:
    table = Table(bits=4, rows=2)
    assert table.add([b"a", b"b", b"a", b"c", b"a"]) == [0, 1, 0]
    assert table.add([b"b", b"a"]) == [1, 0]


def test_adding_stops_where_the_arena_has_no_room_for_a_string() -> None:
    table = Table(bits=4, rows=8, arena=20 + COPY_SLACK)
    assert table.add([b"x" * 12, b"y" * 8, b"", b"z"]) == [0, 1, 2]
    assert table.kept() == [b"x" * 12, b"y" * 8, b""]


def test_a_larger_table_takes_over_what_a_smaller_one_had() -> None:
    strings = alike()
    small = Table(bits=12, rows=len(strings))
    small.add(strings)
    large = Table(bits=14, rows=len(strings))
    move_byte_strings(small.slots, large.slots, large.shift)
    large.arena, large.ends, large.size = small.arena, small.ends, small.size
    assert large.find(strings) == list(range(len(strings)))
    assert large.add(strings) == list(range(len(strings)))


@pytest.mark.parametrize(
    "name",
    ["auction-{}", "{}", "{:>08}", "{:>016}", "{}-auction", "https://example.org/items/{}/reviews", "user{}@mail.org"],
)
def test_numbered_names_spread_over_the_slots(name: str) -> None:
    """With random slots about a third of the names find theirs taken at five names to eight slots."""
    strings = [name.format(number).encode() for number in range(5 << 11)]
    table = Table(bits=14, rows=len(strings), arena=1 << 20)
    table.add(strings)
    used = table.slots.reshape(-1, SLOT_WORDS)[:, 2] != 0
    runs = np.diff(np.flatnonzero(np.concatenate([[True], ~used, [True]]))) - 1
    assert runs.max() < 150, "no long run of used slots: random ones have runs of about 60"
