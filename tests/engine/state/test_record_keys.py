from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.records import Records, to_records
from snapshot_engine.operators.stream_type import HIDDEN_KEY, StreamType
from snapshot_engine.state.key_groups import owner_of
from snapshot_engine.state.packing import pack
from snapshot_engine.state.record_keys import RecordKeys, key_groups_of

AT_HALF_PAST_TWO = [dt.datetime(2020, 10, 25, hour, 30, tzinfo=dt.UTC) for hour in (0, 1)]
"""By the clocks of Berlin, which were set back in that night."""

COLUMNS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int64(), [0, -1, 2**62, None]),
    "small": (pa.int16(), [0, -1, 7, None]),
    "text": (pa.string(), ["", "a", "Zürich and many more bytes", None]),
    "large": (pa.large_string(), ["", "a", "b", None]),
    "bytes": (pa.binary(), [b"", b"\0", b"abc", None]),
    "bool": (pa.bool_(), [True, False, True, None]),
    "day": (pa.date32(), [dt.date(2024, 1, 1), dt.date(1969, 1, 1), dt.date(1970, 1, 1), None]),
    "at": (pa.timestamp("ms"), [dt.datetime(2024, 1, 1), dt.datetime(1969, 1, 1), dt.datetime(1970, 1, 1), None]),
    "utc": (pa.timestamp("us", "UTC"), [dt.datetime(2024, 1, day, tzinfo=dt.UTC) for day in (1, 2, 3, 4)]),
    "zoned": (pa.timestamp("us", "Europe/Berlin"), [*AT_HALF_PAST_TWO, *AT_HALF_PAST_TWO]),
    "money": (pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-5.00"), Decimal("0.00"), None]),
    "coded": (pa.dictionary(pa.int32(), pa.string()), ["x", "y", "x", None]),
    "struct": (pa.struct([("a", pa.int64()), ("b", pa.string())]), [{"a": 1, "b": "x"}, {"a": 2, "b": None}] * 2),
    "list": (pa.list_(pa.int64()), [[1, 2], [], [1, None], [3]]),
}
SCHEMA = pa.schema([(name, type_) for name, (type_, _) in COLUMNS.items()])
BATCH = pa.RecordBatch.from_arrays([pa.array(values, type_) for type_, values in COLUMNS.values()], schema=SCHEMA)


@pytest.mark.parametrize(
    "columns", [*[(name,) for name in COLUMNS], ("int", "text"), ("at", "coded", "bool"), ("int", "zoned")], ids=str
)
def test_a_key_taken_from_a_row_has_the_key_group_by_which_the_row_was_routed(columns: tuple[str, ...]) -> None:
    reader = KeyReader(columns, StreamType(SCHEMA))
    keys = reader.of_batch(BATCH)
    assert keys == reader.of(BATCH, to_records(BATCH, StreamType(SCHEMA)))
    assert len({hash(key) for key in keys}) > 0
    groups = reader.keys.groups(keys, 100)
    assert groups.tolist() == key_groups_of(BATCH, columns, 100).tolist()
    parts = HashPartitioner(columns, 3, 100).split(BATCH)
    routed = {tuple(row): subtask for subtask, part in enumerate(parts) if part for row in _rows(part, columns)}
    for row, group in zip(_rows(BATCH, columns), groups.tolist(), strict=True):
        assert routed[tuple(row)] == owner_of(group, 3, 100)
    assert reader.keys.decode(reader.keys.encode(keys)) == keys


def _rows(batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[list[str]]:
    return [[repr(row[name]) for name in columns] for row in batch.to_pylist()]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=20), st.integers(1, 1000))
def test_key_groups_are_in_range(keys: list[int | None], key_groups: int) -> None:
    groups = RecordKeys([pa.int64()]).groups(keys, key_groups)
    assert len(groups) == len(keys)
    assert np.all((groups >= 0) & (groups < key_groups))


NANS = [math.nan, float("nan"), -math.nan]
FLOAT_KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "double": (pa.float64(), NANS),
    "half": (pa.float16(), [np.float16(value) for value in NANS]),
    "list": (pa.list_(pa.float32()), [[1.0, value] for value in NANS]),
    "struct": (pa.struct([("x", pa.float64())]), [{"x": value} for value in NANS]),
    "map": (pa.map_(pa.string(), pa.float64()), [[("x", value)] for value in NANS]),
}


@pytest.mark.parametrize("columns", [*[(name,) for name in FLOAT_KEYS], ("double", "list")], ids=str)
def test_not_a_number_is_one_key_also_after_a_restore(columns: tuple[str, ...]) -> None:
    schema = pa.schema([(name, type_) for name, (type_, _) in FLOAT_KEYS.items()])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(values, type_) for type_, values in FLOAT_KEYS.values()], schema=schema
    )
    reader = KeyReader(columns, StreamType(schema))
    keys = reader.of_batch(batch)
    restored = reader.keys.decode(reader.keys.encode(keys))
    later = reader.of(batch, to_records(batch, StreamType(schema)))
    assert len({*keys, *restored, *later}) == 1


def test_a_key_function_s_key_is_seen_unpacked() -> None:
    schema = pa.schema([("v", pa.int64()), (HIDDEN_KEY, pa.binary())])
    reader = KeyReader([HIDDEN_KEY], StreamType(schema))
    batch = pa.record_batch({"v": [1], HIDDEN_KEY: [pack((1, "a"))]}, schema=schema)
    (key,) = reader.of(batch, to_records(batch, StreamType(schema)))
    assert reader.for_user(key) == (1, "a")


def test_keys_of_records_that_were_never_a_batch() -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    records = Records([{"b": "x", "a": 1}, (2, "y")])
    stream = StreamType(schema)
    assert KeyReader(["b"], stream).of(records, to_records(records, stream)) == ["x", "y"]
    assert KeyReader(["b", "a"], stream).of(records, to_records(records, stream)) == [("x", 1), ("y", 2)]


@pytest.mark.parametrize("columns", [("at",), ("at", "n")])
def test_the_hour_that_comes_twice_in_autumn_has_two_keys(columns: tuple[str, ...]) -> None:
    schema = pa.schema([("at", COLUMNS["zoned"][0]), ("n", pa.int64())])
    batch = pa.record_batch([pa.array([*AT_HALF_PAST_TWO, None] * 2, schema.field("at").type), [1] * 6], schema=schema)
    reader = KeyReader(columns, StreamType(schema))
    keys = reader.of_batch(batch)
    assert keys == reader.of(batch, to_records(batch, StreamType(schema)))
    assert len(set(keys)) == 3
    assert keys == reader.keys.decode(reader.keys.encode(keys))
    shown = [reader.for_user(key) for key in keys]
    assert list(map(repr, shown)) == [repr(row[0] if len(columns) == 1 else row) for row in _tuples(batch, columns)]


def _tuples(batch: pa.RecordBatch, columns: tuple[str, ...]) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in columns) for row in batch.to_pylist()]
