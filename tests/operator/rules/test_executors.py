"""Lost executors are told to the JobMaster: each loss once, whenever it happened."""

import pytest

from snapshot_engine.wire.status import Phase, RegionFailure, RegionState, RestartEntry, SlotStatus
from streamingjob_operator.actions import DeletePod, HintSuspectNode, ProbeExecutor, ReportLoss
from streamingjob_operator.observation import ContainerExit, LossKey, NodeView
from streamingjob_operator.resource import JobSize


def losses(world):
    return [(action.request.executor_id, action.request.reason) for action in world.actions(ReportLoss)]


def test_an_executor_without_a_pod_is_lost(running):
    del running.pods[running.executor_pod(1)]
    running.look()
    assert losses(running) == [("1", "PodGone")]
    [action] = running.actions(ReportLoss)
    assert (action.request.generation, action.request.application_id) == (1, "app-1")
    assert running.condition("Degraded") == ("True", "ExecutorLost")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"phase": "Failed", "exit": ContainerExit(137, "OOMKilled", None, "")}, "OOMKilled"),
        ({"phase": "Failed", "status_reason": "Evicted"}, "Evicted"),
        ({"phase": "Failed"}, "PodFailed"),
        ({"phase": "Succeeded"}, "PodFailed"),
    ],
)
def test_an_executor_whose_pod_has_ended_is_lost(running, changes, reason):
    running.change_pod(running.executor_pod(0), **changes)
    running.look()
    assert losses(running) == [("0", reason)]


def test_an_executor_whose_pod_is_being_deleted_is_lost_at_once(running):
    running.change_pod(running.executor_pod(2), deleting_since=running.now)
    running.look()
    assert losses(running) == [("2", "PodDeleting")]


@pytest.mark.parametrize("phase", [Phase.FINISHED, Phase.STOPPED, Phase.FAILED])
def test_executors_of_a_job_that_has_ended_may_go(running, phase):
    running.say(phase=phase)
    del running.pods[running.executor_pod(1)]
    running.look()
    assert losses(running) == []


def test_a_driver_that_does_not_answer_is_told_of_losses_when_it_answers_again(running):
    """At the end of a job the driver is gone before its pod is, and takes its executors along."""
    del running.pods[running.executor_pod(1)]
    running.silent_since = running.now
    running.look()
    assert losses(running) == []
    assert running.condition("Degraded") == ("False", "Healthy")
    running.silent_since = None
    running.look()
    assert losses(running) == [("1", "PodGone")]


def test_two_losses_at_once_are_both_told(running):
    del running.pods[running.executor_pod(0)]
    del running.pods[running.executor_pod(2)]
    running.look()
    assert losses(running) == [("0", "PodGone"), ("2", "PodGone")]


def test_a_loss_told_a_moment_ago_is_not_told_again_but_looked_at_again(running):
    del running.pods[running.executor_pod(1)]
    running.losses_told = {LossKey(1, "app-1", "1", None)}
    decision = running.look()
    assert losses(running) == []
    assert decision.look_again_in == 5.0


def test_a_loss_that_the_jobmaster_has_taken_up_is_over(running):
    del running.pods[running.executor_pod(1)]
    running.say(executors=[running.executor_entry(0), running.executor_entry(2)])
    running.look()
    assert losses(running) == []


def test_a_replaced_pod_of_the_same_executor_id_is_another_pod(running):
    entry = running.executor_entry(1).model_copy(update={"pod_uid": "uid-before"})
    running.say(executors=[running.executor_entry(0), entry, running.executor_entry(2)])
    running.look()
    assert losses(running) == [("1", "PodGone")]


def test_executors_of_an_older_driver_are_nobodys_loss(running):
    running.crash_driver()
    running.settle(3)
    for name in [pod.name for pod in running.pods.values() if pod.component == "executor"]:
        del running.pods[name]
    running.look()
    assert losses(running) == []


def test_a_loss_never_replaces_the_driver(running):
    for number in range(3):
        del running.pods[running.executor_pod(number)]
    running.settle(3)
    assert running.status["driverGeneration"] == 1


def test_a_node_that_is_not_ready_is_a_hint(running):
    running.nodes["node-1"] = NodeView("node-1", ready=False, unreachable=False)
    running.look()
    [hint] = running.actions(HintSuspectNode)
    assert hint.request.node == "node-1" and hint.request.executor_ids == ["0", "1", "2"]
    assert running.actions(DeletePod) == []
    assert running.condition("Degraded") == ("True", "NodeSuspect")


def test_pods_on_an_unreachable_node_are_removed_and_then_lost(running):
    running.change_pod(running.driver.name, node="node-2")
    running.nodes["node-1"] = NodeView("node-1", ready=False, unreachable=True)
    running.look()
    assert {(action.name, action.force) for action in running.actions(DeletePod)} == {
        (f"orders-1-exec-{number}", True) for number in range(3)
    }
    running.look()
    assert len(losses(running)) == 3


def test_a_recovered_region_is_announced_with_its_checkpoint_and_time(running):
    failure = RegionFailure(at=running.now, cause="PodLost")
    away = running.region(1, state=RegionState.RESTORING, attempt=2, restarts=1, last_failure=failure)
    running.say(regions=[running.region(0), away, running.region(2)], restarts=1)
    running.look()
    assert running.status["phase"] == "Recovering" and running.status["regionsReady"] == "2/3"
    running.pass_time(0.9)
    back = away.model_copy(
        update={"state": RegionState.RUNNING, "running_since": running.now, "last_restored_checkpoint": 7}
    )
    phases = {"detect": 5.0, "schedule": 0.75, "restore": 0.15}
    history = [RestartEntry(region="r1", cause="PodLost", failed_at=failure.at, attempt=2, phases=phases)]
    running.say(regions=[running.region(0), back, running.region(2)], restarts=1, restart_history=history)
    decision = running.look()
    assert [each.message for each in decision.announcements] == [
        "Region r1 runs again 0.90 s after its failure was noticed (detect 5.00 before; schedule 0.75, restore 0.15), "
        "attempt 2 from checkpoint 7 (cause: PodLost)"
    ]
    assert decision.recoveries == (0.9,)
    assert running.status["restarts"] == 1 and running.status["phase"] == "Running"


def test_executors_that_cannot_start_and_missing_slots_are_conditions(running):
    name = running.executor_pod(1)
    running.change_pod(name, phase="Pending", start_problem="Unschedulable: 0/1 nodes are available")
    running.say(slots=SlotStatus(total=2, used=2, needed=3))
    running.look()
    assert running.condition("Degraded") == ("True", "ExecutorsCannotStart")
    assert "0/1 nodes are available" in running.message("Degraded")
    assert "needs 3 slots and the executors have 2" in running.message("Degraded")


def starting_with(world, there, **spec):
    """A driver that has asked for its executors, and so many pods of theirs."""
    world.edit(**spec)
    world.settle(3)
    world.add_executors()
    for number in range(there, 3):
        del world.pods[world.executor_pod(number)]
    needed = spec.get("parallelism", 1)
    world.say(phase=Phase.STARTING, executors=[], slots=SlotStatus(total=there, needed=needed))
    world.look()


@pytest.mark.parametrize("there", [0, 2])
def test_executors_that_a_quota_refuses_are_said(world, there):
    starting_with(world, there, parallelism=4)
    assert world.condition("Degraded") == ("False", "Healthy"), "they may be on their way"
    assert world.last.look_again_in <= 20
    world.pass_time(21)
    world.look()
    assert world.condition("Degraded") == ("True", "ExecutorsCannotStart")
    assert world.message("Degraded") == (
        f"{there} of 4 executor pods are there, and no more are being made: a ResourceQuota or an admission rule of "
        "the namespace may refuse them (kubectl describe quota -n shop)"
    )
    assert world.condition("Ready")[0] == "False" and world.message("Ready") == world.message("Degraded")


def test_the_api_server_says_why_it_refuses_executors(world):
    starting_with(world, 2, parallelism=4)
    assert not world.actions(ProbeExecutor), "they may be on their way"
    world.pass_time(21)
    world.look()
    assert world.actions(ProbeExecutor) == [ProbeExecutor(world.status["driver"]["specHash"])]
    world.executor_probed, world.executor_refusal = True, "exceeded quota: team, used: pods=3, limited: pods=3"
    world.look()
    assert not world.actions(ProbeExecutor), "asked a moment ago"
    assert world.last.look_again_in <= 30
    assert world.message("Degraded") == (
        "2 of 4 executor pods are there, and no more are being made: the API server refuses them: exceeded quota: "
        "team, used: pods=3, limited: pods=3"
    )


def test_executors_that_a_region_needs_beyond_the_parallelism_are_wanted_as_well(world):
    starting_with(world, 2, parallelism=2, executor={"standby": 1})
    world.say(phase=Phase.STARTING, executors=[], slots=SlotStatus(total=2, needed=3))
    world.pass_time(21)
    world.settle(2)
    assert world.message("Degraded").startswith("2 of 4 executor pods are there")


def test_executors_that_come_one_after_the_other_are_on_their_way(world):
    starting_with(world, 2, parallelism=4)
    world.pass_time(15)
    world.change_pod(world.executor_pod(1), created_at=world.now)
    world.pass_time(15)
    world.look()
    assert world.condition("Degraded") == ("False", "Healthy")
    world.pass_time(6)
    world.look()
    assert world.condition("Degraded") == ("True", "ExecutorsCannotStart")


def test_a_replacement_has_its_time_after_each_loss(running):
    running.edit(executor={"instances": 3})
    running.change_pod(running.driver.name, size=JobSize(parallelism=1, executors=3))
    running.status["driver"]["size"] = {"parallelism": 1, "executors": 3}
    for _ in range(2):
        running.pass_time(100)
        pod = running.pods.pop(running.executor_pod(1))
        running.say(executors=[running.executor_entry(0), running.executor_entry(2)])
        running.look()
        assert "of 3 executor pods" not in running.message("Degraded")
        running.pass_time(10)
        running.pods[pod.name] = pod
        running.say()
        running.look()
        assert "shortSince" not in running.status["executors"]


def test_executors_of_a_driver_that_ends_are_not_missed(world):
    starting_with(world, 0, parallelism=4)
    world.pass_time(21)
    world.say(phase=Phase.FINISHED)
    world.look()
    assert "executor pods" not in world.message("Degraded")


def test_advice_on_slots_fits_what_is_set(world):
    starting_with(world, 3, parallelism=3)
    world.say(slots=SlotStatus(total=2, needed=3))
    world.look()
    assert "executor.instances" not in world.message("Degraded")
    assert "needs 3 slots and the executors have 2" in world.message("Degraded")


def test_the_status_stays_small_with_many_regions(running):
    regions = [running.region(n) for n in range(499)]
    regions.append(running.region(499, state=RegionState.RESTORING, restarts=3))
    running.say(regions=regions)
    running.look()
    assert len(running.status["regions"]) == 32
    assert "r499" in [region["id"] for region in running.status["regions"]], "those in trouble are shown"
    assert running.status["regionsReady"] == "499/500"


def test_the_size_is_that_of_the_job_that_runs_and_not_of_a_spec_that_was_refused(running):
    running.begin_upgrade(parallelism=8)
    running.plan_fails()
    running.settle(2)
    assert running.condition("Ready") == ("False", "UpgradeRefused")
    assert (running.status["replicas"], running.status["executors"]["desired"]) == (1, 1)


def test_the_size_after_a_rollback_is_that_of_the_last_good_spec(running):
    running.upgrade_to_its_start(parallelism=8, readyTimeout="1m")
    assert (running.status["replicas"], running.status["executors"]["desired"]) == (8, 8)
    running.pass_time(61)
    running.settle(4)
    running.finish_start()
    assert running.condition("Ready") == ("False", "RolledBack")
    assert (running.status["replicas"], running.status["executors"]["desired"]) == (1, 1)


def test_the_size_of_a_driver_that_an_older_operator_made_is_taken_from_the_spec(running):
    running.change_pod(running.driver.name, size=None)
    running.status["driver"].pop("size")
    running.settle(2)
    assert (running.status["replicas"], running.status["executors"]["desired"]) == (1, 1)
