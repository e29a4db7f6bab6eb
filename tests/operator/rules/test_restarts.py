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
