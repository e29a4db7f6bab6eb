"""A driver is told that its line has completed checkpoints, so that it takes no empty storage for a fresh start."""

import pytest

from snapshot_engine.wire.status import CheckpointStatus

FIRST = "s3://bucket/orders/7"
"""What the JobMaster on paper says that it has completed last."""


def expected(world):
    return world.status["driver"].get("expectedCheckpoint")


def completes(world, path):
    world.say(checkpoint=CheckpointStatus(last_completed_id=9, completed_at=world.now, path=path))
    world.settle(2)


def is_replaced(world):
    generation = world.driver.generation
    world.crash_driver()
    world.settle(3)
    world.pass_time(60)  # the backoff
    world.settle(3)
    assert world.driver.generation == generation + 1


def test_the_first_driver_may_find_nothing(world):
    world.settle(3)
    assert expected(world) is None


def test_so_may_the_next_one_if_the_first_died_before_any_checkpoint(world):
    world.settle(3)
    world.say(checkpoint=CheckpointStatus())
    world.settle(2)
    is_replaced(world)
    assert expected(world) is None


def test_the_successor_of_one_that_has_completed_checkpoints_may_not(running):
    assert expected(running) is None, "of a driver that runs nothing changes"
    is_replaced(running)
    assert expected(running) == FIRST
    completes(running, "s3://bucket/orders/9")
    is_replaced(running)
    assert expected(running) == "s3://bucket/orders/9"


def test_a_successor_that_has_only_read_the_checkpoint_changes_nothing(running):
    is_replaced(running)
    completes(running, None)
    is_replaced(running)
    assert expected(running) == FIRST


@pytest.mark.parametrize("fallen_back", [False, True])
def test_a_change_that_goes_on_from_the_latest_checkpoint_expects_it(running, fallen_back):
    running.begin_upgrade(upgradeMode="Savepoint" if fallen_back else "LastState")
    running.plan_succeeds()
    running.look()
    running.crash_driver()
    running.settle(3)
    assert running.step == "Start"
    assert expected(running) == FIRST


def test_a_change_without_state_expects_nothing_until_it_has_completed_a_checkpoint(running):
    running.upgrade_to_its_start(upgradeMode="Stateless")
    assert expected(running) is None
    is_replaced(running)
    assert expected(running) is None
    completes(running, "s3://bucket/orders/9")
    is_replaced(running)
    assert expected(running) == "s3://bucket/orders/9"


def test_a_savepoint_that_was_asked_for_is_read_and_not_what_came_before_it(running):
    running.begin_upgrade(restoreFrom="s3://p/old", restoreNonce=1)
    running.plan_succeeds()
    running.settle(4)
    assert running.status["driver"]["restore"]["path"] == "s3://p/old"
    assert expected(running) is None
    completes(running, None)
    is_replaced(running)
    assert expected(running) is None, "it has read the savepoint, and completed nothing"
    completes(running, "s3://bucket/orders/9")
    is_replaced(running)
    assert expected(running) == "s3://bucket/orders/9"


def test_a_rollback_to_what_was_before_any_restore_expects_what_that_has_completed(running):
    running.upgrade_to_its_start(upgradeMode="Stateless")
    running.pass_time(601)
    running.settle(4)
    assert running.status["driver"]["restore"]["id"] == "first"
    assert expected(running) == FIRST


def test_a_finished_job_that_is_changed_goes_on_from_its_end(world):
    world.settle(3)
    world.end_driver(0, "Finished", last_completed_checkpoint=9, checkpoint_path="s3://bucket/orders/9")
    world.settle(2)
    assert world.status["phase"] == "Finished"
    world.edit(parallelism=4)
    world.settle(4)
    assert expected(world) == "s3://bucket/orders/9"


def test_a_status_of_an_operator_that_did_not_note_it_asks_for_nothing(running):
    del running.status["completed"]
    running.report = None
    is_replaced(running)
    assert expected(running) is None
