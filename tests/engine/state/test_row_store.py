from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.state.row_store import RowStore

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])


def batch_of(start: int, rows: int) -> pa.RecordBatch:
    numbers = list(range(start, start + rows))
    return pa.record_batch([numbers, [str(n) for n in numbers]], schema=SCHEMA)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.data())
def test_rows_are_found_by_their_numbers(sizes: list[int], data: st.DataObject) -> None:
    store = RowStore(SCHEMA)
    for size in sizes:
        store.add(batch_of(store.size, size))
    assert store.size == sum(sizes)
    wanted = np.array(data.draw(st.lists(st.integers(0, store.size - 1), max_size=50)), np.int32)
    found = np.full(len(wanted), -1)
    for positions, rows in store.take(wanted):
        found[positions] = rows.column("n").to_numpy()
        assert rows.column("s").to_pylist() == [str(n) for n in wanted[positions]]
    assert found.tolist() == wanted.tolist()
    first = data.draw(st.integers(0, store.size))
    assert [n for rows in store.since(first) for n in rows.column("n").to_pylist()] == list(range(first, store.size))


def test_what_was_handed_out_stays_when_batches_are_joined() -> None:
    store = RowStore(SCHEMA)
    store.add(batch_of(0, 3))
    since = store.since(1)
    store.add(batch_of(3, 10))
    assert [rows.column("n").to_pylist() for rows in since] == [[1, 2]]
