"""Savepoints that the operator asked for itself, and did not get."""

import pytest

from snapshot_engine.wire.status import SavepointState
from streamingjob_operator.actions import DropSavepoint
from streamingjob_operator.resource import MAX_STATUS_SAVEPOINTS


def states(world):
    return {record["name"]: record["state"] for record in world.status["savepoints"]}


def test_a_savepoint_that_was_given_up_has_failed(running):
    running.edit(state="Suspended")
    running.look()
    running.look()
    assert states(running) == {"suspend-2-0a1b2c3d": "Pending"}
    running.pass_time(400)
    running.settle(3)
    assert running.status["phase"] == "Suspended"
    assert states(running) == {"suspend-2-0a1b2c3d": "Failed"}
    assert "given up" in running.status["savepoints"][0]["error"]


def test_one_that_is_completed_after_all_is_listed_and_so_can_be_dropped(running):
    running.begin_upgrade(savepointFallback="KeepRunning")
    running.plan_succeeds()
    running.look()
    running.pass_time(400)
    running.settle(3)
    assert running.condition("Ready") == ("False", "SavepointTimedOut")
    assert states(running) == {"upgrade-2-0a1b2c3d": "Failed"}
    late = running.savepoint("upgrade-2-0a1b2c3d", SavepointState.COMPLETED, path="s3://p", completed_at=running.now)
    running.say(savepoints=[late])
    running.look()
    assert (
        states(running) == {"upgrade-2-0a1b2c3d": "Completed"} and running.status["savepoints"][0]["path"] == "s3://p"
    )
    running.say(savepoints=[running.savepoint("upgrade-2-0a1b2c3d", SavepointState.PENDING)])
    running.look()
    assert states(running) == {"upgrade-2-0a1b2c3d": "Completed"}


def complete_own_savepoints(world, number):
    """One after the other, by upgrades."""
    for _ in range(number):
        world.upgrade_to_its_start(parallelism=world.generation + 10)
        world.finish_start()


def names(world):
    return [record["name"] for record in world.status["savepoints"]]


def test_an_own_savepoint_is_listed_until_it_is_known_to_be_deleted(running):
    complete_own_savepoints(running, 4)
    oldest = names(running)[-1]
    running.look()
    assert running.actions(DropSavepoint) == [DropSavepoint(oldest)] and oldest in names(running)
    running.dropped_savepoints = {oldest}
    running.look()
    assert not running.actions(DropSavepoint) and len(names(running)) == 3 and oldest not in names(running)


def test_one_that_cannot_be_deleted_says_so_once_and_is_tried_again(running):
    complete_own_savepoints(running, 4)
    oldest = names(running)[-1]
    running.failed_drops = {oldest: "403 AccessDenied"}
    decision = running.look()
    assert not running.actions(DropSavepoint), "not at every look"
    assert running.status["savepoints"][-1]["name"] == oldest
    assert "403 AccessDenied" in running.status["savepoints"][-1]["error"]
    assert running.reasons() == ["CleanupFailed"] and oldest in decision.announcements[0].message
    running.look()
    assert running.reasons() == []
    running.failed_drops = {}
    running.look()
    assert running.actions(DropSavepoint) == [DropSavepoint(oldest)]
    running.dropped_savepoints = {oldest}
    running.look()
    assert oldest not in names(running)


def test_savepoints_of_users_push_no_own_one_out_of_the_list(running):
    """It would never be deleted."""
    complete_own_savepoints(running, 1)
    [own] = names(running)
    for number in range(MAX_STATUS_SAVEPOINTS + 2):
        running.edit(savepointNonce=number)
        running.look()
        name = names(running)[0]
        running.say(savepoints=[running.savepoint(name, SavepointState.COMPLETED, path=f"s3://p/{name}")])
        running.look()
    assert own in names(running) and len(names(running)) == MAX_STATUS_SAVEPOINTS


@pytest.mark.parametrize("given", ["{name}", "{path}", "{path}/"], ids=["name", "path", "folder"])
def test_an_own_savepoint_that_the_user_restores_from_is_not_deleted(running, given):
    """Until the first checkpoint since, every restart of a region begins from there."""
    complete_own_savepoints(running, 4)
    oldest = running.status["savepoints"][-1]
    running.edit(restoreFrom=given.format(**oldest), restoreNonce=1)
    running.settle(2)
    running.plan_succeeds()
    running.settle(4)
    running.finish_start()
    assert running.status["driver"]["restore"]["path"] == given.format(**oldest)
    running.look()
    assert not running.actions(DropSavepoint)
