from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.kernels.hashing import hash_rows
from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.state.key_groups import owner_of


def expected_parts(batch: pa.RecordBatch, keys: list[str], parallelism: int, key_groups: int) -> list[list[Any]]:
    parts: list[list[Any]] = [[] for _ in range(parallelism)]
    for hash_, row in zip(hash_rows(batch, keys).tolist(), batch.to_pylist(), strict=True):
        parts[owner_of(hash_ % key_groups, parallelism, key_groups)].append(row)
    return parts


def split_rows(partitioner: HashPartitioner, batch: pa.RecordBatch) -> list[list[Any]]:
    parts = partitioner.split(batch)
    assert all(part is None or part.num_rows > 0 for part in parts)
    assert all(part is None or part.schema == batch.schema for part in parts)
    for part in parts:
        if part is not None:
            part.validate(full=True)
    return [[] if part is None else part.to_pylist() for part in parts]


def batch_of_every_kind(rows: int, seed: int) -> pa.RecordBatch:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 50, rows)
    text = [f"{'k' * (n % 20)}{n}" for n in numbers.tolist()]
    holes = [None if n % 7 == 0 else n for n in numbers.tolist()]
    return pa.record_batch(
        {
            "key": numbers,
            "text": text,
            "large": pa.array(text, pa.large_string()),
            "city": pa.array([f"c{n % 5}" for n in numbers.tolist()]).dictionary_encode(),
            "small": numbers.astype(np.int8),
            "half": numbers.astype(np.int16),
            "single": numbers.astype(np.float32),
            "double": rng.random(rows),
            "flag": numbers % 2 == 0,
            "holes": pa.array(holes, pa.int64()),
            "text_holes": pa.array([None if n % 5 == 0 else str(n) for n in numbers.tolist()]),
            "list": pa.array([[n, n + 1] for n in numbers.tolist()]),
            "when": pa.array(numbers, pa.timestamp("ms")),
        }
    )


@pytest.mark.parametrize("keys", [["key"], ["text"], ["city"], ["holes"], ["text_holes", "key"], ["double", "when"]])
@pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
@pytest.mark.parametrize("rows", [1, 2, 5, 1001])
def test_each_row_goes_to_the_owner_of_its_key_group(keys: list[str], parallelism: int, rows: int) -> None:
    batch = batch_of_every_kind(rows, seed=rows)
    for key_groups in (128, 100):
        partitioner = HashPartitioner(keys, parallelism, key_groups)
        assert split_rows(partitioner, batch) == expected_parts(batch, keys, parallelism, key_groups)


def test_slices_of_a_batch_are_split_like_batches_of_their_own() -> None:
    batch = batch_of_every_kind(100, seed=1).slice(13, 50)
    partitioner = HashPartitioner(["text"], 3, 128)
    assert split_rows(partitioner, batch) == expected_parts(batch, ["text"], 3, 128)


def test_an_empty_batch_has_no_parts() -> None:
    empty = batch_of_every_kind(10, seed=1).slice(0, 0)
    assert HashPartitioner(["key"], 1, 128).split(empty) == [None]
    assert HashPartitioner(["text"], 3, 128).split(empty) == [None, None, None]


def test_a_batch_of_one_key_is_handed_on_as_it_is() -> None:
    batch = pa.record_batch({"key": [5] * 10})
    parts = [part for part in HashPartitioner(["key"], 4, 128).split(batch) if part is not None]
    assert len(parts) == 1
    assert parts[0] is batch


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=30)), st.integers(0, 5)), max_size=60),
    st.integers(2, 9),
    st.integers(9, 300),
)
def test_any_strings_and_key_groups(rows: list[tuple[str | None, int]], parallelism: int, key_groups: int) -> None:
    batch = pa.record_batch(
        {"s": pa.array([s for s, _ in rows], pa.string()), "i": pa.array([i for _, i in rows], pa.int64())}
    )
    partitioner = HashPartitioner(["s", "i"], parallelism, key_groups)
    assert split_rows(partitioner, batch) == expected_parts(batch, ["s", "i"], parallelism, key_groups)


def test_a_partitioner_travels_to_the_slots() -> None:
    batch = batch_of_every_kind(50, seed=2)
    partitioner = HashPartitioner(["key"], 3, 128)
    copy = pickle.loads(pickle.dumps(partitioner))
    assert split_rows(copy, batch) == split_rows(partitioner, batch)


def test_more_subtasks_than_key_groups_are_refused() -> None:
    with pytest.raises(ValueError, match="parallelism 5 with 4 key groups"):
        HashPartitioner(["key"], 5, 4)
