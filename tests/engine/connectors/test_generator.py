"""The same rows in every run, at the rate that was asked for."""

from __future__ import annotations

import pickle
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.generated_columns import Choice, EventTimes, Sequence64, UniformFloat, UniformInt
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.protocols import EndOfSplit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


COLUMNS = {
    "id": Sequence64(),
    "key": UniformInt(-3, 4, seed=1),
    "ratio": UniformFloat(seed=2),
    "city": Choice(("Rome", "Oslo", "Lima"), seed=3),
    "ts": EventTimes(per_second=1000, start_ms=5, jitter_ms=2),
}


def test_all_rows_come_once_whatever_the_splits_and_batches(reading: Any) -> None:
    def ids(splits: int, max_rows: int) -> list[int]:
        source = GeneratorSource({"id": Sequence64()}, count=101, splits=splits)
        return sorted(row["id"] for row in reading.source(source, max_rows))

    assert ids(1, 7) == ids(8, 1000) == ids(13, 1) == list(range(101))


def test_a_row_is_the_same_in_every_run_and_every_split(reading: Any) -> None:
    def by_id(splits: int) -> dict[int, Any]:
        return {row["id"]: row for row in reading.source(GeneratorSource(COLUMNS, count=500, splits=splits), 64)}

    assert by_id(1) == by_id(3) == by_id(8)


def test_every_position_can_be_gone_on_from(reading: Any) -> None:
    source = GeneratorSource(COLUMNS, count=100, splits=3)
    for split in source.splits(1):
        reading.every_position(source, split, 8)


def test_a_restored_job_keeps_its_splits_when_their_number_is_changed(reading: Any) -> None:
    old = GeneratorSource({"id": Sequence64()}, count=20, splits=4)
    new = GeneratorSource({"id": Sequence64()}, count=20, splits=2)
    rows = [row["id"] for split in old.splits(1) for row in reading.all(new.open(split, 1))]
    assert sorted(rows) == list(range(4, 20))


def test_columns_have_the_values_they_promise() -> None:
    batch = GeneratorSource(COLUMNS, splits=1).open("0000-of-0001", None).read(20_000)
    assert batch is not None
    keys = Counter(batch.column("key").to_pylist())
    assert sorted(keys) == list(range(-3, 4))
    assert max(keys.values()) < 1.2 * min(keys.values())
    ratios = batch.column("ratio").to_numpy()
    assert 0 <= ratios.min() < 0.01
    assert 0.99 < ratios.max() < 1
    assert set(batch.column("city").to_pylist()) == {"Rome", "Oslo", "Lima"}
    times = batch.column("ts").cast(pa.int64()).to_numpy()
    assert (np.abs(times - 5 - np.arange(20_000)) <= 2).all()
    assert (np.diff(times) < 0).any(), "with jitter, rows are out of order"


def test_another_seed_gives_other_rows() -> None:
    first, second = (bids(seed=seed).open("0000-of-0001", None).read(1000) for seed in (1, 2))
    assert first is not None
    assert second is not None
    assert first.column("auction") != second.column("auction")


def test_bids_are_spread_over_all_keys_and_advance_in_time() -> None:
    source = bids(keys=100, bidders=50, prices=1000, events_per_second=1000, start_ms=7, count=50_000, splits=1)
    batch = source.open("0000-of-0001", None).read(50_000)
    assert batch is not None
    assert batch.schema == source.schema
    auctions = np.bincount(batch.column("auction").to_numpy(), minlength=100)
    assert len(auctions) == 100
    assert auctions.min() > 350
    assert batch.column("bidder").to_numpy().max() == 49
    assert batch.column("price").to_numpy().max() > 990
    assert (batch.column("ts").cast(pa.int64()).to_numpy() == np.arange(50_000) + 7).all()


def test_bids_of_all_splits_advance_side_by_side() -> None:
    source = bids(events_per_second=8000)
    times = [source.open(split, None).read(1000).column("ts")[-1].value for split in source.splits(4)]  # type: ignore[union-attr]
    assert max(times) - min(times) <= 1


def test_an_unbounded_generator_never_ends() -> None:
    source = bids()
    assert not source.bounded
    batch = source.open(source.splits(1)[0], 10**12).read(10)
    assert batch is not None
    assert batch.num_rows == 10


def test_the_rate_is_kept_without_drift() -> None:
    clock = Clock()
    source = GeneratorSource({"id": Sequence64()}, rate=1000, splits=4, clock=clock)
    readers = [source.open(split, None) for split in source.splits(1)]
    rows = 0
    for _ in range(3000):
        clock.now += 0.0037
        batches = [reader.read(16384) for reader in readers]
        rows += sum(batch.num_rows for batch in batches if batch is not None)
    assert abs(rows - 3000 * 0.0037 * 1000) <= 4 * (0.0037 + 0.005) * 250 + 4


def test_a_rate_does_not_make_tiny_batches() -> None:
    clock = Clock()
    reader = GeneratorSource({"id": Sequence64()}, rate=1e6, splits=1, clock=clock).open("0000-of-0001", None)
    sizes = []
    for _ in range(10_000):
        clock.now += 0.0001
        batch = reader.read(16384)
        sizes += [batch.num_rows] if batch is not None else []
    assert min(sizes[1:]) >= 4000


def test_what_fills_a_batch_does_not_wait_for_more() -> None:
    """Or no split would ever be quicker than a batch in each pause, whatever its rate."""
    clock = Clock()
    reader = GeneratorSource({"id": Sequence64()}, rate=1e7, splits=1, clock=clock).open("0000-of-0001", None)
    clock.now += 0.01
    assert [reader.read(10_000).num_rows for _ in range(10)] == [10_000] * 10
    assert reader.read(10_000) is None


def test_after_a_restore_the_time_that_passed_is_not_made_up_for() -> None:
    clock = Clock()
    source = GeneratorSource({"id": Sequence64()}, rate=100, splits=1, clock=clock)
    clock.now += 3600
    reader = source.open("0000-of-0001", 5000)
    clock.now += 0.1
    batch = reader.read(16384)
    assert batch is not None
    assert batch.num_rows in (9, 10)
    assert reader.lag() == 0
    clock.now += 1
    assert reader.lag() in (99, 100)


def test_fewer_rows_than_splits_leave_splits_empty() -> None:
    source = GeneratorSource({"id": Sequence64()}, count=1, splits=3)
    with pytest.raises(EndOfSplit):
        source.open(source.splits(1)[2], None).read(5)


def test_a_function_may_make_the_whole_batch(reading: Any) -> None:
    source = GeneratorSource(lambda offsets: pa.RecordBatch.from_pydict({"twice": offsets * 2}), count=3, splits=1)
    assert reading.source(source) == [{"twice": 0}, {"twice": 2}, {"twice": 4}]


def test_bids_pickle() -> None:
    source = pickle.loads(pickle.dumps(bids(count=10, seed=3)))
    assert source.splits(1) == bids(count=10).splits(1)


@pytest.mark.parametrize("wrong", [{"splits": 0}, {"rate": 0}, {"count": -1}])
def test_senseless_numbers_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        GeneratorSource({"id": Sequence64()}, **wrong)
    with pytest.raises(ValueError, match="at least one column"):
        GeneratorSource({})
    with pytest.raises(ValueError, match=r"keys=0"):
        bids(keys=0)
