"""A job that completes no checkpoints: said, or its driver replaced; never one that nobody has heard of meanwhile."""

from streamingjob_operator.actions import DeletePod
from streamingjob_operator.following import PROGRESS_SECONDS


def test_a_job_without_progress_says_so_once_and_runs_on(running):
    running.pass_time(601)
    running.look()
    assert running.reasons() == ["NoProgress"]
    assert running.condition("CheckpointsHealthy") == ("False", "NoProgress")
    running.look()
    assert running.reasons() == [] and running.last.actions == ()


def test_a_job_without_progress_is_restarted_where_the_policy_says_so(running):
    running.edit(recovery={"onNoProgress": "Restart"})
    running.pass_time(601)
    running.settle(3)
    assert running.driver.name == "orders-driver-2"


def test_a_job_that_takes_checkpoints_seldom_is_not_without_progress_between_two_of_them(world):
    world.spec["checkpoint"] = {**world.spec["checkpoint"], "interval": "30m"}
    world.spec["recovery"] = {"onNoProgress": "Restart"}
    world.start()
    world.pass_time(3599)
    world.settle(3)
    assert world.driver.name == "orders-driver-1"
    world.pass_time(2)
    world.settle(3)
    assert world.driver.name == "orders-driver-2"


def test_an_operator_that_is_back_restarts_no_driver_that_it_has_not_heard_yet(running):
    running.edit(recovery={"onNoProgress": "Restart"})
    running.look()
    running.report = None
    running.pass_time(3600)
    running.look()
    assert running.actions(DeletePod) == []
    assert running.reasons() == []


def test_an_operator_that_is_cut_off_restarts_nobody_for_lack_of_progress(running):
    running.edit(recovery={"onNoProgress": "Restart"})
    running.look()
    running.silent_since = running.now
    running.may_replace_silent_driver = False
    running.pass_time(601)
    running.look()
    assert running.actions(DeletePod) == []


def test_progress_that_the_driver_holds_back_is_not_missing(world):
    world.spec["checkpoint"] = {**world.spec["checkpoint"], "interval": "1s"}
    world.spec["recovery"] = {"progressWindow": "10s", "onNoProgress": "Restart"}
    world.start()
    world.pass_time(PROGRESS_SECONDS - 1)
    world.look()
    assert world.actions(DeletePod) == []
