"""Savepoints that the operator asked for itself, and did not get."""

from snapshot_engine.wire.status import SavepointState


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
