"""What happens to the driver pod, and what the operator does about it."""

import pytest

from snapshot_engine.wire.status import Phase, RegionState
from streamingjob_operator import naming
from streamingjob_operator.actions import DeletePod, FetchDriverLog, LaunchDriver
from streamingjob_operator.observation import ContainerExit, NodeView
from streamingjob_operator.resource import MAX_MESSAGE_LENGTH


def test_a_crashed_driver_gets_one_successor_of_the_next_generation(running):
    running.crash_driver()
    running.look()
    running.settle(3)
    drivers = [pod.name for pod in running.pods.values() if pod.component == "driver"]
    assert drivers == ["orders-driver-2"]
    assert running.status["phase"] == "Recovering"
    assert running.status["restarts"] == 1
    assert running.status["restartBudget"]["spent"] == 1


def test_the_loss_is_announced_with_its_reason(running):
    running.crash_driver()
    running.look()
    assert "DriverLost" in running.reasons()
    assert "exited with code 1 (Error): Traceback: boom" in running.last.announcements[0].message


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (ContainerExit(137, "Error", None, "some line of the log"), "was killed by signal 9;"),
        (ContainerExit(137, "OOMKilled", None, "some line"), "took more memory than it may have (spec.driver.memory);"),
    ],
)
def test_a_killed_driver_is_said_to_be_killed_and_not_what_its_log_ended_with(running, end, said):
    running.change_pod(running.driver.name, phase="Failed", exit=end)
    running.look()
    assert said in running.last.announcements[0].message


@pytest.mark.parametrize("reason", ["Evicted", "Preempting", "NodeLost"])
def test_an_evicted_driver_is_replaced_at_no_cost(running, reason):
    running.change_pod(running.driver.name, phase="Failed", status_reason=reason)
    running.settle(3)
    assert running.driver.name == "orders-driver-2"
    assert running.status["restartBudget"]["spent"] == 0


def test_a_deleted_driver_pod_is_replaced_at_no_cost(running):
    del running.pods[running.driver.name]
    running.settle(3)
    assert running.driver.name == "orders-driver-2"
    assert running.status["restartBudget"]["spent"] == 0


def test_the_successor_waits_until_the_old_pod_is_gone(running):
    name = running.driver.name
    running.change_pod(name, deleting_since=running.now)
    decision = running.look()
    assert not running.actions(LaunchDriver) and decision.look_again_in is not None
    running.look()
    assert list(running.status).count("driver") == 0
    del running.pods[name]
    running.settle(2)
    assert running.driver.name == "orders-driver-2"


def test_a_pod_that_does_not_go_is_removed_by_force_after_a_while(running):
    name = running.driver.name
    running.change_pod(name, deleting_since=running.now)
    running.look()
    running.pass_time(41)
    running.look()
    assert [(action.name, action.force) for action in running.actions(DeletePod)] == [(name, True)]


def test_restarts_back_off_after_the_first(running):
    running.crash_driver()
    running.settle(3)
    assert running.driver.generation == 2, "the first one is at once"
    running.crash_driver()
    running.look()
    decision = running.look()
    assert running.status["launch"]["notBefore"] is not None
    assert 0.5 < decision.look_again_in < 1.5
    running.pass_time(0.3)
    running.settle(2)
    assert "driver" not in running.status
    running.pass_time(1.2)
    running.settle(2)
    assert running.driver.generation == 3


def crash_until_failed(world, times):
    for _ in range(times):
        world.crash_driver()
        for _ in range(4):
            world.look()
            world.pass_time(70)
            if world.status["phase"] == "Failed":
                return


def test_a_spent_budget_fails_the_job_and_keeps_the_pod_and_its_log(world):
    world.spec["recovery"] = {"maxRestarts": 2, "window": "24h"}
    world.start()
    running = world
    crash_until_failed(running, 5)
    assert running.status["phase"] == "Failed"
    assert running.condition("Stalled") == ("True", "RestartsExhausted")
    assert running.status["driverGeneration"] == 3
    assert running.driver.name == "orders-driver-3"
    running.look()
    assert running.actions(FetchDriverLog)
    running.driver_log = "ERROR the last words"
    running.look()
    assert running.status["error"].endswith("Last log lines:\nERROR the last words")
    running.settle(3)
    assert running.last.actions == (), "no loop"


def test_the_budget_is_given_back_after_a_quiet_window(running):
    for _ in range(15):
        running.crash_driver()
        running.settle(3)
        running.pass_time(601)
        running.look()
        running.settle(2)
    assert running.status["phase"] == "Recovering"
    assert running.status["driverGeneration"] == 16


def test_a_failed_job_starts_again_when_the_spec_changes(world):
    world.settle(3)
    world.end_driver(65, error="jobs.orders has no function main")
    world.look()
    assert world.condition("Stalled") == ("True", "InvalidPipeline")
    world.edit(pipeline={"entrypoint": "jobs.orders:pipeline"})
    world.settle(4)
    assert world.driver.name == "orders-driver-2"
    world.add_executors()
    world.say()
    world.settle(2)
    assert world.condition("Ready") == ("True", "Running")


def test_silence_alone_replaces_nobody(running):
    running.silent_since = running.now
    running.pass_time(120)
    running.look()
    assert running.last.actions == ()
    assert running.condition("Degraded") == ("True", "DriverSilent")
    assert running.condition("Ready")[0] == "True"


def test_a_silent_driver_whose_probe_fails_is_replaced(running):
    running.silent_since = running.now
    running.change_pod(running.driver.name, ready=False)
    running.pass_time(19)
    running.look()
    assert running.last.actions == ()
    running.pass_time(2)
    running.settle(3)
    assert running.driver.name == "orders-driver-2"


def test_a_silent_driver_that_was_recovering_is_not_replaced_for_not_being_ready(running):
    """It was not ready before it fell silent: that says nothing. One that hangs is ended by its liveness probe."""
    running.say(phase=Phase.RECOVERING, regions=[running.region(0, state=RegionState.RESTORING)])
    running.look()
    running.change_pod(running.driver.name, ready=False)
    running.silent_since = running.now
    running.pass_time(60)
    running.settle(3)
    assert running.driver.name == "orders-driver-1"
    assert running.condition("Degraded") == ("True", "DriverSilent")


def test_an_operator_that_never_heard_of_a_silent_driver_goes_by_its_probe(running):
    """Both were on the node that is lost, and this operator may not see nodes."""
    running.report, running.nodes = None, {}
    running.silent_since = running.now
    running.change_pod(running.driver.name, ready=False)
    running.pass_time(21)
    running.settle(3)
    assert running.driver.name == "orders-driver-2"


def test_a_silent_driver_on_an_unreachable_node_is_replaced_and_its_object_removed(running):
    running.silent_since = running.now
    running.nodes["node-1"] = NodeView("node-1", ready=False, unreachable=True)
    running.pass_time(21)
    running.look()
    assert ("orders-driver-1", True) in [(action.name, action.force) for action in running.actions(DeletePod)]
    running.settle(2)
    assert running.driver.name == "orders-driver-2"
    assert running.status["restartBudget"]["spent"] == 0


def test_when_many_are_silent_at_once_nobody_is_replaced(running):
    running.silent_since = running.now
    running.change_pod(running.driver.name, ready=False)
    running.may_replace_silent_driver = False
    running.pass_time(21)
    decision = running.look()
    assert decision.actions == () and decision.look_again_in is not None
    assert running.condition("Degraded") == ("True", "DriverSilent")


def test_a_driver_that_is_still_starting_is_not_taken_for_silent(world):
    world.settle(3)
    world.change_pod("orders-driver-1", ready=False)
    world.silent_since = world.now
    world.pass_time(60)
    world.look()
    assert world.last.actions == ()


def test_a_driver_that_was_stopped_by_hand_runs_again(running):
    running.end_driver(0, phase="Stopped")
    running.settle(3)
    assert running.driver.name == "orders-driver-2"


def test_a_driver_that_left_no_word_has_not_finished(running):
    """Its report may be lost, with a full disk of its node for instance; one that was told to stop exits with 0 too."""
    end = ContainerExit(0, "Completed", None, "")
    running.change_pod(running.driver.name, phase="Succeeded", exit=end, ready=False, status_reason="Evicted")
    running.settle(3)
    assert running.status["phase"] != "Finished"
    assert running.driver.generation == 2


def test_a_failed_job_keeps_no_driver_that_runs_although_the_operator_died(world):
    world.spec["recovery"] = {"onNoProgress": "Restart", "maxRestarts": 0}
    world.start()
    world.pass_time(601)
    world.status = world.decide().status.to_wire()  # recorded, and then the operator died
    assert world.status["phase"] == "Failed"
    world.settle(3)
    assert not any(pod.component == naming.DRIVER and pod.living for pod in world.pods.values())


def test_a_drivers_long_last_words_fit_into_the_status(running):
    """The API server refuses a status that is too long, and nothing could be decided about the job any more."""
    running.end_driver(1, error="ä" * 2000)
    running.look()
    assert len(running.status["error"].encode()) <= MAX_MESSAGE_LENGTH
    assert running.status["error"].startswith("orders-driver-1 exited with code 1")


def test_a_driver_pod_that_comes_late_is_deleted(running):
    late = running.pods["orders-driver-1"]
    del running.pods["orders-driver-1"]
    running.settle(3)
    assert running.driver.generation == 2
    running.pods["orders-driver-1"] = late
    running.look()
    assert running.actions(DeletePod) == [DeletePod("orders-driver-1", late.uid)]
    running.look()
    assert running.driver.generation == 2 and running.last.actions == ()


def test_a_driver_whose_init_container_failed_says_so(running):
    why = "its init container migrate exited with code 3"
    running.change_pod(running.driver.name, phase="Failed", never_ran=why, init_failed=True)
    running.look()
    assert f"orders-driver-1 failed: {why}; a new driver takes over" in running.last.announcements[0].message


def reject_driver(world, reason="OutOfcpu"):
    world.change_pod(world.driver.name, phase="Failed", status_reason=reason, never_ran=f"Pod was rejected: {reason}")


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfpods", "NodeAffinity", "UnexpectedAdmissionError", None])
def test_a_driver_pod_that_the_kubelet_rejects_costs_nothing_however_often(running, reason):
    running.spec["recovery"] = {"maxRestarts": 2}
    for _ in range(5):
        reject_driver(running, reason)
        running.settle(3)
        running.pass_time(11)
        running.settle(3)
    assert running.driver.generation == 6 and running.driver.living
    assert running.status["restartBudget"]["spent"] == 0


def test_a_rejected_driver_pod_is_followed_not_too_soon_and_the_reason_is_said(world):
    world.settle(3)
    world.pass_time(2)
    reject_driver(world)
    world.settle(3)
    assert world.job().status.driver is None, "the next kubelet may say the same, and again, and again"
    assert "orders-driver-1" in world.message("Ready") and "Pod was rejected: OutOfcpu" in world.message("Ready")
    world.pass_time(8.1)
    world.settle(2)
    assert world.driver.name == "orders-driver-2"


def test_a_driver_whose_init_container_failed_costs_a_restart(running):
    running.change_pod(running.driver.name, phase="Failed", never_ran="its init container", init_failed=True)
    running.settle(3)
    assert running.status["restartBudget"]["spent"] == 1


def test_a_driver_whose_end_nobody_saw_costs_nothing(running):
    """As the kubelet says it when its machine has come up again."""
    end = ContainerExit(137, "ContainerStatusUnknown", None, "The container could not be located")
    running.change_pod(running.driver.name, phase="Failed", exit=end)
    running.settle(3)
    assert running.driver.name == "orders-driver-2" and running.status["restartBudget"]["spent"] == 0


@pytest.mark.parametrize("reason", ["Evicted", "OutOfcpu"])
def test_a_driver_that_is_evicted_again_and_again_before_it_is_ready_is_not_made_in_a_loop(running, reason):
    """As one that takes more room on the disk than it may have."""
    for _ in range(20):
        running.change_pod(running.driver.name, phase="Failed", status_reason=reason)
        for _ in range(4):
            running.look()
            running.pass_time(1)
        if "driver" not in running.status:
            running.pass_time(10)
            running.settle(2)
    assert running.driver.generation == 21
    assert (running.now - running.job().created_at).total_seconds() > 19 * 10
