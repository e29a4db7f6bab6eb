"""Slices follow what they lead to: large where a loop only goes round, small where it grows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from snapshot_engine.runtime.loops.slices import (
    CAREFUL_ROWS,
    ENOUGH_OUTPUT,
    FEWEST_ROWS,
    MOST_BYTES,
    MOST_ROWS,
    SliceSize,
    slices,
)


def test_a_body_that_only_goes_round_gets_large_slices():
    size = SliceSize()
    for _ in range(10):
        size.adapt(size.rows, size.rows, size.rows * 16)
    assert size.rows == MOST_ROWS


def test_a_body_that_makes_many_of_one_gets_them_with_care():
    """What it makes of the next generation may be far larger: 100 records of a kilobyte each must not be 200 MB."""
    size = SliceSize()
    for _ in range(10):
        size.adapt(size.rows, size.rows * 100, size.rows * 100 * 20)
    assert size.rows == CAREFUL_ROWS


def test_too_much_output_leads_to_the_right_size_at_once():
    size = SliceSize()
    size.rows = MOST_ROWS
    size.adapt(MOST_ROWS, MOST_ROWS * 100, 50 * ENOUGH_OUTPUT)
    assert size.rows == MOST_ROWS // 50
    size.adapt(size.rows, size.rows * 100, 1000 * ENOUGH_OUTPUT)
    assert size.rows == FEWEST_ROWS


def test_slices_are_bounded_in_rows_and_in_bytes():
    small = pa.record_batch({"n": np.arange(5_000)})
    assert [part.num_rows for part in slices(small, 2_000)] == [2_000, 2_000, 1_000]
    large = pa.record_batch({"n": [b"x" * 1_000] * 1_000})
    parts = slices(large, 2_000)
    assert sum(part.num_rows for part in parts) == 1_000
    assert all(part.nbytes <= MOST_BYTES for part in parts)
