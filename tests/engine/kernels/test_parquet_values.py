"""Pages as Parquet's specification describes them, whole, cut off and damaged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.kernels.memory import COPY_SLACK
from snapshot_engine.kernels.parquet_values import copy_values, find_values, total_length, unpack_indices


def page_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)


def dictionary_page(strings: Sequence[bytes]) -> bytes:
    return b"".join(len(string).to_bytes(4, "little") + string for string in strings)


def varint(number: int) -> bytes:
    out = b""
    while number >= 128:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def packed_run(numbers: Sequence[int], width: int) -> bytes:
    """Groups of eight; the last one is filled up."""
    groups = -(-len(numbers) // 8)
    bits = sum(number << (width * i) for i, number in enumerate(numbers))
    return varint(groups << 1 | 1) + bits.to_bytes(groups * width, "little")


def repeated_run(number: int, count: int, width: int) -> bytes:
    return varint(count << 1) + number.to_bytes((width + 7) // 8, "little")


def unpacked(page: bytes, count: int, limit: int, begin: int = 0) -> list[int] | None:
    out = np.full(count, -7, np.int32)
    return [int(number) for number in out] if unpack_indices(page_of(page), begin, limit, out) else None


STRINGS = [b"", b"a", b"ab", "ä".encode(), b"x" * 7, b"y" * 16, b"z" * 200, b"\0\0", b"last"]


def test_strings_come_out_in_the_order_of_the_indices() -> None:
    page, starts = page_of(dictionary_page(STRINGS)), np.empty(len(STRINGS) + 1, np.int32)
    assert find_values(page, starts) == 200
    indices = np.array([8, 0, 6, 6, 1, 2, 3, 4, 5, 7, 8, 8], np.int32)
    expected = [STRINGS[index] for index in indices]
    size = total_length(starts, indices)
    assert size == sum(map(len, expected))
    out, offsets = np.empty(size + COPY_SLACK, np.uint8), np.empty(len(indices) + 1, np.int32)
    copy_values(page, starts, indices, out, offsets)
    assert [out[offsets[i] : offsets[i + 1]].tobytes() for i in range(len(indices))] == expected


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_dictionary_that_is_cut_off_is_noticed(cut: int) -> None:
    page = dictionary_page(STRINGS)[:-cut]
    assert find_values(page_of(page), np.empty(len(STRINGS) + 1, np.int32)) == -1


def test_a_dictionary_with_more_than_its_strings_or_with_wild_lengths_is_noticed() -> None:
    starts = np.empty(3, np.int32)
    assert find_values(page_of(dictionary_page([b"a", b"b", b"c"])), starts) == -1
    assert find_values(page_of(b"\xff\xff\xff\xffab" + dictionary_page([b"c"])), starts) == -1
    assert find_values(page_of(dictionary_page([b"c"]) + b"\xff\xff\xff\xffab"), starts) == -1


@given(data=st.data(), width=st.integers(0, 31))
def test_runs_of_both_kinds_and_of_any_width(data: st.DataObject, width: int) -> None:
    limit = 2**width
    number = st.integers(0, limit - 1)
    expected: list[int] = []
    page = bytes([width])
    for packed in data.draw(st.lists(st.booleans(), min_size=1, max_size=6)):
        if packed:
            numbers = data.draw(st.lists(number, min_size=1, max_size=4)) * 8
            page += packed_run(numbers, width)
        else:
            numbers = [data.draw(number)] * data.draw(st.integers(1, 300))
            page += repeated_run(numbers[0], len(numbers), width)
        expected += numbers
    assert unpacked(page, len(expected), limit) == expected
    assert unpacked(page, len(expected) - 1, limit) == expected[:-1], "a last group may be filled up"
    assert unpacked(b"levels" + page, len(expected), limit, begin=6) == expected
    if max(expected):
        assert unpacked(page, len(expected), max(expected)) is None, "no index may be outside the dictionary"
    assert unpacked(page, len(expected) + 8, limit) is None, "there are no more"
    if width:
        assert unpacked(page[:-1], len(expected), limit) in (None, expected), "what was cut off may have been filling"


@given(page=st.binary(max_size=60), count=st.integers(1, 200), begin=st.integers(0, 70))
def test_whatever_lies_in_a_page_gives_indices_of_the_dictionary_or_none(page: bytes, count: int, begin: int) -> None:
    numbers = unpacked(page, count, 100, begin)
    assert numbers is None or all(0 <= number < 100 for number in numbers)
