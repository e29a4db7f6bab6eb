"""A nonce belongs to the spec it came with: it acts when that spec is accepted, and never on the one before."""

import pytest

from snapshot_engine.wire.control import FIRST_LINE
from snapshot_engine.wire.status import ExitCode, Phase, SavepointState
from streamingjob_operator.actions import DryRunPods, StopJob, TakeSavepoint
from streamingjob_operator.observation import ContainerExit

GO_BACK = {"restoreFrom": "s3://p/manual-3", "restoreNonce": 1}


@pytest.mark.parametrize("nonce", [{"restartNonce": 1}, GO_BACK])
def test_a_nonce_that_comes_with_a_change_waits_until_the_change_is_checked(running, nonce):
    running.edit(parallelism=4, **nonce)
    running.look()
    assert running.actions(DryRunPods) and "operation" not in running.status
    running.look()
    assert (running.status["operation"]["kind"], running.step) == ("Upgrade", "Plan")


def test_a_restart_that_comes_with_a_change_is_the_upgrade(running):
    running.upgrade_to_its_start(restartNonce=1)
    running.finish_start()
    running.settle(3)
    assert running.status["driverGeneration"] == 2 and "operation" not in running.status


@pytest.mark.parametrize("nonce", [{"restartNonce": 1}, GO_BACK])
def test_a_spec_whose_pods_are_refused_moves_nothing_by_its_nonce(running, nonce):
    running.dry_run_answer = "spec.driver.podTemplate: no such field"
    running.edit(parallelism=4, **nonce)
    running.settle(4)
    assert "operation" not in running.status and running.driver.generation == 1
    assert running.condition("Stalled") == ("True", "InvalidSpec")


@pytest.mark.parametrize("nonce", [{"restartNonce": 1}, GO_BACK])
def test_a_spec_that_cannot_be_planned_moves_nothing_by_its_nonce(running, nonce):
    running.begin_upgrade(**nonce)
    running.plan_fails()
    running.settle(4)
    assert "operation" not in running.status and running.driver.generation == 1


def test_a_restore_that_comes_with_a_change_is_that_of_the_new_spec(running):
    old = running.status["driver"]["specHash"]
    running.begin_upgrade(**GO_BACK)
    running.plan_succeeds()
    running.look()
    assert not running.actions(StopJob), "what it has is given up, so it need not be saved"
    running.settle(3)
    assert running.driver.generation == 2 and running.status["driver"]["specHash"] != old
    assert running.status["driver"]["restore"]["path"] == "s3://p/manual-3"
    running.finish_start()
    running.settle(3)
    assert running.status["driverGeneration"] == 2, "once"


def test_a_restore_whose_spec_was_refused_is_done_with_the_next_that_is_accepted(running):
    running.begin_upgrade(**GO_BACK)
    running.plan_fails()
    running.settle(3)
    running.begin_upgrade(parallelism=2)
    running.plan_succeeds()
    running.settle(4)
    assert running.status["driver"]["restore"]["path"] == "s3://p/manual-3"


def test_a_new_spec_that_cannot_be_restored_leads_back_to_where_the_old_one_was(running):
    running.begin_upgrade(**GO_BACK)
    running.plan_succeeds()
    running.settle(3)
    running.end_driver(68, error="there is no savepoint manual-3")
    running.settle(3)
    assert running.driver.generation == 3
    assert running.status["driver"]["specHash"] == running.status["lastGoodHash"]
    assert running.status["driver"]["restore"] == {"id": FIRST_LINE, "ignoreState": False}


def test_a_restore_of_a_job_that_just_finished_is_done_all_the_same(running):
    running.edit(**GO_BACK)
    running.status = running.decide().status.to_wire()
    assert running.step == "Plan"
    running.end_driver(0, Phase.FINISHED)
    running.settle(3)
    assert running.driver.generation == 2
    assert running.status["driver"]["restore"]["path"] == "s3://p/manual-3"


def test_a_savepoint_that_comes_with_a_change_is_of_the_job_that_runs(running):
    running.edit(parallelism=4, savepointNonce=3)
    running.look()
    assert [action.name for action in running.actions(TakeSavepoint)] == ["manual-3-0a1b2c3d"]
    running.look()
    assert running.step == "Plan"
    assert [action.name for action in running.actions(TakeSavepoint)] == ["manual-3-0a1b2c3d"], (
        "not accepted yet, so said again"
    )


def test_a_restart_that_was_asked_for_while_suspended_is_the_resumption(running):
    running.edit(state="Suspended")
    running.settle(2)
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.settle(2)
    running.edit(restartNonce=1)
    running.edit(state="Running")
    running.finish_start()
    running.settle(3)
    assert running.driver.generation == 2 and "operation" not in running.status


def test_a_start_that_hangs_can_be_restarted(running):
    running.edit(rollback=False)
    running.upgrade_to_its_start()
    running.pass_time(601)
    running.settle(2)
    assert running.condition("Stalled") == ("True", "NotReadyInTime")
    running.edit(restartNonce=1)
    running.settle(4)
    assert running.driver.generation == 3
    running.finish_start()
    assert running.condition("Ready") == ("True", "Running")


def test_a_failed_job_whose_pod_is_not_gone_yet_can_be_restarted(running):
    running.edit(recovery={"onNoProgress": "Restart", "maxRestarts": 0})
    running.upgrade_to_its_start()
    running.finish_start()
    running.pass_time(1201)
    pod = running.driver
    running.look()
    assert running.status["phase"] == "Failed"
    running.pods[pod.name] = pod
    running.change_pod(pod.name, deleting_since=running.now)
    running.edit(restartNonce=1)
    running.settle(2)
    running.pods.pop(pod.name, None)
    running.finish_start()
    assert running.condition("Ready") == ("True", "Running")


@pytest.mark.parametrize("end", ["Suspended", "Finished", "Failed"])
def test_a_savepoint_of_a_job_that_does_not_run_fails_and_says_so(running, end):
    if end == "Suspended":
        running.edit(state="Suspended")
        running.settle(2)
        running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p/suspend-2")
    else:
        running.end_driver(0 if end == "Finished" else 65, Phase(end))
    running.settle(2)
    assert running.status["phase"] == end
    running.edit(savepointNonce=3)
    running.look()
    assert "SavepointFailed" in running.reasons()
    assert running.status["savepoints"][0]["state"] == SavepointState.FAILED
    assert end in running.status["savepoints"][0]["error"]
    running.look()
    assert running.reasons() == []


def test_restore_from_is_used_by_a_job_that_was_made_suspended(world):
    world.spec |= {"state": "Suspended", "restoreFrom": "s3://bucket/old/savepoints/a"}
    world.settle(3)
    world.edit(state="Running")
    world.settle(3)
    assert world.status["driver"]["restore"]["path"] == "s3://bucket/old/savepoints/a"
    world.finish_start()
    world.edit(state="Suspended")
    world.settle(2)
    world.end_driver(0, Phase.STOPPED, savepoint_path="s3://p/suspend-3")
    world.settle(2)
    world.edit(state="Running")
    world.settle(3)
    assert world.status["driver"]["restore"]["path"] == "s3://p/suspend-3", "once"


def test_a_job_that_found_foreign_state_takes_it_when_restore_from_says_so(world):
    world.settle(3)
    world.end_driver(66, error="the storage holds the state of another StreamingJob (uid 9f)")
    world.look()
    assert world.condition("Stalled") == ("True", "ForeignState")
    world.edit(restoreFrom="s3://bucket/orders/7")
    world.settle(3)
    assert world.status["driver"]["restore"]["path"] == "s3://bucket/orders/7"


def test_a_wrong_restore_from_can_be_put_right_before_the_job_was_ever_ready(world):
    world.spec["restoreFrom"] = "s3://p/typo"
    world.settle(3)
    world.end_driver(ExitCode.UNREADABLE_STATE, error="there is no savepoint typo")
    world.settle(2)
    assert world.status["phase"] == "Failed"
    world.edit(restoreFrom="s3://p/right")
    world.settle(4)
    assert world.status["phase"] != "Failed"
    assert world.status["driver"]["restore"]["path"] == "s3://p/right"


def test_restore_from_that_comes_after_the_job_has_run_needs_its_nonce(running):
    running.edit(state="Suspended", restoreFrom="s3://p/old")
    running.settle(2)
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p/suspend-2")
    running.settle(2)
    running.edit(state="Running")
    running.settle(3)
    assert running.status["driver"]["restore"]["path"] == "s3://p/suspend-2"


def test_a_running_job_is_not_stopped_to_go_back_to_what_is_not_there(running):
    """A planner tells: it looks at the state that would be started from."""
    running.edit(**GO_BACK)
    running.settle(2)
    assert running.step == "Plan" and running.driver.generation == 1
    assert running.planner_request.restore.path == GO_BACK["restoreFrom"]
    end = ContainerExit(68, "Error", None, "there is no savepoint manual-3; savepoints there: manual-2")
    running.change_pod(running.planner, phase="Failed", exit=end)
    running.settle(4)
    assert running.driver.generation == 1 and running.status["phase"] == "Running"
    assert running.condition("Ready") == ("False", "UpgradeRefused")
    assert "savepoints there: manual-2" in running.message("Stalled")
    running.crash_driver()
    running.settle(3)
    assert running.driver.generation == 2 and "restore" not in running.status["driver"], "it is looked after as ever"
    running.edit(restoreFrom="s3://p/manual-2", restoreNonce=2)
    running.finish_start()
    running.plan_succeeds()
    running.settle(4)
    assert running.status["driver"]["restore"]["path"] == "s3://p/manual-2"


def test_a_way_back_that_is_no_longer_wanted_is_not_gone(running):
    running.edit(**GO_BACK)
    running.settle(2)
    running.edit(restoreNonce=None, restoreFrom=None)
    running.settle(2)
    assert "operation" not in running.status and running.driver.generation == 1
    assert not any("-plan-" in name for name in running.pods)
