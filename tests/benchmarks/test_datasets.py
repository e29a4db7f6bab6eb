"""Both layouts hold the same rows, and each reader's file is in time order."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.nexmark import datasets
from benchmarks.nexmark.events import Stream

STREAM = Stream(keys=50, slice_events=1_000, events_per_second=100)


@pytest.fixture(autouse=True)
def small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "DATASETS", tmp_path)
    monkeypatch.setattr(datasets, "ROW_GROUP", 100)


def rows_of(files: list[Path]) -> list[dict]:
    return pa.concat_tables([pq.read_table(file) for file in files]).to_pylist()


def test_partitions_hold_the_rows_of_the_slices_and_each_is_in_time_order() -> None:
    dataset = datasets.open_dataset(STREAM, slices=3)
    partitions = dataset.partition_files("bid", 2)
    everything = rows_of(dataset.slice_files("bid"))
    assert sorted(map(repr, rows_of(partitions))) == sorted(map(repr, everything))
    for file in partitions:
        times = pq.read_table(file)["ts"].to_pylist()
        assert times == sorted(times)


def test_a_longer_dataset_begins_with_the_shorter_one() -> None:
    short, long = datasets.open_dataset(STREAM, 1), datasets.open_dataset(STREAM, 2)
    assert long.slice_files("auction")[:1] == short.slice_files("auction")


def test_other_parameters_never_share_files() -> None:
    other = Stream(**{**STREAM.parameters(), "seed": 2})
    assert datasets.open_dataset(STREAM, 1).directory != datasets.open_dataset(other, 1).directory


def test_rows_are_counted_over_all_tables_of_a_query() -> None:
    assert datasets.open_dataset(STREAM, 2).rows(("person", "auction")) == 2 * (20 + 60)
