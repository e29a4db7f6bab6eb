import pytest

from snapshot_engine.protocol.restarts import GiveUp, RestartAfter, RestartBudget, RestartConfig


def delays(budget, count, random=0.5, region=0):
    return [budget.failed(region, "boom", random, float(i)).delay for i in range(count)]


def test_the_first_restart_is_made_at_once_and_later_ones_wait_longer():
    budget = RestartBudget(RestartConfig(per_region=None, per_job=None))
    assert delays(budget, 5) == [0.0, 1.0, 1.5, 2.25, 3.375]


def test_the_wait_has_a_maximum():
    budget = RestartBudget(RestartConfig(per_region=None, per_job=None))
    assert delays(budget, 300)[-1] == 60.0


@pytest.mark.parametrize(("random", "expected"), [(0.0, 0.9), (0.5, 1.0), (0.999999, 1.1)])
def test_jitter_varies_the_wait(random, expected):
    budget = RestartBudget(RestartConfig(jitter=0.1))
    budget.failed(0, "boom", random, 0.0)
    assert budget.failed(0, "boom", random, 1.0).delay == pytest.approx(expected, abs=1e-4)


def test_a_spent_region_budget_gives_up_with_the_history():
    budget = RestartBudget(RestartConfig(per_region=2))
    delays(budget, 2)
    verdict = budget.failed(0, "the last straw", 0.5, 9.0)
    assert isinstance(verdict, GiveUp)
    assert "region 0 has used up its 2 restarts" in verdict.reason
    assert "the last straw" in verdict.reason
    assert [failure.at for failure in verdict.history] == [0.0, 1.0, 9.0]


def test_the_jobs_budget_counts_over_all_regions():
    budget = RestartBudget(RestartConfig(per_region=2, per_job=3))
    for region in range(3):
        assert isinstance(budget.failed(region, "boom", 0.5, 0.0), RestartAfter)
    verdict = budget.failed(3, "boom", 0.5, 1.0)
    assert isinstance(verdict, GiveUp)
    assert "the job has used up its 3 restarts" in verdict.reason


def test_a_quiet_time_gives_the_budget_back():
    budget = RestartBudget(RestartConfig(per_region=1, per_job=1, quiet_time=100.0))
    budget.failed(0, "boom", 0.5, 0.0)
    budget.running(0, 1.0)
    budget.none_is_down(1.0)
    assert budget.failed(0, "boom", 0.5, 101.0) == RestartAfter(0.0)


def test_the_jobs_budget_is_not_given_back_while_a_region_is_down():
    budget = RestartBudget(RestartConfig(per_region=None, per_job=2, quiet_time=100.0))
    for start in (0.0, 200.0):
        assert isinstance(budget.failed(1, "does not come up", 0.5, start), RestartAfter)
        budget.running(0, start + 1.0)  # was taken along, and is back
    assert isinstance(budget.failed(1, "does not come up", 0.5, 400.0), GiveUp)


def test_the_jobs_quiet_time_begins_once():
    budget = RestartBudget(RestartConfig(per_region=None, per_job=1, quiet_time=100.0))
    budget.failed(0, "boom", 0.5, 0.0)
    for now in (1.0, 90.0):
        budget.none_is_down(now)
    assert isinstance(budget.failed(0, "boom", 0.5, 101.0), RestartAfter)


def test_time_that_was_spent_being_down_is_not_quiet():
    budget = RestartBudget(RestartConfig(per_region=1, quiet_time=100.0))
    budget.failed(0, "boom", 0.5, 0.0)
    assert isinstance(budget.failed(0, "boom", 0.5, 500.0), GiveUp)


def test_too_short_a_run_gives_nothing_back():
    budget = RestartBudget(RestartConfig(quiet_time=100.0))
    budget.failed(0, "boom", 0.5, 0.0)
    budget.running(0, 1.0)
    assert budget.failed(0, "boom", 0.5, 100.0) == RestartAfter(1.0)


def test_a_job_of_many_regions_survives_the_loss_of_all_of_them():
    assert RestartConfig(per_region=10, per_job=30).for_regions(100).per_job == 1000
    assert RestartConfig(per_region=10, per_job=30).for_regions(1).per_job == 30
    assert RestartConfig(per_region=10, per_job=None).for_regions(100).per_job is None


@pytest.mark.parametrize(("first", "expected"), [(1.0, 60.0), (0.0, 0.0)])
def test_the_wait_stays_a_number_after_any_count_of_restarts(first, expected):
    config = RestartConfig(first_delay=first, factor=100.0, jitter=0.0, per_region=None, per_job=None)
    budget = RestartBudget(config)
    for _ in range(1000):
        after = budget.failed(0, "crash", 0.5, now=0.0)
    assert after == RestartAfter(expected)
