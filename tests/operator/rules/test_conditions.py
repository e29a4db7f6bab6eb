"""What the conditions say, and when they may say it: whoever waits for Ready must not be let go too early."""

from snapshot_engine.wire.status import Phase


def test_a_changed_spec_is_not_ready_while_it_is_not_decided_upon(running):
    running.edit(parallelism=4)
    running.look()
    assert running.status["observedGeneration"] == 2 and running.driver.living
    assert running.condition("Ready") == ("False", "Upgrading")
    assert running.condition("Reconciling") == ("True", "Upgrading")
    assert running.condition("Stalled")[0] == "False"


def test_a_change_that_needs_no_restart_leaves_the_job_ready(running):
    running.edit(savepointTimeout="1m")
    running.look()
    assert running.status["observedGeneration"] == 2 and running.condition("Ready")[0] == "True"


def test_a_suspended_job_that_is_to_run_again_is_not_ready_for_being_suspended(running):
    running.edit(state="Suspended")
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://x")
    running.settle(3)
    assert running.condition("Ready") == ("True", "Suspended")
    running.dry_runs = {}  # another operator process: it asks the API server again
    running.edit(state="Running")
    running.look()
    assert running.condition("Ready")[0] == "False" and running.condition("Reconciling")[0] == "True"


def test_a_suspension_that_was_taken_back_meanwhile_does_not_end_ready(running):
    running.edit(state="Suspended")
    running.look()
    running.edit(state="Running")
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://x")
    running.look()
    assert running.status["phase"] == "Suspended" and running.condition("Ready")[0] == "False"
    running.finish_start()
    assert running.condition("Ready") == ("True", "Running")


def test_a_second_change_is_not_ready_because_the_first_one_is(running):
    running.upgrade_to_its_start()
    running.edit(restartNonce=1)
    running.add_executors()
    running.say()
    running.look()
    first_generation = running.driver.generation
    assert running.step is None and running.condition("Ready") == ("False", "Upgrading")
    running.settle(2)
    running.end_driver(0, Phase.STOPPED)
    running.finish_start()
    assert running.driver.generation == first_generation + 1 and running.condition("Ready")[0] == "True"


def test_a_failed_job_whose_spec_was_changed_is_not_stalled_any_more(running):
    running.end_driver(66, error="state of another job")
    running.settle(2)
    assert running.condition("Stalled") == ("True", "ForeignState")
    running.edit(parallelism=4)
    running.look()
    assert running.condition("Stalled")[0] == "False" and running.condition("Reconciling")[0] == "True"


def test_regions_of_a_suspended_job_do_not_run(running):
    running.edit(state="Suspended")
    running.look()
    running.end_driver(0, Phase.STOPPED, savepoint_path="s3://x")
    running.settle(3)
    assert running.status["regionsReady"] == "0/3"
    assert {region["state"] for region in running.status["regions"]} == {"Waiting"}
    assert running.condition("CheckpointsHealthy")[0] == "Unknown"


def test_nothing_is_well_while_the_next_driver_cannot_start(running):
    del running.pods[running.driver.name]
    running.report = None
    running.settle(3)
    running.change_pod(running.driver.name, phase="Pending", ready=False, start_problem="Unschedulable: no room")
    running.settle(2)
    assert running.status["regionsReady"] == "0/3"
    assert running.condition("CheckpointsHealthy") == ("Unknown", "CheckpointPending")
    running.change_pod(running.driver.name, phase="Running", ready=True, start_problem=None)
    running.finish_start()
    assert running.status["regionsReady"] == "3/3" and running.condition("CheckpointsHealthy")[0] == "True"


def test_regions_of_a_failed_job_have_failed(running):
    running.end_driver(66, error="state of another job")
    running.settle(2)
    assert running.status["regionsReady"] == "0/3" and running.status["regions"][0]["state"] == "Failed"
    assert running.condition("CheckpointsHealthy")[0] == "Unknown"


def test_a_refusal_of_any_length_fits_into_the_status(running):
    running.dry_run_answer = "ä" * 100_000
    running.edit(parallelism=4)
    running.settle(3)
    assert running.condition("Ready") == ("False", "InvalidSpec")
    assert len(running.status["refusal"].encode()) <= 2000
