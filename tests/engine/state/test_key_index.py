"""The index against a dictionary: for every kind of key, in batches of any size."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.kernels.arrow_views import UnsupportedType
from snapshot_engine.state.key_codec import KeyCodec
from snapshot_engine.state.key_index import ByteIndex, TupleIndex, WordIndex, key_index

VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.sampled_from([0, 1, 2, 3, -1, 2**62, -(2**63), 2**63 - 1]),
    pa.int8(): st.integers(-3, 3),
    pa.uint64(): st.sampled_from([0, 1, 2**63, 2**64 - 1]),
    pa.bool_(): st.booleans(),
    pa.float64(): st.sampled_from([0.0, 1.5, -2.5, 1e300]),
    pa.float32(): st.sampled_from([0.0, 1.5, -2.5]),
    pa.string(): st.text(alphabet="aäb\0", max_size=20),
    pa.large_string(): st.text(alphabet="ab", max_size=3),
    pa.string_view(): st.text(alphabet="ab", max_size=18),
    pa.binary(): st.binary(max_size=3),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.decimal128(10, 2): st.sampled_from([Decimal("1.50"), Decimal("-2.25"), Decimal("0.00")]),
    pa.timestamp("us", "UTC"): st.sampled_from([dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3)]),
    pa.date32(): st.sampled_from([dt.date(2024, 1, day) for day in (1, 2, 3)]),
    pa.dictionary(pa.int32(), pa.string()): st.text(alphabet="ab", max_size=3),
}

TYPE_LISTS = [
    [pa.int64()],
    [pa.int8()],
    [pa.uint64()],
    [pa.bool_()],
    [pa.float64()],
    [pa.float32()],
    [pa.string()],
    [pa.large_string()],
    [pa.string_view()],
    [pa.binary()],
    [pa.binary(3)],
    [pa.decimal128(10, 2)],
    [pa.timestamp("us", "UTC")],
    [pa.dictionary(pa.int32(), pa.string())],
    [pa.int64(), pa.int8()],
    [pa.date32(), pa.float64(), pa.bool_()],
    [pa.string(), pa.int64()],
    [pa.string(), pa.string()],
    [pa.string(), pa.binary(3), pa.float32()],
    [pa.string(), *[pa.int8()] * 8],
]


def columns_of(rows: list[tuple[Any, ...]], types: list[pa.DataType]) -> list[pa.Array]:
    return [pa.array([row[number] for row in rows], type_) for number, type_ in enumerate(types)]


@pytest.mark.parametrize("types", TYPE_LISTS, ids=lambda types: "+".join(map(str, types)))
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_the_index_numbers_keys_as_a_dictionary_would(types: list[pa.DataType], data: st.DataObject) -> None:
    row = st.tuples(*[st.one_of(st.none(), VALUES[type_]) for type_ in types])
    codec = KeyCodec([f"k{number}" for number in range(len(types))], types)
    index = key_index(codec)
    expected: dict[tuple[Any, ...], int] = {}
    for batch in data.draw(st.lists(st.lists(row, max_size=12), max_size=5)):
        if not batch:
            continue
        keys = codec.encode(columns_of(batch, types))
        found = index.find(keys).tolist()
        assert found == [expected.get(key, -1) for key in batch]
        rows = index.add(keys).tolist()
        for key, number in zip(batch, rows, strict=True):
            assert expected.setdefault(key, number) == number
        assert index.find(keys).tolist() == rows
    assert index.size == len(expected)
    assert decoded(codec, index.keys()) == [key for key, _ in sorted(expected.items(), key=lambda item: item[1])]
    backwards = np.arange(index.size, dtype=np.int32)[::-1].copy()
    for large in (False, True):
        taken = codec.decode(index.keys().take(backwards), large=large)
        for array in taken:
            array.validate(full=True)
        assert list(zip(*[array.to_pylist() for array in taken], strict=True)) == [
            key for key, _ in sorted(expected.items(), key=lambda item: -item[1])
        ]


def decoded(codec: KeyCodec, keys: Any) -> list[tuple[Any, ...]]:
    columns = codec.decode(keys)
    for column, type_ in zip(columns, codec.types, strict=True):
        assert column.type == type_
        column.validate(full=True)
    return list(zip(*[column.to_pylist() for column in columns], strict=True))


@pytest.mark.parametrize(
    ("types", "kind"),
    [
        ([pa.int64()], WordIndex),
        ([pa.int64(), pa.int64()], TupleIndex),
        ([pa.string()], ByteIndex),
        ([pa.string(), pa.int64()], ByteIndex),
    ],
)
def test_growing_keeps_every_row(types: list[pa.DataType], kind: type) -> None:
    codec = KeyCodec(["a", "b"][: len(types)], types)
    index = key_index(codec)
    assert isinstance(index, kind)
    rng = np.random.default_rng(3)
    numbers = rng.permutation(20_000)
    expected: dict[int, int] = {}
    for part in np.array_split(np.concatenate([numbers, numbers[:5000]]), 7):
        columns = [
            pa.array([f"key-{n}" * (n % 4) + str(n) for n in part.tolist()]) if type_ == pa.string() else pa.array(part)
            for type_ in types
        ]
        first = index.keys()
        frozen = decoded(codec, first)
        rows = index.add(codec.encode(columns)).tolist()
        assert decoded(codec, first) == frozen, "what was handed out before stays as it was"
        for number, row in zip(part.tolist(), rows, strict=True):
            assert expected.setdefault(number, row) == row
    assert index.size == len(expected) == 20_000
    assert sorted(expected.values()) == list(range(20_000))


def test_zeros_and_nans_are_one_key_each() -> None:
    codec = KeyCodec(["f"], [pa.float64()])
    index = key_index(codec)
    values = np.array([0.0, -0.0, np.nan, np.frombuffer(b"\1\0\0\0\0\0\xf8\xff", np.float64)[0]])
    assert index.add(codec.encode([pa.array(values)])).tolist() == [0, 0, 1, 1]


def test_an_expected_size_leaves_room() -> None:
    codec = KeyCodec(["k"], [pa.int64()])
    for expected in (0, 10, 1000, 12345):
        assert key_index(codec, expected).capacity >= expected


def test_lists_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedType, match="column 'tags' of type list<item: string> cannot be a key"):
        KeyCodec(["tags"], [pa.list_(pa.string())])
