"""Who takes part where, how long runs are, and rates without the cost of starting."""

from dataclasses import replace

import pytest
from benchmarks.batching import batch_rows_for
from benchmarks.engines import Engine
from benchmarks.environments import Environment
from benchmarks.outcomes import takes_part
from benchmarks.plan import EVERY_SECOND, NO_CHECKPOINTS, PLANS, headline, nexmark
from benchmarks.settings import Run
from benchmarks.sizing import CHECK_INTERVAL_MS, LARGEST, Try, next_try, small_settings

ENGINE = Engine("some", "module", Environment("some", ()), ("tumbling", "q1"))
RUN = Run("some", "q1", 1, "int", 1_000, 2, 0, 2.0, 3.0, 0, "discard", {}, {})


def test_an_engine_that_always_checkpoints_is_not_measured_without_them() -> None:
    always = replace(ENGINE, checkpoints="always")
    assert not takes_part(always, headline(10, NO_CHECKPOINTS))
    assert takes_part(always, headline(10, EVERY_SECOND))
    assert takes_part(always, nexmark("q1", NO_CHECKPOINTS)), "a stateless query has no state to checkpoint"


def test_an_engine_that_differs_only_in_its_state_takes_no_part_without_any() -> None:
    rocksdb = replace(ENGINE, only_state=True)
    assert takes_part(rocksdb, headline(10, EVERY_SECOND))
    assert not takes_part(rocksdb, nexmark("q1", NO_CHECKPOINTS))


def test_an_engine_takes_part_only_in_queries_it_has() -> None:
    assert not takes_part(ENGINE, nexmark("q3", EVERY_SECOND))


def tried(slices: int, seconds: float) -> Try:
    return Try(slices, replace(RUN, seconds=seconds, cpu_seconds=seconds))


def test_tries_grow_until_one_takes_the_target_beyond_what_a_short_run_takes() -> None:
    assert next_try(RUN, [], 10) == 10
    assert next_try(RUN, [tried(10, 6.5)], 10) == 20, "a slice takes half a second"
    assert next_try(RUN, [tried(10, 3.0), tried(100, 6.0)], 10) == 500
    assert next_try(RUN, [tried(10, 1.5)], 10) == 50, "so short a run says nothing of a thousand slices"


def test_tries_are_repeated_until_they_get_no_quicker() -> None:
    assert next_try(RUN, [tried(50, 20.0)], 10) == 50, "one says nothing"
    assert next_try(RUN, [tried(50, 20.0), tried(50, 16.0)], 10) == 50
    assert next_try(RUN, [tried(50, 20.0), tried(50, 16.0), tried(50, 15.5)], 10) is None
    assert next_try(RUN, [tried(50, 16.0), tried(50, 17.0)], 10) is None
    assert next_try(RUN, [tried(50, 20.0), tried(50, 9.0)], 10) == 100, "warm, it is too short"


def test_the_largest_size_is_good_enough() -> None:
    assert next_try(RUN, [tried(LARGEST, 4.0), tried(LARGEST, 4.0)], 10) is None


def test_a_batch_lasts_as_long_as_the_time_between_checkpoints() -> None:
    told = {"checkpoints": {"batch_rows": [1_000_000, 1_000_000, 1], "batch_ms": [250, 200, 90]}}
    assert batch_rows_for(replace(RUN, facts=told, checkpoint_interval_ms=1_000)) == 5_000_000
    assert batch_rows_for(replace(RUN, facts=told)) == 25_000_000, "without checkpoints there is no need to hurry"
    assert batch_rows_for(replace(RUN, facts={"checkpoints": {"duration_ms": [3]}})) is None


def test_rates_leave_out_what_a_short_run_costs() -> None:
    long = replace(RUN, rows=101_000, seconds=12.0, cpu_seconds=23.0).after(RUN)
    assert long.rows_per_s == pytest.approx(10_000)
    assert long.rows_per_core_s == pytest.approx(5_000)


def test_rates_stay_gross_where_the_run_is_hardly_longer_than_a_short_one() -> None:
    long = replace(RUN, rows=2_000, seconds=2.1).after(RUN)
    assert long.short is None
    assert long.rows_per_s == pytest.approx(2_000 / 2.1)


def test_checks_span_several_windows_with_few_rows() -> None:
    small = small_settings(headline(100_000, EVERY_SECOND), scale=0.05)
    seconds = small.stream.slice_events * small.slices / small.stream.events_per_second
    assert small.stream.slice_events * small.slices <= 20_000
    assert seconds >= 30
    assert small.checkpoint_interval_ms == CHECK_INTERVAL_MS, "they are too short for one each second"
    assert small_settings(headline(100_000, NO_CHECKPOINTS), scale=0.05).checkpoint_interval_ms == NO_CHECKPOINTS


@pytest.mark.parametrize("plan", sorted(PLANS))
def test_every_plan_can_be_built_and_has_no_cell_twice(plan: str) -> None:
    cells = PLANS[plan]().cells
    assert len(set(map(repr, cells))) == len(cells)
