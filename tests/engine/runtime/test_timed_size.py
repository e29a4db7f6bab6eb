"""Slices follow the time they take: small where rows are slow, whole batches where they are quick."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from snapshot_engine.runtime.timed_size import ENOUGH_SECONDS, MOST_ROWS, TimedSize

BATCH = 16_384


def sizes(seconds_for: Callable[[int], float], slices: int, size: TimedSize | None = None) -> list[int]:
    """How many rows are taken each time, when there are always enough."""
    size = size or TimedSize()
    taken = []
    for _ in range(slices):
        taken.append(min(size.rows, BATCH))
        size.took(taken[-1], seconds_for(taken[-1]))
    return taken


def test_quick_rows_come_in_whole_batches_after_a_few_slices() -> None:
    assert sizes(lambda rows: 0.0002 + rows * 1e-6, 6) == [1, 16, 256, 4096, BATCH, BATCH]


@pytest.mark.parametrize("seconds_per_row", [0.0005, 0.005, 0.02])
def test_slow_rows_come_in_slices_of_about_the_time_wanted(seconds_per_row: float) -> None:
    taken = sizes(lambda rows: rows * seconds_per_row, 20)
    assert max(taken) * seconds_per_row <= ENOUGH_SECONDS
    assert min(taken[5:]) * seconds_per_row > 0.7 * ENOUGH_SECONDS


def test_rows_that_take_longer_than_a_slice_come_almost_alone() -> None:
    assert set(sizes(lambda rows: rows * 0.7, 30)) == {1, 2}


def test_rows_slower_than_the_patience_come_alone() -> None:
    assert set(sizes(lambda rows: rows * 1.2, 30, TimedSize(patience=1.0))) == {1}


def test_rows_that_become_slow_are_taken_in_smaller_slices_at_once() -> None:
    size = TimedSize()
    sizes(lambda rows: rows * 1e-5, 10, size)
    assert sizes(lambda rows: rows * 1e-3, 6, size)[-1] == 50


def test_a_slow_start_is_forgotten() -> None:
    size = TimedSize()
    size.took(1, 3.0)
    assert sizes(lambda rows: rows * 1e-6, 5, size) == [1, 16, 256, 4096, BATCH]


@pytest.mark.parametrize("seconds_per_call", [0.1, 0.6, 1.9])
def test_a_call_that_takes_its_time_whatever_the_rows_gets_many_of_them(seconds_per_call: float) -> None:
    """Smaller slices would not be any quicker."""
    taken = sizes(lambda rows: seconds_per_call + rows * 1e-6, 60)[20:]
    assert sum(taken) / len(taken) > BATCH / 2


def test_the_end_of_a_batch_makes_the_next_slice_no_smaller_than_it_should_be() -> None:
    size = TimedSize()
    size.rows = BATCH
    size.took(10, 10 * 1e-6)
    assert size.rows == BATCH
    size.took(10, 10 * 1e-3)
    assert size.rows == 50


def test_rows_that_take_no_time_at_all_are_not_taken_without_end() -> None:
    size = TimedSize()
    for _ in range(20):
        size.took(size.rows, 0.0)
    assert size.rows == MOST_ROWS
