"""Who takes part where, how long runs are, and rates without the cost of starting."""

from dataclasses import replace

import pytest
from benchmarks.engines import Engine
from benchmarks.environments import Environment
from benchmarks.outcomes import takes_part
from benchmarks.plan import EVERY_SECOND, NO_CHECKPOINTS, PLANS, headline, nexmark
from benchmarks.settings import Run
from benchmarks.sizing import MOST_SLICES, slices_for, small_settings

ENGINE = Engine("some", "module", Environment("some", ()), ("tumbling", "q1"))
RUN = Run("some", "q1", 1, "int", 1_000, 2, 0, 2.0, 3.0, 0, "discard", {}, {})


def test_an_engine_that_always_checkpoints_is_not_measured_without_them() -> None:
    always = replace(ENGINE, checkpoints="always")
    assert not takes_part(always, headline(10, NO_CHECKPOINTS))
    assert takes_part(always, headline(10, EVERY_SECOND))
    assert takes_part(always, nexmark("q1", NO_CHECKPOINTS)), "a stateless query has no state to checkpoint"


def test_an_engine_takes_part_only_in_queries_it_has() -> None:
    assert not takes_part(ENGINE, nexmark("q3", EVERY_SECOND))


def test_slices_are_chosen_by_what_a_further_slice_takes() -> None:
    probe = replace(RUN, cpu_seconds=12.0)
    assert slices_for(RUN, probe, probe_slices=10, target_seconds=30) == 50, "1 CPU second each"
    assert slices_for(RUN, replace(RUN, cpu_seconds=2.9), 10, target_seconds=10) == MOST_SLICES


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


@pytest.mark.parametrize("plan", sorted(PLANS))
def test_every_plan_can_be_built_and_has_no_cell_twice(plan: str) -> None:
    cells = PLANS[plan]().cells
    assert len(set(map(repr, cells))) == len(cells)
