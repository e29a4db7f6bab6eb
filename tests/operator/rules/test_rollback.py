"""A new spec has a budget of its own; until it has once been ready, spending it leads back to the last good one."""

import pytest

from snapshot_engine.wire.control import FIRST_LINE
from snapshot_engine.wire.status import Phase, SlotStatus

FEW = {"maxRestarts": 2, "window": "24h"}


@pytest.fixture
def running(world):
    world.spec["recovery"] = FEW
    world.start()
    return world


def has(world, phase):
    return lambda: world.status["phase"] == phase


def is_back_at(world, spec_hash):
    return lambda: world.status.get("driver", {}).get("specHash") == spec_hash


def test_a_new_spec_whose_driver_crashes_until_the_budget_is_spent_is_rolled_back(running):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.crash_until(is_back_at(running, good))
    assert running.status["driverGeneration"] == 5, "the old one, the new one and its two restarts, the old one again"
    assert running.status["restartBudget"]["spent"] == 0, "what the new spec spent is not the old one's debt"
    assert running.status["driver"]["restore"]["path"].endswith("upgrade-2")
    running.finish_start()
    assert running.status["phase"] == "Running"
    assert running.condition("Ready") == ("False", "RolledBack")
    assert "recovery.maxRestarts: 2" in running.message("Stalled") and "boom" in running.message("Stalled")


def test_a_rollback_says_that_the_executors_could_not_hold_the_job(running):
    running.upgrade_to_its_start(parallelism=8, executor={"instances": 1})
    running.add_executors()
    slots = SlotStatus(total=1, needed=8)
    running.say(phase=Phase.STARTING, regions=[running.region(0, state="Scheduling")], slots=slots)
    running.look()
    running.pass_time(601)
    running.look()
    assert running.condition("Stalled") == ("True", "RolledBack")
    assert "not ready within 600 s (the job needs 8 slots" in running.message("Stalled")
    assert "executor.instances" in running.message("Stalled")


@pytest.mark.parametrize("rollback", [True, False])
def test_a_start_that_takes_too_long_is_told_with_what_keeps_its_executors_from_starting(running, rollback):
    running.upgrade_to_its_start(rollback=rollback)
    running.add_executors()
    running.change_pod(running.executor_pod(1), phase="Pending", start_problem="ImagePullBackOff: no such image")
    running.say(phase=Phase.STARTING, regions=[running.region(0, state="Scheduling")], error="the driver's own word")
    running.look()
    running.pass_time(601)
    running.look()
    assert running.condition("Stalled") == ("True", "RolledBack" if rollback else "NotReadyInTime")
    told = running.message("Stalled")
    assert "1 executor pods cannot start" in told and "ImagePullBackOff" in told and "the driver's own word" in told


def test_crashes_of_the_old_spec_do_not_count_against_the_new_one(running):
    running.crash_driver()
    running.finish_start()
    running.crash_driver()
    running.settle(2)
    running.pass_time(5)
    running.finish_start()
    assert running.status["restartBudget"]["spent"] == 2
    running.upgrade_to_its_start()
    assert running.status["restartBudget"]["spent"] == 0
    running.crash_driver()
    running.settle(3)
    assert running.step == "Start" and running.driver.living


def test_a_new_spec_that_had_no_last_good_one_fails_when_its_budget_is_spent(world):
    world.spec["recovery"] = FEW
    world.settle(3)
    world.crash_until(has(world, "Failed"))
    assert world.condition("Stalled") == ("True", "RestartsExhausted")


def test_a_spec_that_was_ready_once_is_not_rolled_back_but_fails(running):
    running.upgrade_to_its_start()
    running.finish_start()
    running.crash_until(has(running, "Failed"))
    assert running.status["driver"]["specHash"] == running.status["lastGoodHash"]


def test_without_rollback_a_spec_that_crashes_fails(running):
    running.edit(rollback=False)
    running.upgrade_to_its_start()
    running.crash_until(has(running, "Failed"))
    assert running.condition("Stalled") == ("True", "RestartsExhausted")


def test_a_last_good_spec_that_crashes_too_ends_as_failed_and_says_both(running):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.crash_until(is_back_at(running, good))
    running.crash_until(has(running, "Failed"))
    assert running.condition("Stalled") == ("True", "RestartsExhausted")
    assert "the last good spec runs again" in running.message("Stalled")


def test_a_failed_job_that_is_upgraded_starts_with_a_full_budget(running):
    running.crash_until(has(running, "Failed"))
    running.edit(parallelism=4)
    running.settle(4)
    assert running.step == "Start" and running.status["restartBudget"]["spent"] == 0
    running.finish_start()
    assert running.condition("Ready") == ("True", "Running")


def test_a_resumed_job_whose_spec_was_changed_meanwhile_is_rolled_back_as_well(running):
    good = running.status["lastGoodHash"]
    running.edit(state="Suspended")
    running.settle(2)
    running.end_driver(0, "Stopped", savepoint_path="s3://p/suspend-2")
    running.settle(2)
    running.edit(state="Running", parallelism=4)
    running.settle(4)
    assert running.status["driver"]["specHash"] != good
    running.crash_until(is_back_at(running, good))
    assert running.status["driver"]["restore"]["path"] == "s3://p/suspend-2"


def test_a_resumed_job_that_does_not_get_ready_says_so(running):
    running.edit(state="Suspended")
    running.settle(2)
    running.end_driver(0, "Stopped", savepoint_path="s3://p/suspend-2")
    running.settle(2)
    running.edit(state="Running")
    running.settle(4)
    running.pass_time(601)
    running.look()
    assert running.condition("Stalled") == ("True", "NotReadyInTime")


def test_a_late_spec_that_waits_for_its_next_driver_is_not_launched_once_more(running):
    running.upgrade_to_its_start()
    running.crash_driver()
    running.settle(3)
    running.crash_driver()
    running.look()
    assert "launch" in running.status
    running.pass_time(601)
    running.look()
    assert running.status["driverGeneration"] == 3 and "driver" not in running.status
    running.settle(3)
    assert running.driver.generation == 4
    assert running.status["driver"]["specHash"] == running.status["lastGoodHash"]


def test_a_rolled_back_job_can_be_suspended_and_goes_on_with_the_last_good_spec(running):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.crash_until(is_back_at(running, good))
    running.finish_start()
    running.edit(state="Suspended")
    running.settle(2)
    running.end_driver(0, "Stopped", savepoint_path="s3://p/suspend")
    running.settle(2)
    assert running.status["phase"] == "Suspended"
    running.edit(state="Running")
    running.finish_start()
    assert running.status["driver"]["specHash"] == good
    assert running.status["driver"]["restore"]["path"] == "s3://p/suspend"
    assert running.condition("Ready") == ("False", "RolledBack")


@pytest.mark.parametrize("change", [{"readyTimeout": "20m"}, {"restartNonce": 1}, {"upgradeMode": "LastState"}])
def test_a_refused_spec_is_tried_again_when_the_way_to_it_changes(running, change):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.crash_until(is_back_at(running, good))
    running.finish_start()
    running.edit(**change)
    running.settle(3)
    assert running.step == "Plan", "planned while the last good one runs on"
    assert running.driver.generation == 5


def test_a_savepoint_of_a_rolled_back_job_does_not_try_the_refused_spec_again(running):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.crash_until(is_back_at(running, good))
    running.finish_start()
    running.edit(savepointNonce=1)
    running.settle(3)
    assert "operation" not in running.status and running.condition("Stalled") == ("True", "RolledBack")


def test_pods_that_were_refused_are_asked_for_again_at_another_attempt(running):
    running.dry_run_answer = "an admission webhook is down"
    running.edit(parallelism=4)
    running.settle(3)
    assert running.condition("Stalled") == ("True", "InvalidSpec")
    running.dry_run_answer = None
    running.edit(restartNonce=1)
    running.settle(3)
    assert running.step == "Plan"


def fail_stateless_change(world):
    world.begin_upgrade(parallelism=6, upgradeMode="Stateless")
    world.plan_succeeds()
    world.look()
    world.end_driver(0, "Stopped")
    world.settle(3)
    assert world.step == "Start" and world.status["driver"]["restore"]["ignoreState"]
    world.end_driver(65, error="no such sink")
    world.settle(4)
    assert world.status["driver"]["specHash"] == world.status["lastGoodHash"]


def test_the_rollback_of_a_stateless_change_names_what_the_job_was_before_any_restore(running):
    """Without a name it would be the latest checkpoint, which may be the new job's."""
    fail_stateless_change(running)
    assert running.status["driver"]["restore"] == {"id": FIRST_LINE, "ignoreState": False}
    running.finish_start()
    running.crash_driver()
    running.settle(3)
    assert running.status["driver"]["restore"] == {"id": FIRST_LINE, "ignoreState": False}, "a restart goes on there"


def test_a_change_of_a_stateless_change_that_fails_does_not_hand_its_state_to_the_old_job(running):
    running.begin_upgrade(parallelism=6, upgradeMode="Stateless")
    running.plan_succeeds()
    running.look()
    running.end_driver(0, "Stopped")
    running.settle(3)
    running.say(phase="Recovering", regions=[running.region(0, state="Restarting")])
    running.begin_upgrade(parallelism=7, upgradeMode="Savepoint")
    running.plan_succeeds()
    running.look()
    running.end_driver(0, "Stopped", savepoint_path="s3://p/upgrade-3")
    running.settle(3)
    assert running.step == "Start" and running.status["driver"]["restore"]["path"] == "s3://p/upgrade-3"
    running.end_driver(65, error="no such sink")
    running.settle(5)
    assert running.status["driver"]["specHash"] == running.status["lastGoodHash"]
    assert running.status["driver"]["restore"] == {"id": FIRST_LINE, "ignoreState": False}


def test_the_rollback_of_a_stateless_change_goes_on_from_where_the_old_job_had_started(running):
    running.upgrade_to_its_start()
    running.finish_start()
    lineage = running.status["driver"]["restore"]
    fail_stateless_change(running)
    assert running.status["driver"]["restore"] == lineage


def test_so_does_that_of_a_job_that_was_begun_with_restore_from(world):
    world.spec["restoreFrom"] = "s3://elsewhere/savepoints/a"
    world.start()
    fail_stateless_change(world)
    assert world.status["driver"]["restore"]["path"] == "s3://elsewhere/savepoints/a"


def test_the_rollback_of_a_change_that_went_back_does_not_go_back(running):
    running.upgrade_to_its_start()
    running.finish_start()
    lineage = running.status["driver"]["restore"]
    running.begin_upgrade(parallelism=6, restoreFrom="s3://elsewhere/a", restoreNonce=1)
    running.plan_succeeds()
    running.settle(4)
    assert running.step == "Start" and running.status["driver"]["restore"]["path"] == "s3://elsewhere/a"
    running.end_driver(68, error="there is no savepoint a")
    running.settle(4)
    assert running.status["driver"]["restore"] == lineage


def test_a_suspended_job_whose_stateless_change_fails_goes_on_from_the_suspensions_savepoint(running):
    running.edit(state="Suspended")
    running.look()
    running.end_driver(0, "Stopped", savepoint_path="s3://p/suspend-2")
    running.settle(3)
    running.edit(state="Running", parallelism=6, upgradeMode="Stateless")
    running.settle(3)
    assert running.step == "Start" and running.status["driver"]["restore"]["ignoreState"]
    running.end_driver(65, error="no such sink")
    running.settle(4)
    assert running.status["driver"]["restore"]["path"] == "s3://p/suspend-2"


WITH_ITS_OWN_STATE = {"id": FIRST_LINE, "ignoreState": False}


def change_without_state_that_does_not_get_ready(world):
    """Returns the good spec, and what the user had applied before."""
    before = dict(world.spec)
    world.begin_upgrade(parallelism=6, upgradeMode="Stateless")
    world.plan_succeeds()
    world.look()
    world.end_driver(0, "Stopped")
    world.settle(3)
    assert world.step == "Start" and world.status["driver"]["restore"]["ignoreState"]
    return world.status["lastGoodHash"], before


def apply(world, spec, **changes):
    world.spec, world.generation = {**spec, **changes}, world.generation + 1


@pytest.mark.parametrize("can_take_savepoints", [False, True])
def test_a_user_who_takes_a_stateless_change_back_has_the_old_state_again(running, can_take_savepoints):
    """Who does not wait for the rollback shall not be worse off."""
    good, before = change_without_state_that_does_not_get_ready(running)
    if can_take_savepoints:
        running.say(phase="Recovering", regions=[running.region(0, state="Restoring")])
    apply(running, before)
    running.settle(3)
    running.plan_succeeds()
    running.settle(5)
    assert running.status["driver"]["specHash"] == good and running.driver.living
    assert running.status["driver"]["restore"] == WITH_ITS_OWN_STATE


def test_so_has_one_who_suspends_it_first(running):
    good, before = change_without_state_that_does_not_get_ready(running)
    running.edit(state="Suspended")
    running.settle(4)
    assert running.status["phase"] == "Suspended"
    apply(running, before)
    running.settle(4)
    assert running.status["driver"]["specHash"] == good
    assert running.status["driver"]["restore"] == WITH_ITS_OWN_STATE


def test_so_has_one_whose_change_has_failed_for_good(running):
    running.edit(rollback=False)
    good, before = change_without_state_that_does_not_get_ready(running)
    running.end_driver(65, error="no such sink")
    running.settle(2)
    assert running.status["phase"] == "Failed"
    apply(running, before)
    running.settle(4)
    assert running.status["driver"]["specHash"] == good
    assert running.status["driver"]["restore"] == WITH_ITS_OWN_STATE


def test_one_who_takes_it_back_and_still_wants_no_state_gets_none(running):
    good, before = change_without_state_that_does_not_get_ready(running)
    apply(running, before, upgradeMode="Stateless")
    running.settle(3)
    running.plan_succeeds()
    running.settle(5)
    assert running.status["driver"]["specHash"] == good and running.status["driver"]["restore"]["ignoreState"]


def test_a_suspended_change_without_state_that_is_kept_goes_on_from_its_own(running):
    change_without_state_that_does_not_get_ready(running)
    lineage = running.status["driver"]["restore"]
    running.edit(state="Suspended")
    running.settle(4)
    running.edit(state="Running", upgradeMode="Savepoint")
    running.settle(4)
    assert running.status["replicas"] == 6 and running.status["driver"]["restore"] == lineage


def test_a_job_that_once_began_without_state_is_not_taken_back_behind_what_its_changes_have_done(running):
    """The savepoint of the change before goes on from its state, and that from the good one's."""
    running.upgrade_to_its_start(upgradeMode="Stateless")
    running.finish_start()
    running.edit(upgradeMode="LastState")
    running.settle(2)
    running.upgrade_to_its_start(parallelism=6)
    running.say(phase="Recovering", regions=[running.region(0, state="Restoring")])
    running.upgrade_to_its_start(parallelism=7, upgradeMode="Savepoint")
    restore = running.status["driver"]["restore"]
    assert "path" in restore
    running.end_driver(65, error="no such sink")
    running.settle(5)
    assert running.status["driver"]["specHash"] == running.status["lastGoodHash"]
    assert running.status["driver"]["restore"] == restore


def test_a_rollback_that_ends_in_a_suspension_hands_on_the_old_jobs_state(running):
    """Also if the old job had once begun without state, as the failed one did after it."""
    running.upgrade_to_its_start(upgradeMode="Stateless")
    running.finish_start()
    good = running.status["driver"]["restore"]
    running.begin_upgrade(parallelism=6)
    running.plan_succeeds()
    running.look()
    running.end_driver(0, "Stopped")
    running.settle(3)
    assert running.step == "Start" and running.status["driver"]["restore"] != good
    running.pass_time(601)
    running.look()
    assert running.status["operation"]["kind"] == "Rollback"
    running.edit(state="Suspended")
    running.settle(4)
    assert running.status["phase"] == "Suspended"
    running.edit(state="Running", parallelism=7, upgradeMode="Savepoint")
    running.settle(4)
    assert running.status["driver"]["restore"] == good
