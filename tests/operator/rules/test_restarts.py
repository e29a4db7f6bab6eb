"""The budget and the backoff of driver restarts, at their limits."""

import pytest

from streamingjob_operator.draft import LONGEST_WAIT_SECONDS


def crash_and_come_back(world, wait=0.0):
    """One more driver has crashed, and its successor runs."""
    world.crash_driver()
    world.look()
    world.pass_time(wait)
    world.finish_start()


def test_a_generous_budget_and_a_steep_backoff_do_not_leave_the_numbers_behind(world):
    world.spec["recovery"] = {"maxRestarts": 1_000_000, "window": "24h", "backoff": {"multiplier": 100, "jitter": 0}}
    world.start()
    for _ in range(200):
        crash_and_come_back(world, wait=61)
    assert world.status["phase"] == "Running" and world.status["driverGeneration"] == 201


def test_a_backoff_of_ages_can_be_written_down(world):
    world.spec["recovery"] = {"backoff": {"initial": "99999999h", "max": "99999999h"}}
    world.start()
    crash_and_come_back(world)
    world.crash_driver()
    world.look()
    assert world.status["launch"]["notBefore"].startswith("2026-")
    assert world.last.look_again_in <= LONGEST_WAIT_SECONDS


@pytest.mark.parametrize("field", ["readyTimeout", "savepointTimeout"])
def test_a_timeout_of_ages_is_as_good_as_none(running, field):
    running.begin_upgrade(**{field: "99999999h"})
    running.pass_time(86400)
    running.plan_succeeds()
    running.look()
    assert running.step == "Stop" and running.last.look_again_in <= LONGEST_WAIT_SECONDS


def test_a_progress_window_of_ages_is_as_good_as_none(running):
    running.edit(recovery={"progressWindow": "99999999h"})
    running.pass_time(86400)
    running.settle(2)
    assert running.condition("CheckpointsHealthy")[0] == "True"


def test_restarts_older_than_the_window_do_not_count(running):
    """One crash in 9 minutes, with 10 allowed in 10 minutes."""
    for _ in range(30):
        crash_and_come_back(running, wait=9 * 60)
        assert running.status["phase"] == "Running", running.status["error"]


def crash_every(world, seconds, times):
    for number in range(times):
        world.crash_driver()
        world.look()
        if world.status["phase"] == "Failed":
            return number
        world.pass_time(seconds)
        world.finish_start()
    return times


def test_as_many_restarts_as_are_allowed_in_each_window_go_on_for_ever(world):
    world.spec["recovery"] = {"maxRestarts": 10, "window": "10m", "backoff": {"max": "1s"}}
    world.start()
    assert crash_every(world, 61, 60) == 60


def test_more_restarts_than_are_allowed_in_one_window_fail_the_job(world):
    world.spec["recovery"] = {"maxRestarts": 10, "window": "10m", "backoff": {"max": "1s"}}
    world.start()
    assert crash_every(world, 55, 60) == 10
    assert "10 driver restarts within 600 s (recovery.maxRestarts: 10)" in world.status["error"]


def test_a_budget_that_an_older_operator_recorded_still_counts(running):
    running.status["restartBudget"] = {"spent": 10, "lastRestartAt": running.now.isoformat()}
    running.pass_time(60)
    running.crash_driver()
    running.look()
    assert running.status["phase"] == "Failed"
