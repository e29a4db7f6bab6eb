"""Hashes decide key groups in checkpoints: the vectors below must never change."""

from __future__ import annotations

import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.kernels.arrow_views import UnsupportedType
from snapshot_engine.kernels.hashing import hash_array, hash_rows

WORD = 2**64 - 1
NULL = 0x6E756C6C6E756C6C


def mix(word: int) -> int:
    word = (word + 0x9E3779B97F4A7C15) & WORD
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & WORD
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & WORD
    return word ^ word >> 31


def hash_of_bytes(data: bytes) -> int:
    state = (len(data) * 0x9E3779B97F4A7C15) & WORD
    first, last = data[:8].ljust(8, b"\0"), data[-8:].ljust(8, b"\0")
    middle = [data[i : i + 8] for i in range(8, len(data) - 8, 8)]
    for word in (first, *middle, last):
        state = ((state ^ struct.unpack("<Q", word)[0]) * 0x9FB21C651E98DF25) & WORD
        state ^= state >> 32
    return mix(state)


def combine(left: int, right: int) -> int:
    return mix((left * 0x9DDFEA08EB382D69) & WORD ^ right)


def test_fixed_vectors_of_integers() -> None:
    hashes = hash_array(pa.array([0, 1, -1, 2**63 - 1, None]))
    assert [f"{value:x}" for value in hashes.tolist()] == [
        "e220a8397b1dcdaf",
        "910a2dec89025cc1",
        "e4d971771b652c20",
        "2a67d7552e039ea7",
        "6e756c6c6e756c6c",
    ]


def test_fixed_vectors_of_strings() -> None:
    values = [
        "",
        "a",
        "abcdefg",
        "abcdefgh",
        "abcdefghi",
        "0123456789abcdef",
        "0123456789abcdefg",
        "x" * 100,
        "ä",
    ]
    assert [f"{value:x}" for value in hash_array(pa.array(values)).tolist()] == [
        "e220a8397b1dcdaf",
        "b6d61f33c133e315",
        "df74db6777f4e733",
        "26e146da14241659",
        "60fddb55128dfca3",
        "5edaa2c1fe32392d",
        "5d24b0a3851ae095",
        "8c0d6c9baa9fdcf",
        "cc7c5fe62cde30d",
    ]


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (pa.array([0.0, -0.0, 1.5, float("nan")]), [mix(0), mix(0), 0xD6DAB18E1392608A, 0xC72971D82E15BB46]),
        (pa.array([True, False, None]), [mix(1), mix(0), NULL]),
        (pa.array([[1, 2], [2, 1], [], None]), [0xAFBA45E5F1EFC302, 0x3937F6A880128AA3, mix(0), NULL]),
        (pa.array([{"a": 1, "b": "x"}, None]), [0xAC6067A5BA8FE0F4, NULL]),
        (pa.array([Decimal("1.50"), Decimal("-2.25")]), [0xB6BE45C2B645FCD1, 0xA7FBBEB9587A12CD]),
        (pa.nulls(2), [NULL, NULL]),
    ],
)
def test_fixed_vectors_of_other_types(array: pa.Array, expected: list[int]) -> None:
    assert hash_array(array).tolist() == expected


def test_fixed_vectors_of_several_columns() -> None:
    batch = pa.record_batch({"i": [0, 1, None], "s": ["", "a", None]})
    assert [f"{value:x}" for value in hash_rows(batch, ["i", "s"]).tolist()] == [
        "4bd0ebf5d7fa0b27",
        "d9443ed331b45408",
        "1a9aafcc0aad98bc",
    ]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30))
def test_byte_strings_follow_the_definition(values: list[bytes | None]) -> None:
    expected = [NULL if value is None else hash_of_bytes(value) for value in values]
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert hash_array(pa.array(values, type_)).tolist() == expected


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.text(max_size=20)), min_size=1, max_size=20))
def test_rows_combine_the_hashes_of_their_columns(rows: list[tuple[int, str]]) -> None:
    batch = pa.record_batch({"a": pa.array([a for a, _ in rows], pa.int64()), "b": [b for _, b in rows]})
    expected = [combine(mix(a & WORD), hash_of_bytes(b.encode())) for a, b in rows]
    assert hash_rows(batch, ["a", "b"]).tolist() == expected


@pytest.mark.parametrize(
    "type_",
    [
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint16(),
        pa.int32(),
        pa.uint32(),
        pa.uint64(),
        pa.timestamp("ms"),
    ],
)
def test_integers_of_every_width_hash_alike(type_: pa.DataType) -> None:
    values = [0, 1, 100, None]
    narrow = pa.array(values, pa.int64()).cast(type_)
    assert hash_array(narrow).tolist() == hash_array(pa.array(values, pa.int64())).tolist()


@pytest.mark.parametrize("repeat", [1, 50])
def test_encoded_columns_hash_like_plain_ones(repeat: int) -> None:
    values = pa.array(["x", None, "yy", "x", "zzz"] * repeat)
    plain = hash_array(values).tolist()
    assert hash_array(values.dictionary_encode()).tolist() == plain
    assert hash_array(values.dictionary_encode(null_encoding="encode")).tolist() == plain
    assert hash_array(pa.compute.run_end_encode(values)).tolist() == plain
    assert hash_array(pa.chunked_array([values.slice(0, 2), values.slice(2)])).tolist() == plain


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1, 2, None, 4]),
        pa.array([True, False, None, True]),
        pa.array(["a", "bb", None, "dddddddddd"]),
        pa.array([[1], [2, 3], None, []]),
        pa.array([[1, 2], [3, 4], None, [5, None]], pa.list_(pa.int64(), 2)),
        pa.array([{"a": 1}, {"a": None}, None, {"a": 4}]),
        pa.array([Decimal("1.5"), None, Decimal("2.5"), Decimal("3.5")]),
        pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    ],
    ids=lambda array: str(array.type),
)
def test_a_slice_hashes_like_the_whole(array: pa.Array) -> None:
    whole = hash_array(array).tolist()
    assert hash_array(array.slice(1)).tolist() == whole[1:]
    assert hash_array(array.slice(2, 1)).tolist() == whole[2:3]
    assert hash_array(array.slice(0, 0)).tolist() == []


def test_misaligned_buffers_hash_like_aligned_ones() -> None:
    values = np.arange(10, dtype=np.int64)
    shifted = pa.py_buffer(b"x" + values.tobytes()).slice(1)
    array = pa.Array.from_buffers(pa.int64(), 10, [None, shifted])
    assert hash_array(array).tolist() == hash_array(pa.array(values)).tolist()


def test_a_map_is_refused_by_name() -> None:
    array = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(UnsupportedType, match="column 'labels' of type map<string, int64> cannot be a key"):
        hash_rows(pa.record_batch({"labels": array}), ["labels"])
