"""Upgrades, suspension, restarts and rollbacks: each step recorded, each resumable."""

import pytest

from snapshot_engine.wire.status import Phase, RegionState, SavepointState
from streamingjob_operator.actions import DropStoredSpecs, LaunchDriver, LaunchPlanner, StopJob, TakeSavepoint
from streamingjob_operator.observation import ContainerExit, NodeView


def test_a_changed_spec_is_planned_while_the_old_driver_runs(running):
    running.begin_upgrade()
    assert running.actions(LaunchPlanner) and not running.actions(StopJob)
    assert running.driver.name == "orders-driver-1" and running.driver.living
    assert running.status["phase"] == "Upgrading"
    assert running.condition("Ready") == ("False", "Upgrading")


def test_a_spec_that_cannot_be_planned_is_refused_and_the_old_one_runs_on(running):
    running.begin_upgrade()
    name = next(name for name in running.pods if "-plan-" in name)
    end = ContainerExit(65, "Error", None, "sink console cannot do exactly-once")
    running.change_pod(name, phase="Failed", exit=end)
    running.settle(3)
    assert running.condition("Stalled") == ("True", "UpgradeRefused")
    assert "cannot do exactly-once" in running.message("Ready")
    assert running.status["phase"] == "Running" and running.status["driverGeneration"] == 1
    assert not any("-plan-" in name for name in running.pods)


def test_a_refused_spec_is_forgotten_when_the_spec_goes_back(running):
    before = dict(running.spec)
    test_a_spec_that_cannot_be_planned_is_refused_and_the_old_one_runs_on(running)
    running.spec, running.generation = before, running.generation + 1
    running.settle(2)
    assert running.condition("Ready") == ("True", "Running")


def test_an_upgrade_with_a_savepoint(running):
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    [stop] = running.actions(StopJob)
    assert (stop.request.mode, stop.request.name) == ("savepoint", "upgrade-2-0a1b2c3d")
    running.look()
    assert not running.actions(StopJob), "said once, when it was accepted"
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://bucket/orders/savepoints/upgrade-2")
    running.finish_start()
    assert running.status["driver"]["restore"]["path"] == "s3://bucket/orders/savepoints/upgrade-2"
    assert running.driver.name == "orders-driver-2"
    assert running.condition("Ready") == ("True", "Running")
    assert "operation" not in running.status
    assert running.status["savepoints"][0]["state"] == "Completed"
    assert running.status["replicas"] == 4


def test_an_upgrade_from_the_last_state(running):
    running.edit(upgradeMode="LastState")
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    assert [action.request.mode for action in running.actions(StopJob)] == ["checkpoint"]
    running.end_driver(0, Phase.STOPPED)
    running.finish_start()
    assert "restore" not in running.status["driver"]
    assert running.condition("Ready") == ("True", "Running")


def test_a_stateless_upgrade(running):
    running.edit(upgradeMode="Stateless")
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    assert [action.request.mode for action in running.actions(StopJob)] == ["cancel"]
    running.end_driver(0, Phase.STOPPED)
    running.finish_start()
    assert running.status["driver"]["restore"]["ignoreState"] is True


def test_a_savepoint_that_takes_too_long_falls_back_to_the_last_state(running):
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    running.pass_time(301)
    running.look()
    assert "SavepointTimedOut" in running.reasons()
    assert running.step == "Kill"
    running.finish_start()
    assert "restore" not in running.status["driver"] and running.driver.generation == 2


def test_a_failed_savepoint_keeps_the_old_job_where_the_spec_says_so(running):
    running.edit(savepointFallback="KeepRunning")
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    running.say(savepoints=[running.savepoint("upgrade-3-0a1b2c3d", SavepointState.FAILED, error="disk full")])
    running.settle(3)
    assert running.status["driverGeneration"] == 1
    assert running.condition("Stalled") == ("True", "SavepointFailed")
    assert "disk full" in running.message("Ready")


def test_a_crash_looping_job_can_be_upgraded(running):
    for _ in range(3):
        running.crash_driver()
        running.settle(3)
        running.pass_time(5)
        running.settle(2)
    running.report = None
    running.crash_driver()
    running.look()
    running.edit(pipeline={"entrypoint": "jobs.orders:fixed"})
    running.settle(4)
    assert running.driver.living and running.status["operation"]["step"] == "Start"
    running.finish_start()
    assert running.condition("Ready") == ("True", "Running")


def test_a_new_spec_that_is_not_ready_in_time_is_rolled_back(running):
    good = running.status["lastGoodHash"]
    test_path = "s3://bucket/orders/savepoints/upgrade-2"
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path=test_path)
    running.settle(3)
    assert running.driver.generation == 2
    running.pass_time(601)
    running.settle(4)
    assert running.driver.generation == 3
    assert running.status["driver"]["specHash"] == good
    assert running.status["driver"]["restore"]["path"] == test_path, "what the new spec did not take is not lost"
    running.add_executors()
    running.say()
    running.settle(2)
    assert running.status["phase"] == "Running"
    assert running.condition("Ready") == ("False", "RolledBack")
    assert running.condition("Stalled") == ("True", "RolledBack")
    running.settle(3)
    assert running.status["driverGeneration"] == 3, "it is not tried again"


def test_a_new_spec_that_ends_for_good_is_rolled_back_at_once(running):
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.settle(3)
    running.end_driver(68, error="state of operator 'sum' has another type")
    running.settle(4)
    assert running.driver.generation == 3
    assert "another type" in running.message("Stalled")


def test_without_rollback_a_late_spec_stays_and_is_stalled(running):
    running.edit(rollback=False)
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.settle(3)
    running.pass_time(601)
    running.settle(3)
    assert running.driver.generation == 2
    assert running.condition("Stalled") == ("True", "NotReadyInTime")


def test_the_spec_may_change_back_while_it_is_planned(running):
    before = dict(running.spec)
    running.begin_upgrade()
    running.spec, running.generation = before, running.generation + 1
    running.settle(3)
    assert running.status["phase"] == "Running" and "operation" not in running.status
    assert not any("-plan-" in name for name in running.pods)


def test_an_upgrade_survives_the_operator_at_every_step(running):
    """Each look here is by an operator that remembers nothing but the status."""

    def forgetful_look():
        running.stop_accepted, running.dry_runs, running.report = False, {}, None
        running.look()

    running.edit(parallelism=4)
    running.look()
    running.look()
    for _ in range(3):
        forgetful_look()
    running.plan_succeeds()
    for _ in range(3):
        forgetful_look()
    assert running.step == "Stop" and running.status["operation"]["savepointName"] == "upgrade-2-0a1b2c3d"
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    for _ in range(3):
        forgetful_look()
    assert [pod.name for pod in running.pods.values() if pod.component == "driver"] == ["orders-driver-2"]


def test_fields_that_need_no_restart_do_not_restart(running):
    running.edit(deletionPolicy="Retain", readyTimeout="1m", savepointTimeout="10s", upgradeMode="LastState")
    running.edit(recovery={"progressWindow": "1h"})
    decision = running.look()
    assert decision.actions == () and running.status["phase"] == "Running"
    assert running.status["observedGeneration"] == 3


@pytest.mark.parametrize("change", [{"restartNonce": 1}, {"parallelism": 8, "upgradeMode": "LastState"}])
def test_a_job_that_once_began_without_state_stops_with_a_checkpoint_like_any_other(running, change):
    running.upgrade_to_its_start(upgradeMode="Stateless")
    running.finish_start()
    running.edit(**{"upgradeMode": "Savepoint", **change})
    running.look()
    if "parallelism" in change:
        running.look()
        running.plan_succeeds()
        running.look()
    assert [action.request.mode for action in running.actions(StopJob)] == ["checkpoint"]


def test_suspend_and_resume_with_a_savepoint(running):
    running.edit(state="Suspended")
    running.settle(2)
    assert running.status["phase"] == "Suspending"
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://bucket/orders/savepoints/suspend-2")
    running.settle(2)
    assert running.status["phase"] == "Suspended" and running.condition("Ready") == ("True", "Suspended")
    assert not any(pod.component == "driver" for pod in running.pods.values())
    running.edit(state="Running")
    running.settle(4)
    assert running.driver.generation == 2
    assert running.status["driver"]["restore"]["path"].endswith("suspend-2")
    running.finish_start()
    assert running.condition("Ready") == ("True", "Running")


def test_a_job_made_suspended_starts_nothing(world):
    world.spec["state"] = "Suspended"
    world.settle(3)
    assert world.pods == {} and world.status["phase"] == "Suspended"
    world.edit(state="Running")
    world.start()


def test_a_driver_that_cannot_take_a_savepoint_is_suspended_with_its_last_state(world):
    world.settle(3)
    world.edit(state="Suspended")
    world.settle(3)
    assert world.status["phase"] == "Suspended" and world.pods == {}


def test_an_operator_that_has_just_started_suspends_with_a_savepoint_as_well(running):
    running.report = None
    running.edit(state="Suspended")
    running.look()
    [stop] = running.actions(StopJob)
    assert (stop.request.mode, stop.request.name) == ("savepoint", "suspend-2-0a1b2c3d")


def test_a_driver_that_is_silent_is_not_asked_for_a_savepoint(running):
    running.report, running.silent_since = None, running.now
    running.edit(state="Suspended")
    running.look()
    assert not running.actions(StopJob) and running.step == "Kill"


def test_a_restart_on_demand(running):
    running.edit(restartNonce=1)
    running.look()
    running.look()
    assert running.step == "Stop"
    running.end_driver(0, Phase.STOPPED)
    running.finish_start()
    assert running.driver.generation == 2 and running.condition("Ready") == ("True", "Running")
    running.settle(3)
    assert running.status["driverGeneration"] == 2, "once"


@pytest.mark.parametrize("nonce", ["restartNonce", "savepointNonce"])
def test_a_nonce_that_was_there_at_creation_triggers_nothing(world, nonce):
    world.spec[nonce] = 5
    world.start()
    world.settle(2)
    assert world.last.actions == () and "operation" not in world.status


def test_a_savepoint_on_demand_is_taken_once_and_listed(running):
    running.edit(savepointNonce=3)
    running.look()
    assert [action.name for action in running.actions(TakeSavepoint)] == ["manual-3-0a1b2c3d"]
    done = running.savepoint(
        "manual-3-0a1b2c3d", SavepointState.COMPLETED, path="s3://p/manual-3", completed_at=running.now
    )
    running.say(savepoints=[done])
    running.look()
    assert running.reasons() == ["SavepointCompleted"]
    assert running.status["savepoints"][0]["path"] == "s3://p/manual-3"
    running.look()
    assert running.actions(TakeSavepoint) == []


def test_restore_nonce_goes_back_to_what_restore_from_names(running):
    running.edit(restoreFrom="s3://p/manual-3", restoreNonce=1)
    running.settle(2)
    running.plan_succeeds()
    running.settle(4)
    assert running.driver.generation == 2
    assert running.status["driver"]["restore"]["path"] == "s3://p/manual-3"
    running.finish_start()
    running.settle(2)
    assert running.status["driverGeneration"] == 2


def test_stored_specs_that_nothing_goes_back_to_are_dropped(running):
    test_an_upgrade_with_a_savepoint(running)
    assert running.stored == {running.status["driver"]["specHash"]}


def test_a_region_that_recovers_does_not_make_an_upgrade_skip_its_savepoint(running):
    running.say(phase=Phase.RECOVERING, regions=[running.region(0, state=RegionState.RESTORING)])
    running.look()
    running.begin_upgrade()
    running.plan_succeeds()
    running.look()
    assert running.actions(StopJob) and not running.actions(LaunchDriver) and not running.actions(DropStoredSpecs)


def test_a_suspension_without_a_savepoint_says_that_it_goes_on_from_the_latest_checkpoint(running):
    """And not from the savepoint that its driver, which has gone on since, once began from."""
    running.upgrade_to_its_start()
    running.finish_start()
    assert running.status["driver"]["restore"]["path"]
    running.crash_driver()
    running.edit(state="Suspended")
    said = []
    for _ in range(4):
        running.look()
        said += [each.message for each in running.last.announcements]
    assert running.status["phase"] == "Suspended"
    assert "Suspended; it will go on from the latest completed checkpoint" in said
    assert "error" not in running.status


@pytest.mark.parametrize("change", [{"parallelism": 4}, {"state": "Suspended"}], ids=["upgrade", "suspension"])
def test_a_stop_does_not_wait_for_a_driver_whose_node_is_cut_off(running, change):
    """Its savepoint would be waited for as long as savepointTimeout says, and nothing runs meanwhile."""
    running.edit(**change, savepointTimeout="1h")
    running.settle(2)
    if "parallelism" in change:
        running.plan_succeeds()
        running.look()
    assert running.step == "Stop"
    old = running.driver.name
    running.nodes = {"node-1": NodeView("node-1", ready=False, unreachable=True)}
    running.silent_since = running.now
    running.settle(2)
    assert running.step == "Stop", "it may answer yet"
    running.pass_time(21)
    running.settle(4)
    assert old not in running.pods, "nobody is there to confirm its end"
    if "parallelism" in change:
        assert running.status["driverGeneration"] == 2 and running.driver.living
    else:
        assert running.status["phase"] == "Suspended"
    running.silent_since = None


def test_a_deletion_does_not_wait_for_it_either(running):
    running.edit(savepointOnDeletion=True, savepointTimeout="1h")
    running.look()
    running.deleting = True
    running.look()
    assert running.step == "Stop"
    running.nodes = {"node-1": NodeView("node-1", ready=False, unreachable=True)}
    running.silent_since = running.now
    running.pass_time(21)
    running.settle(3)
    assert running.finalizers == [] and running.pods.keys().isdisjoint({"orders-driver-1"})
