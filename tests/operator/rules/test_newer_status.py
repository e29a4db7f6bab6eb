"""A status that a newer operator has written: what this one does not know keeps it from nothing that it knows."""

import pytest
from tests.operator.conftest import START

from streamingjob_operator import naming
from streamingjob_operator.actions import DropSavepoint, LaunchCleaner

OPERATION = {"kind": "Upgrade", "step": "Plan", "startedAt": START.isoformat(), "stepStartedAt": START.isoformat()}


def lose_driver(world):
    del world.pods[world.driver.name]
    world.report = None


@pytest.mark.parametrize(
    "change", [{"phase": "Novel"}, {"operation": {**OPERATION, "step": "Novel"}}, {"refusalReason": "Novel"}], ids=str
)
def test_a_lost_driver_is_replaced(running, change):
    running.status |= change
    lose_driver(running)
    running.settle(3)
    assert running.status["driverGeneration"] == 2 and running.driver.living


def test_an_unknown_step_stands_still_and_is_told(running):
    running.status["operation"] = {**OPERATION, "step": "Novel"}
    running.edit(state="Suspended")
    running.settle(3)
    assert running.step == "Novel", "the newer operator goes on with it"
    assert running.condition("Stalled") == ("True", "UnknownStep") and "Novel" in running.message("Stalled")
    assert running.driver.living


def test_an_unknown_step_of_a_deletion_removes_nothing(running):
    running.finalizers = [naming.FINALIZER]
    running.edit(deletionPolicy="Delete")
    running.settle(2)
    running.deleting = True
    running.status["operation"] = {**OPERATION, "kind": "Delete", "step": "Novel", "targetHash": "abc"}
    running.look()
    assert not running.actions(LaunchCleaner)
    assert running.condition("Stalled") == ("True", "UnknownStep")


@pytest.mark.parametrize("step", ["Stop", "Kill", "Start", "Plan"])
def test_an_operation_of_an_unknown_kind_comes_to_its_end(running, step):
    running.status["operation"] = {**OPERATION, "kind": "Novel", "step": step}
    lose_driver(running)
    running.settle(4)
    running.finish_start()
    assert running.status["phase"] == "Running" and "operation" not in running.status


def test_reasons_are_said_as_they_were_written(running):
    running.begin_upgrade()
    running.plan_fails()
    running.settle(2)
    running.status["refusalReason"] = "Novel"
    running.settle(2)
    assert running.condition("Stalled") == ("True", "Novel")


def test_a_failure_of_an_unknown_kind_stays_a_failure(running):
    running.end_driver(65, error="no")
    running.settle(2)
    running.status["failureReason"] = "Novel"
    running.settle(2)
    assert running.status["phase"] == "Failed" and running.condition("Stalled") == ("True", "Novel")


def test_savepoints_of_an_unknown_trigger_are_kept(running):
    at = START.isoformat()
    record = {"trigger": "Novel", "state": "Completed", "requestedAt": at, "completedAt": at}
    running.status["savepoints"] = [{**record, "name": f"s{n}", "path": f"s3://s/{n}"} for n in range(6)]
    running.settle(2)
    assert not running.actions(DropSavepoint) and len(running.status["savepoints"]) == 6
