"""The planner pod: only its own no refuses a changed spec."""

import pytest

from streamingjob_operator.observation import ContainerExit, Refusal

ENDS_THAT_SAY_NOTHING = {
    "evicted": {"status_reason": "Evicted", "exit": None},
    "out of memory": {"exit": ContainerExit(137, "OOMKilled", None, "")},
    "storage that did not answer": {"exit": ContainerExit(1, "Error", None, "error: no answer")},
}


@pytest.mark.parametrize("end", ENDS_THAT_SAY_NOTHING.values(), ids=ENDS_THAT_SAY_NOTHING)
def test_a_planner_that_ended_without_a_word_is_asked_again(running, end):
    running.begin_upgrade()
    running.change_pod(running.planner, phase="Failed", **end)
    running.look()
    assert running.step == "Plan" and running.condition("Ready") == ("False", "Upgrading")
    assert "it is tried again" in running.message("Ready")
    running.pass_time(11)
    running.settle(2)
    assert running.pods[running.planner].phase == "Running", "another one"
    running.plan_succeeds()
    running.look()
    assert running.step == "Stop"


def test_planners_that_never_say_a_word_refuse_the_change_in_the_end(running):
    running.begin_upgrade(readyTimeout="1m")
    running.pass_time(61)
    running.change_pod(running.planner, phase="Failed", exit=ContainerExit(137, "OOMKilled", None, ""))
    running.look()
    assert running.condition("Ready") == ("False", "UpgradeRefused")
    assert "took more memory" in running.message("Ready")


@pytest.mark.parametrize("code", [65, 68], ids=["a pipeline that cannot be planned", "a state it cannot go on from"])
def test_a_planner_that_says_no_refuses_the_change_at_once(running, code):
    running.begin_upgrade()
    running.change_pod(
        running.planner, phase="Failed", exit=ContainerExit(code, "Error", None, "uid counts is missing")
    )
    running.look()
    assert running.condition("Ready") == ("False", "UpgradeRefused")
    assert "uid counts is missing" in running.message("Ready")


def test_a_planner_that_cannot_start_is_told_at_once(running):
    running.begin_upgrade()
    running.change_pod(running.planner, phase="Pending", start_problem="ImagePullBackOff: no such image")
    running.look()
    assert running.condition("Ready") == ("False", "Upgrading")
    assert "ImagePullBackOff: no such image" in running.message("Ready")


def test_an_image_whose_name_is_none_refuses_the_change_at_once(running):
    """Nothing but another spec changes it."""
    running.begin_upgrade(image="Not An Image")
    problem = 'InvalidImageName: Failed to apply default image tag "Not An Image"'
    running.change_pod(running.planner, phase="Pending", start_problem=problem)
    running.look()
    assert running.condition("Ready") == ("False", "UpgradeRefused")
    assert "the planner cannot start: InvalidImageName" in running.message("Ready")
    assert running.status["phase"] == "Running"


def test_a_spec_that_does_not_fit_the_state_is_planned_again_without_it_when_the_mode_says_so(running):
    running.begin_upgrade()
    running.plan_fails()
    running.look()
    assert running.condition("Ready") == ("False", "UpgradeRefused")
    refused = running.planner_request
    running.edit(upgradeMode="Stateless")
    running.settle(3)
    assert running.step == "Plan"
    asked = running.planner_request
    assert (refused.restore, asked.restore.ignore_state) == (None, True)


def test_a_spec_that_starts_from_elsewhere_is_planned_against_that_state(running):
    running.begin_upgrade(restoreFrom="s3://p/older", restoreNonce=1)
    assert running.planner_request.restore.path == "s3://p/older"


def test_the_word_of_a_planner_counts_only_for_the_state_that_it_has_looked_at(running):
    running.begin_upgrade()
    first = running.planner
    running.plan_fails()
    running.edit(upgradeMode="Stateless")
    running.settle(2)
    assert running.step == "Plan" and running.condition("Stalled")[0] == "False"
    assert first not in running.pods and running.pods[running.planner].phase == "Running"
    running.plan_succeeds()
    running.look()
    assert running.step == "Stop"


def test_a_plan_for_which_the_cluster_gave_no_pod_says_why(running):
    """A quota that the running job has used up, for instance: it stays said after it was given up."""
    quota = 'pods "orders-plan-1" is forbidden: exceeded quota: team'
    running.edit(parallelism=4, readyTimeout="1m")
    running.look()
    running.hindrance = Refusal("LaunchPlanner", quota)
    running.look()
    del running.pods[running.planner]
    running.pass_time(61)
    running.settle(1)
    running.hindrance = None
    running.settle(2)
    assert running.condition("Stalled") == ("True", "UpgradeRefused")
    assert quota in running.message("Stalled")
