"""A deleted StreamingJob: owner references do the work, unless a savepoint or a clean-up was asked for."""

import pytest

from snapshot_engine.wire.status import ExitCode, Phase, SavepointState
from streamingjob_operator import naming
from streamingjob_operator.actions import AddFinalizer, DeletePod, LaunchCleaner, RemoveFinalizer, StopJob
from streamingjob_operator.observation import ContainerExit


def test_without_wishes_there_is_no_finalizer_and_nothing_to_do(running):
    assert running.finalizers == []
    running.deleting = True
    decision = running.look()
    assert decision.actions == () and running.status["phase"] == "Deleting"


def test_a_finalizer_is_kept_only_while_it_is_asked_for(running):
    running.edit(savepointOnDeletion=True)
    running.look()
    assert running.actions(AddFinalizer) and running.finalizers == [naming.FINALIZER]
    running.edit(savepointOnDeletion=False)
    running.look()
    assert running.actions(RemoveFinalizer) and running.finalizers == []


def test_a_savepoint_is_taken_before_the_job_goes(running):
    running.edit(savepointOnDeletion=True)
    running.look()
    running.deleting = True
    running.look()
    [stop] = running.actions(StopJob)
    assert (stop.request.mode, stop.request.name) == ("savepoint", "deletion-0a1b2c3d")
    running.look()
    assert running.finalizers == [naming.FINALIZER]
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.look()
    assert running.finalizers == []


def test_a_savepoint_that_does_not_come_does_not_keep_the_job_for_ever(running):
    running.edit(savepointOnDeletion=True)
    running.look()
    running.deleting = True
    running.look()
    running.pass_time(301)
    running.look()
    assert "SavepointTimedOut" in running.reasons()
    running.settle(2)
    assert running.finalizers == []


def test_checkpoints_are_removed_after_the_driver_where_the_policy_says_so(running):
    running.edit(deletionPolicy="Delete")
    running.look()
    running.deleting = True
    running.look()
    assert not running.actions(LaunchCleaner), "not while a driver may still write"
    running.settle(2)
    assert "orders-clean" in running.pods
    assert running.finalizers == [naming.FINALIZER]
    running.change_pod("orders-clean", phase="Succeeded")
    running.look()
    assert running.finalizers == []


def test_a_clean_up_that_fails_says_where_the_checkpoints_are_and_lets_the_job_go(running):
    running.edit(deletionPolicy="Delete")
    running.look()
    running.deleting = True
    running.settle(3)
    end = ContainerExit(ExitCode.FOREIGN_STATE, "Error", None, "another job's")
    running.change_pod("orders-clean", phase="Failed", exit=end)
    running.look()
    assert "CleanupFailed" in running.reasons()
    assert "s3://bucket/orders/7" in running.last.announcements[0].message
    assert running.finalizers == []


@pytest.mark.parametrize(
    "end",
    [
        {"status_reason": "Evicted"},
        {"status_reason": "OutOfcpu", "never_ran": "Pod was rejected"},
        {"exit": ContainerExit(1, "Error", None, "storage does not answer")},
        {"exit": ContainerExit(137, "OOMKilled", None, "")},
    ],
    ids=["evicted", "rejected", "storage away", "killed"],
)
def test_a_cleaner_that_came_to_nothing_is_tried_again_for_a_while(running, end):
    running.edit(deletionPolicy="Delete")
    running.look()
    running.deleting = True
    running.settle(3)
    running.change_pod("orders-clean", phase="Failed", **end)
    running.settle(2)
    assert running.finalizers == [naming.FINALIZER] and running.pods["orders-clean"].ended, "not at every look"
    running.pass_time(11)
    running.settle(3)
    assert running.pods["orders-clean"].living
    running.change_pod("orders-clean", phase="Succeeded")
    running.look()
    assert running.finalizers == []


def test_checkpoints_of_a_suspended_job_are_removed_as_well(running):
    running.edit(deletionPolicy="Delete", state="Suspended")
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.settle(3)
    assert running.status["phase"] == "Suspended" and "driver" not in running.status
    running.deleting = True
    running.settle(2)
    assert running.pods["orders-clean"].spec_hash in running.stored


def test_checkpoints_of_a_job_that_waits_for_its_next_driver_are_removed_as_well(running):
    running.edit(deletionPolicy="Delete")
    for _ in range(2):  # the second restart waits
        running.crash_driver()
        running.look()
    running.settle(3)
    assert "launch" in running.status and "driver" not in running.status
    running.deleting = True
    running.settle(2)
    assert running.pods["orders-clean"].spec_hash in running.stored


def test_a_job_that_never_had_a_driver_has_nothing_to_remove(world):
    world.edit(deletionPolicy="Delete", state="Suspended")
    world.settle(2)
    assert world.finalizers == [naming.FINALIZER]
    world.deleting = True
    world.look()
    assert not world.actions(LaunchCleaner) and world.finalizers == []


def test_a_cleaner_that_cannot_be_launched_does_not_keep_the_job_for_ever(running):
    running.edit(deletionPolicy="Delete")
    running.look()
    running.deleting = True
    running.settle(3)
    del running.pods["orders-clean"]
    running.pass_time(301)
    running.look()
    assert "CleanupFailed" in running.reasons() and running.finalizers == []


def test_no_driver_is_launched_for_a_job_that_is_being_deleted(running):
    running.edit(deletionPolicy="Delete")
    running.look()
    running.crash_driver()
    running.deleting = True
    running.settle(4)
    assert running.status["driverGeneration"] == 1


def begin_deletion_with_savepoint(world):
    world.edit(savepointOnDeletion=True, deletionPolicy="Delete")
    world.look()
    world.deleting = True
    world.look()


def assert_checkpoints_are_left(world):
    assert "SavepointFailed" in world.reasons()
    assert "s3://bucket/orders/7" in world.last.announcements[-1].message
    assert world.finalizers == [] and "orders-clean" not in world.pods


def test_checkpoints_stay_if_the_driver_ends_without_the_savepoint(running):
    begin_deletion_with_savepoint(running)
    running.crash_driver()
    running.look()
    assert_checkpoints_are_left(running)


def test_checkpoints_stay_if_the_driver_cannot_take_the_savepoint(running):
    running.say(phase=Phase.STARTING)
    begin_deletion_with_savepoint(running)
    running.look()
    assert_checkpoints_are_left(running)


def test_checkpoints_stay_if_the_savepoint_takes_too_long(running):
    begin_deletion_with_savepoint(running)
    running.pass_time(301)
    running.settle(2)
    assert_checkpoints_are_left(running)


def test_a_savepoint_that_failed_is_not_waited_for(running):
    begin_deletion_with_savepoint(running)
    running.say(savepoints=[running.savepoint("deletion-0a1b2c3d", SavepointState.FAILED, error="disk full")])
    running.look()
    assert "SavepointFailed" in running.reasons() and running.step == "Kill"
    running.look()
    assert_checkpoints_are_left(running)


def test_checkpoints_are_removed_when_the_savepoint_is_there(running):
    begin_deletion_with_savepoint(running)
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.look()
    assert "orders-clean" in running.pods and running.finalizers == [naming.FINALIZER]


def test_the_savepoint_of_a_suspension_is_as_good(running):
    running.edit(savepointOnDeletion=True, deletionPolicy="Delete", state="Suspended")
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.settle(3)
    running.deleting = True
    running.settle(2)
    assert "orders-clean" in running.pods


def test_a_savepoint_that_checkpoints_have_overtaken_is_not(running):
    running.edit(savepointOnDeletion=True, deletionPolicy="Delete", state="Suspended")
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.settle(3)
    running.pass_time(60)
    running.edit(state="Running")
    running.finish_start()
    running.crash_driver()
    running.deleting = True
    running.look()
    assert_checkpoints_are_left(running)


def test_where_no_checkpoint_was_completed_there_is_nothing_to_keep(world):
    world.settle(3)
    begin_deletion_with_savepoint(world)
    world.look()
    assert "orders-clean" in world.pods and "SavepointFailed" not in world.reasons()


@pytest.mark.parametrize("change", ["an upgrade", "a suspension"])
def test_a_savepoint_that_is_being_taken_already_is_the_deletions(running, change):
    """The driver ends with it, and takes no other."""
    running.edit(savepointOnDeletion=True)
    running.look()
    if change == "an upgrade":
        running.begin_upgrade()
        running.plan_succeeds()
    else:
        running.edit(state="Suspended")
    running.settle(2)
    name = running.status["operation"]["savepointName"]
    running.say(phase=Phase.STOPPING)
    running.deleting = True
    running.settle(3)
    assert running.driver.living and not running.actions(DeletePod), "it is not killed while it takes the savepoint"
    running.end_driver(0, Phase.STOPPED, savepoint_path=f"s3://bucket/orders/savepoints/{name}")
    running.look()
    assert running.finalizers == []
    assert "SavepointFailed" not in running.reasons()


@pytest.mark.parametrize(
    "spec",
    [
        {"executor": {"memory": "512Mi"}},
        {"driver": {"memory": "512Mi"}},
        {"driver": {"podTemplate": {"spec": {"containers": [{"name": "driver", "image": "mine"}]}}}},
    ],
    ids=str,
)
def test_wishes_are_heard_of_a_spec_that_an_earlier_release_took(running, spec):
    """It runs; that it would be refused today is no reason to leave its checkpoints behind."""
    running.edit(deletionPolicy="Delete", **spec)
    running.status["driver"]["specHash"] = running.status["lastGoodHash"] = naming.spec_hash(running.spec)
    running.stored.add(naming.spec_hash(running.spec))
    running.look()
    assert running.condition("Ready") == ("True", "Running")
    running.deleting = True
    running.settle(3)
    assert running.actions(LaunchCleaner) or "orders-clean" in running.pods


@pytest.mark.parametrize(
    "change",
    [
        {"executor": {"memory": "512Mi"}},
        {"driver": {"memory": "100Mi"}},
        {"driver": {"podTemplate": {"spec": {"containers": [{"name": "driver", "image": "mine"}]}}}},
    ],
    ids=str,
)
def test_a_changed_spec_is_judged_as_this_release_does(running, change):
    running.edit(**change)
    running.look()
    assert running.condition("Ready") == ("False", "InvalidSpec")


def test_wishes_are_heard_of_a_spec_that_cannot_be_used(running):
    """What is wrong with it elsewhere, nobody puts right any more."""
    running.edit(deletionPolicy="Delete", savepointOnDeletion=True)
    running.look()
    running.edit(executor={"podTemplate": {"spec": "x"}})
    running.look()
    assert running.condition("Ready") == ("False", "InvalidSpec")
    running.deleting = True
    running.look()
    assert running.actions(StopJob)
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://p")
    running.settle(2)
    assert "orders-clean" in running.pods and running.finalizers == [naming.FINALIZER]
