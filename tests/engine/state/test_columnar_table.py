from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from snapshot_engine.kernels.accumulate import count_rows
from snapshot_engine.state.columnar_table import ColumnarTable, FrozenTable
from snapshot_engine.state.key_codec import KeyCodec


def table_of(type_: pa.DataType, *, tracked: bool) -> ColumnarTable:
    return ColumnarTable(KeyCodec(["key"], [type_]), np.array([0, -7], np.int64), tracked=tracked)


def count(table: ColumnarTable, keys: list[Any], epoch: int) -> None:
    rows = table.add(table.codec.encode([pa.array(keys, table.codec.types[0])]))
    count_rows(rows, table.matrix, 0)
    table.mark(rows, epoch)


def contents(table: ColumnarTable, frozen: FrozenTable) -> dict[Any, list[int]]:
    (keys,) = table.codec.decode(frozen.keys())
    return dict(zip(keys.to_pylist(), frozen.values[:, :2].tolist(), strict=True))


@pytest.mark.parametrize("tracked", [False, True])
def test_new_rows_begin_with_the_initial_values(tracked: bool) -> None:
    table = table_of(pa.int64(), tracked=tracked)
    count(table, list(range(1000)), 1)
    assert contents(table, table.freeze(None)) == {key: [1, -7] for key in range(1000)}


def test_a_frozen_table_stays_as_it_was() -> None:
    table = table_of(pa.string(), tracked=True)
    count(table, ["a", None, "b"], 1)
    everything, changes = table.freeze(None), table.freeze(0)
    for start in range(0, 5000, 100):
        count(table, ["a", None, *map(str, range(start, start + 100))], 2)
    expected = {"a": [1, -7], None: [1, -7], "b": [1, -7]}
    assert contents(table, everything) == contents(table, changes) == expected


def test_changes_are_those_behind_an_epoch() -> None:
    table = table_of(pa.int64(), tracked=True)
    count(table, [1, 2, 3], 1)
    count(table, [2, 4, None], 2)
    count(table, [4, 5], 3)
    assert contents(table, table.freeze(1)) == {2: [2, -7], 4: [2, -7], None: [1, -7], 5: [1, -7]}
    assert contents(table, table.freeze(2)) == {4: [2, -7], 5: [1, -7]}
    assert contents(table, table.freeze(3)) == {}
    assert len(table.freeze(None)) == 6
