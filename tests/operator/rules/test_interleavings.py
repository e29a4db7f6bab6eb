"""What is asked for while something else is under way, and operators that die between the record and the act."""

import pytest

from snapshot_engine.wire.status import Phase, RegionState, SavepointState
from streamingjob_operator import naming
from streamingjob_operator.actions import StopJob


def record_only(world):
    """The operator decides and records, and dies before it acts."""
    world.status = world.decide().status.to_wire()


def drivers(world):
    return [pod.name for pod in world.pods.values() if pod.component == naming.DRIVER]


# Savepoint, or keep the old job running


def keep_running(world, **changes):
    world.begin_upgrade(upgradeMode="Savepoint", savepointFallback="KeepRunning", **changes)
    world.plan_succeeds()


def test_an_upgrade_that_may_not_do_without_its_savepoint_waits_until_the_driver_can_take_it(running):
    keep_running(running)
    running.report, running.silent_since = None, running.now
    running.settle(2)
    assert running.driver.generation == 1 and running.step == "Wait" and not running.actions(StopJob)
    assert "savepoint" in running.message("Ready")
    running.say()
    running.silent_since = None
    running.look()
    assert [action.request.name for action in running.actions(StopJob)] == ["upgrade-2-0a1b2c3d"]


def test_an_old_driver_that_can_take_no_savepoint_in_time_keeps_running(running):
    keep_running(running)
    running.report, running.silent_since = None, running.now
    running.settle(2)
    running.pass_time(301)
    running.settle(2)
    assert running.driver.generation == 1 and running.driver.living and "operation" not in running.status
    assert running.condition("Stalled") == ("True", "SavepointTimedOut")


def test_an_old_driver_that_crashes_while_it_is_waited_for_is_replaced_by_one_of_the_old_spec(running):
    old = running.status["driver"]["specHash"]
    keep_running(running)
    running.report, running.silent_since = None, running.now
    running.settle(2)
    running.crash_driver()
    running.settle(3)
    assert running.driver.generation == 2 and running.status["driver"]["specHash"] == old
    running.add_executors()
    running.say()
    running.settle(2)
    assert running.step == "Stop"


def test_an_old_driver_that_ends_without_its_savepoint_is_replaced_by_one_of_the_old_spec(running):
    old = running.status["driver"]["specHash"]
    keep_running(running)
    running.look()
    assert running.step == "Stop"
    running.crash_driver()
    running.settle(4)
    assert running.driver.generation == 2 and running.status["driver"]["specHash"] == old
    assert running.condition("Stalled") == ("True", "SavepointFailed")


def test_a_spec_that_never_was_ready_is_not_kept_running(running):
    running.upgrade_to_its_start()
    keep_running(running, parallelism=8)
    running.settle(3)
    assert running.driver.generation == 3 and running.step == "Start"


def test_the_upgrade_mode_may_change_while_the_new_spec_is_planned(running):
    running.begin_upgrade(upgradeMode="Stateless")
    running.plan_succeeds()
    running.edit(upgradeMode="LastState")
    running.look()
    assert running.step == "Plan", "whether the state fits has not been looked at"
    running.look()
    running.plan_succeeds()
    running.look()
    assert [action.request.mode for action in running.actions(StopJob)] == ["checkpoint"]
    running.end_driver(0, Phase.STOPPED)
    running.settle(3)
    assert "restore" not in running.status["driver"]


@pytest.mark.parametrize("mode", ["LastState", "Stateless"])
def test_a_driver_that_has_not_started_is_not_waited_for(running, mode):
    running.upgrade_to_its_start(upgradeMode=mode)
    running.begin_upgrade(parallelism=8)
    running.plan_succeeds()
    running.settle(3)
    assert running.driver.generation == 3 and running.step == "Start"


# A spec changes while an upgrade is under way


def test_a_second_change_that_is_refused_leaves_the_first_with_its_way_back(running):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.begin_upgrade(parallelism=8)
    running.plan_fails()
    running.settle(3)
    assert running.driver.generation == 2 and running.step == "Start"
    running.pass_time(601)
    running.settle(4)
    assert running.status["driver"]["specHash"] == good


def test_a_second_change_that_is_taken_back_leaves_the_first_with_its_way_back(running):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.begin_upgrade(parallelism=8)
    running.edit(parallelism=4)
    running.settle(4)
    running.pass_time(601)
    running.settle(4)
    assert running.status["driver"]["specHash"] == good


def test_the_newest_of_two_changes_runs_in_the_end_from_the_savepoint_of_the_first(running):
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    running.edit(parallelism=8)
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p/upgrade-2")
    running.settle(5)
    running.plan_succeeds()
    running.finish_start()
    assert running.status["replicas"] == 8 and running.condition("Ready") == ("True", "Running")
    assert running.status["driver"]["restore"]["path"] == "s3://p/upgrade-2"


def test_a_rescaling_during_a_recovery_goes_on_from_the_latest_checkpoint(running):
    running.crash_driver()
    running.settle(3)
    running.begin_upgrade(parallelism=8)
    running.plan_succeeds()
    running.finish_start()
    assert running.driver.generation == 3 and running.condition("Ready") == ("True", "Running")


def test_a_rescaling_while_a_region_recovers_takes_its_savepoint(running):
    running.say(phase=Phase.RECOVERING, regions=[running.region(0, state=RegionState.RESTORING)])
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    assert [action.request.mode for action in running.actions(StopJob)] == ["savepoint"]


def test_a_finished_job_whose_spec_changes_runs_on_from_its_end(running):
    running.end_driver(0, Phase.FINISHED, last_completed_checkpoint=9)
    running.look()
    running.edit(parallelism=4)
    running.settle(4)
    assert running.driver.generation == 2 and running.step == "Start"
    assert "restore" not in running.status["driver"]


def test_a_job_that_finished_before_it_was_seen_to_be_ready_is_good(running):
    running.upgrade_to_its_start()
    short = running.status["driver"]["specHash"]
    running.end_driver(0, Phase.FINISHED)
    running.look()
    assert running.status["phase"] == "Finished" and running.status["lastGoodHash"] == short


# Suspension while something else is under way


def test_a_suspension_while_a_new_spec_is_planned(running):
    running.begin_upgrade()
    running.edit(state="Suspended")
    running.look()
    assert [action.request.name for action in running.actions(StopJob)] == ["suspend-3-0a1b2c3d"]
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p/suspend-3")
    running.settle(2)
    assert running.status["phase"] == "Suspended" and drivers(running) == []
    assert not any(pod.component == naming.PLANNER for pod in running.pods.values())


def test_a_suspension_while_a_driver_is_stopped_for_an_upgrade_starts_no_other(running):
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    running.edit(state="Suspended")
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p/upgrade-2")
    running.settle(2)
    assert running.status["phase"] == "Suspended" and running.status["driverGeneration"] == 1
    running.edit(state="Running")
    running.settle(3)
    assert running.status["driver"]["restore"]["path"] == "s3://p/upgrade-2"


def test_a_suspension_in_a_stateless_upgrade_that_is_taken_back_loses_no_state(running):
    before = dict(running.spec)
    running.begin_upgrade(upgradeMode="Stateless")
    running.plan_succeeds()
    running.look()
    running.edit(state="Suspended")
    running.end_driver(0, Phase.STOPPED)
    running.settle(2)
    running.spec, running.generation = before, running.generation + 1
    running.settle(3)
    assert "restore" not in running.status["driver"]


@pytest.mark.parametrize("rollback", [True, False])
def test_a_suspension_while_a_new_spec_does_not_get_ready(running, rollback):
    running.edit(rollback=rollback)
    running.upgrade_to_its_start()
    running.pass_time(601)
    running.edit(state="Suspended")
    running.settle(4)
    assert running.status["phase"] == "Suspended" and drivers(running) == []
    assert running.status["resume"]["path"].endswith("upgrade-3")


def test_a_suspension_during_a_rollback(running):
    good = running.status["lastGoodHash"]
    running.upgrade_to_its_start()
    running.pass_time(601)
    running.look()
    assert running.status["operation"]["kind"] == "Rollback"
    running.edit(state="Suspended")
    running.settle(4)
    assert running.status["phase"] == "Suspended" and drivers(running) == []
    running.edit(state="Running")
    running.finish_start()
    assert running.status["driver"]["specHash"] == good and running.condition("Ready") == ("False", "RolledBack")


def test_a_spec_whose_pods_are_refused_does_not_wake_a_suspended_job(running):
    running.edit(state="Suspended")
    running.settle(2)
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p/suspend-2")
    running.settle(2)
    running.dry_run_answer = "spec.driver.podTemplate: no such field"
    running.edit(state="Running", parallelism=4)
    running.settle(4)
    assert running.status["phase"] == "Suspended" and drivers(running) == []
    assert running.condition("Stalled") == ("True", "InvalidSpec")


def test_a_suspension_waits_for_an_old_driver_that_is_not_gone_yet(running):
    running.change_pod("orders-driver-1", deleting_since=running.now)
    running.look()
    running.edit(state="Suspended")
    pod = running.pods["orders-driver-1"]
    running.look()
    running.pods["orders-driver-1"] = pod
    running.look()
    assert running.status["phase"] == "Suspending"
    running.pods.clear()
    running.settle(2)
    assert running.status["phase"] == "Suspended"


# The operator dies between the record and the act


def test_a_planner_is_removed_although_the_operator_died_after_it_had_recorded_the_next_step(running):
    running.begin_upgrade()
    running.plan_succeeds()
    record_only(running)
    assert running.step == "Stop"
    running.look()
    assert not any(pod.component == naming.PLANNER for pod in running.pods.values())


def test_a_suspended_job_keeps_no_driver_pod_although_the_operator_died(running):
    running.edit(state="Suspended")
    running.settle(2)
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    record_only(running)
    assert running.status["phase"] == "Suspended"
    running.look()
    assert drivers(running) == []


def test_a_driver_that_was_given_up_but_not_deleted_does_not_outlive_a_suspension(running):
    running.edit(recovery={"onNoProgress": "Restart"})
    running.pass_time(601)
    record_only(running)
    assert "launch" in running.status and running.pods["orders-driver-1"].living
    running.edit(state="Suspended")
    running.settle(3)
    assert running.status["phase"] == "Suspended" and drivers(running) == []


def test_a_planner_that_is_being_deleted_is_no_answer(running):
    running.begin_upgrade()
    running.change_pod(running.planner, deleting_since=running.now, phase="Failed")
    running.look()
    assert running.step == "Plan" and running.condition("Stalled")[0] == "False"


def test_a_planner_that_cannot_be_made_does_not_hold_the_job_for_ever(running):
    running.begin_upgrade()
    del running.pods[running.planner]
    running.pass_time(601)
    running.look()
    assert running.condition("Stalled") == ("True", "UpgradeRefused") and "operation" not in running.status


def test_a_driver_that_fails_while_its_successor_is_planned_leaves_no_planner(running):
    running.begin_upgrade()
    running.end_driver(68, error="checkpoint 7 is damaged")
    running.settle(3)
    assert running.driver.generation == 2 and running.step == "Start"
    assert not any(pod.component == naming.PLANNER for pod in running.pods.values())


# Deletion


@pytest.mark.parametrize("when", ["Plan", "Stop", "Start"])
def test_a_deletion_during_an_upgrade_launches_nothing_more(running, when):
    running.edit(deletionPolicy="Delete")
    running.look()
    running.begin_upgrade()
    if when != "Plan":
        running.plan_succeeds()
        running.look()
    if when == "Start":
        running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
        record_only(running)
    generation = running.status["driverGeneration"]
    running.deleting = True
    running.settle(3)
    assert not any(running.pods[name].living for name in drivers(running))
    assert running.status["driverGeneration"] == generation
    assert running.pods["orders-clean"].spec_hash in running.stored
    running.change_pod("orders-clean", phase="Succeeded")
    running.look()
    assert running.finalizers == []


def test_a_savepoint_that_was_pending_when_the_driver_crashed_is_asked_for_again(running):
    running.edit(savepointNonce=3)
    running.look()
    running.crash_driver()
    running.finish_start()
    running.say(savepoints=[running.savepoint("manual-3-0a1b2c3d", SavepointState.COMPLETED, path="s3://p/manual-3")])
    running.look()
    assert running.status["savepoints"][0]["path"] == "s3://p/manual-3"
