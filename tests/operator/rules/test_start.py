"""From a new StreamingJob to one that runs, is finished, or says why it cannot."""

from streamingjob_operator.actions import DryRunPods, LaunchDriver, StoreSpec


def test_the_pods_are_checked_before_the_first_driver_is_launched(world):
    world.look()
    assert world.actions(StoreSpec) and world.actions(DryRunPods) and not world.actions(LaunchDriver)
    world.look()
    [launch] = world.actions(LaunchDriver)
    assert launch.driver.generation == 1
    assert world.status["driver"]["podName"] == "orders-driver-1"


def test_the_driver_is_recorded_before_it_is_launched(world):
    world.look()
    decision = world.decide()
    assert decision.status.driver is not None and decision.status.driver.pod_uid is None
    world.look()
    world.look()
    assert world.status["driver"]["podUid"] == "uid-orders-driver-1"


def test_a_job_is_ready_when_all_its_regions_run(running):
    assert running.condition("Ready") == ("True", "Running")
    assert running.condition("Reconciling")[0] == "False"
    assert running.condition("CheckpointsHealthy") == ("True", "CheckpointsComplete")
    assert running.status["regionsReady"] == "3/3"
    assert running.status["executors"] == {"ready": 3, "desired": 1}
    assert running.status["observedGeneration"] == 1


def test_a_second_look_at_a_job_that_runs_does_nothing(running):
    before = running.status
    decision = running.look()
    assert decision.actions == () and decision.announcements == ()
    assert running.status == before


def test_a_recorded_driver_whose_pod_nobody_saw_gets_the_next_generation(world):
    world.look()
    world.status = world.decide().status.to_wire()  # recorded, and then the operator died
    world.settle(2)
    assert list(world.pods) == ["orders-driver-2"]


def test_a_pod_that_was_made_before_the_operator_died_is_taken_over(world):
    world.settle(2)  # the pod is there, its uid is not recorded yet
    assert "podUid" not in world.status["driver"]
    world.settle(2)
    assert list(world.pods) == ["orders-driver-1"]
    assert world.status["driverGeneration"] == 1


def test_a_spec_whose_pods_are_refused_starts_nothing_and_says_why(world):
    world.dry_run_answer = "spec.driver.podTemplate: no such field"
    world.settle(3)
    assert world.pods == {}
    assert world.condition("Stalled") == ("True", "InvalidSpec")
    assert "no such field" in world.message("Ready")


def test_a_refused_driver_pod_is_a_condition_and_costs_no_budget(world):
    world.refuse_launch = "exceeded quota: team, requested: memory=1Gi, limited: memory=0"
    world.settle(8)
    assert world.status["driverGeneration"] == 1
    assert world.condition("Ready") == ("False", "DriverCannotStart")
    assert "exceeded quota" in world.message("Ready")
    assert world.status["restartBudget"]["spent"] == 0
    world.refuse_launch = None
    world.settle(2)
    assert list(world.pods) == ["orders-driver-1"]


def test_a_driver_pod_that_cannot_start_is_a_condition_and_costs_no_budget(world):
    world.settle(3)
    world.change_pod("orders-driver-1", phase="Pending", ready=False, start_problem="ErrImagePull: no such image")
    world.settle(3)
    assert world.condition("Ready") == ("False", "DriverCannotStart")
    assert "ErrImagePull: no such image" in world.message("Ready")
    assert world.status["driverGeneration"] == 1


def test_a_first_start_that_takes_too_long_is_stalled_and_goes_on_trying(world):
    world.settle(3)
    world.pass_time(601)
    world.look()
    assert world.condition("Stalled") == ("True", "NotReadyInTime")
    world.add_executors()
    world.say()
    world.look()
    assert world.condition("Ready") == ("True", "Running")
    assert world.condition("Stalled")[0] == "False"


def test_a_bounded_job_that_ended_is_finished_and_stays_so(running):
    running.end_driver(0, phase="Finished", last_completed_checkpoint=9)
    running.look()
    assert running.status["phase"] == "Finished"
    assert running.condition("Completed") == ("True", "Finished")
    assert running.condition("Ready") == ("True", "Finished")
    running.pods.clear()
    running.settle(3)
    assert running.status["phase"] == "Finished" and running.pods == {}


def test_an_invalid_spec_leaves_the_running_job_untouched(running):
    running.edit(sparkConf={"spark.speculation": "true"})
    decision = running.look()
    assert decision.actions == ()
    assert running.condition("Stalled") == ("True", "InvalidSpec")
    assert "spark.speculation is set by the engine" in running.message("Ready")
    running.crash_driver()
    running.settle(3)
    assert list(running.pods)[-1] == "orders-driver-2", "recovery goes on with the spec that ran"


def test_restore_from_is_used_at_the_first_start_only(world):
    world.spec["restoreFrom"] = "s3://bucket/old/savepoints/a"
    world.start()
    restore = world.status["driver"]["restore"]
    assert restore["path"] == "s3://bucket/old/savepoints/a"
    world.edit(restoreFrom="s3://bucket/old/savepoints/b")
    decision = world.look()
    assert decision.actions == (), "a value left or changed in Git does not rewind the job"


def test_a_driver_that_follows_is_given_the_same_restore_id(world):
    world.spec["restoreFrom"] = "s3://bucket/old/savepoints/a"
    world.start()
    first = world.status["driver"]["restore"]
    world.crash_driver()
    world.settle(3)
    assert world.status["driver"]["generation"] == 2
    assert world.status["driver"]["restore"] == first


def test_foreign_state_stops_the_job_with_a_condition(world):
    world.settle(3)
    world.end_driver(66, error="the storage holds the state of another StreamingJob (uid 9f)")
    world.look()
    assert world.status["phase"] == "Failed"
    assert world.condition("Stalled") == ("True", "ForeignState")
    assert "another StreamingJob" in world.message("Stalled")
    world.settle(3)
    assert world.status["driverGeneration"] == 1, "no loop"
