"""What is stored once, and that nobody notices."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from snapshot_engine.storage.repeated_columns import LEAST_ROWS, with_repeats_once, with_repeats_spelled_out

ROWS = LEAST_ROWS


def _batch(window: int, nulls: list[int | None] | None = None) -> pa.RecordBatch:
    columns = [
        pa.array(np.full(ROWS, window)),
        pa.array(np.arange(ROWS)),
        pa.array(np.zeros(ROWS, np.uint8)) if nulls is None else pa.array(nulls, pa.uint8()),
        pa.array(["same"] * ROWS),
    ]
    schema = pa.schema(
        [
            pa.field("window", pa.int64(), nullable=False),
            ("key", pa.int64()),
            ("nulls", pa.uint8()),
            ("text", pa.string()),
        ],
        metadata={"table": "groups"},
    )
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _kinds(table: pa.Table) -> list[bool]:
    return [pa.types.is_run_end_encoded(field.type) for field in table.schema]


def test_what_is_the_same_in_all_rows_of_a_batch_is_stored_once() -> None:
    table = pa.Table.from_batches([_batch(0), _batch(10)])
    stored = with_repeats_once(table)
    assert _kinds(stored) == [True, False, True, False]
    assert stored.nbytes < table.nbytes - 8 * len(table)
    back = with_repeats_spelled_out(stored)
    assert back.equals(table) and back.schema.equals(table.schema, check_metadata=True)


@pytest.mark.parametrize("place", [1, ROWS // 3, ROWS - 2])
def test_one_other_value_anywhere_is_kept(place: int) -> None:
    values = [0] * ROWS
    values[place] = 1
    table = pa.Table.from_batches([_batch(0), _batch(0, values)])
    assert _kinds(with_repeats_once(table)) == [True, False, False, False]


def test_nulls_are_left_alone() -> None:
    for nulls in ([None] * ROWS, [0, *[None] * (ROWS - 2), 0]):
        assert _kinds(with_repeats_once(pa.Table.from_batches([_batch(0, nulls)]))) == [True, False, False, False]


def test_small_tables_and_empty_chunks() -> None:
    table = pa.Table.from_batches([_batch(0).slice(0, 10)])
    assert with_repeats_once(table) is table
    table = pa.Table.from_batches([_batch(3), _batch(5).slice(0, 0)])
    assert with_repeats_spelled_out(with_repeats_once(table)).equals(table)
