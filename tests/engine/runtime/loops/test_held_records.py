"""Records on their way round: in memory up to the budget, the rest on disk, gone when nobody needs them."""

from __future__ import annotations

import errno
import os
import threading

import numpy as np
import pyarrow as pa
import pytest

from snapshot_engine.runtime.loops.held_records import HeldRecords, RecordStore

SCHEMA = pa.schema({"n": pa.int64()})


def batch(first: int, rows: int = 1_000) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(np.arange(first, first + rows))], schema=SCHEMA)


def store_of(batches: float) -> RecordStore:
    return RecordStore(SCHEMA, int(batches * batch(0).nbytes))


def hold(store: RecordStore, batch: pa.RecordBatch) -> HeldRecords:
    (held,) = store.hold(batch)
    return held


def test_what_fits_stays_in_memory():
    store = store_of(2)
    held = [hold(store, batch(0)), hold(store, batch(1_000))]
    assert store.spilled_bytes == 0
    assert store.in_memory == sum(each.size for each in held)


def test_what_does_not_fit_comes_back_from_disk_as_it_was():
    store = store_of(2)
    held = [hold(store, batch(number * 1_000)) for number in range(10)]
    assert store.in_memory <= 2 * held[0].size
    assert store.spilled_bytes == 8 * held[0].size
    assert [each.batch() for each in held] == [batch(number * 1_000) for number in range(10)]


def test_a_slice_is_written_without_the_rest_of_its_batch():
    store = store_of(0)
    held = hold(store, batch(0, 100_000).slice(500, 3))
    assert held.batch().to_pydict() == {"n": [500, 501, 502]}
    assert store._segment is not None and store._segment.size < 1_000


def test_memory_is_free_again_when_the_last_reference_goes_in_whatever_thread():
    store = store_of(1)
    held = [hold(store, batch(0))]
    assert store.in_memory == held[0].size
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    assert store.in_memory == 0


def test_a_file_goes_with_the_last_record_in_it(monkeypatch):
    monkeypatch.setattr("snapshot_engine.runtime.loops.held_records.SEGMENT_BYTES", 20_000)
    store = store_of(0)
    held = [hold(store, batch(0)) for _ in range(6)]
    files = {id(each._read.segment) for each in held}
    assert len(files) == 2
    first = held[0]._read.segment._file
    del held[0:3]
    assert first.fileno() >= 0  # held by this name alone
    assert {id(each._read.segment) for each in held} < files


def test_a_batch_is_in_memory_until_the_last_of_its_slices_has_gone():
    """Each of them keeps all of it alive."""
    store = store_of(10)
    held = list(store.hold(batch(0, 8_000), 1_000))
    assert [each.batch() for each in held] == [batch(number * 1_000) for number in range(8)]
    assert store.in_memory == 8 * batch(0).nbytes
    del held[:7]
    assert store.in_memory == 8 * batch(0).nbytes
    held.clear()
    assert store.in_memory == 0


def test_a_batch_that_is_too_large_goes_to_disk_as_a_whole():
    store = store_of(10)
    held = store.hold(batch(0, 11_000), 1_000)
    assert store.in_memory == 0
    assert [each.batch() for each in held] == [batch(number * 1_000) for number in range(11)]


def test_a_few_rows_of_a_large_batch_are_copied_out_of_it():
    store = store_of(10)
    held = hold(store, batch(0, 1_000_000).slice(500, 100))
    assert held.batch() == batch(500, 100)
    assert held.batch().get_total_buffer_size() < 2_000
    assert store.in_memory < 2_000


def test_over_budget_is_what_is_held_wherever_it_is():
    """Else a loop with gigabytes on disk would let new records in as if it were empty."""
    store = store_of(2)
    held = [hold(store, batch(number)) for number in range(10)]
    assert store.in_memory <= 2 * batch(0).nbytes
    assert store.over_budget
    del held[2:]
    assert not store.over_budget


def test_a_full_disk_is_told_with_what_to_do(monkeypatch, tmp_path):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    store = RecordStore(SCHEMA, 0, str(tmp_path))
    with pytest.raises(OSError, match=rf"written to {tmp_path} \(No space left on device\): give the slots a TMPDIR"):
        store.hold(batch(0))
