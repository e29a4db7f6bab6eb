"""Suspension, resumption, rescaling and upgrades, under load, with exact output."""

from __future__ import annotations

import pytest
from pipelines import KEYED, check_windows, check_windows_begun_twice

RATE = 2000


def start(job, seconds, **settings):
    count = RATE * seconds
    job.apply(KEYED, count=count, rate=RATE, **{"parallelism": 2, **settings})
    job.until_ready()
    job.until_checkpoint(2)
    return count


def until_upgraded(job, generation):
    return job.until(
        f"driver {generation} to run",
        lambda s: s["driver"]["generation"] == generation and s["phase"] == "Running" and "operation" not in s,
    )


def test_a_suspended_job_has_no_pods_and_goes_on_where_it_was(job):
    count = start(job, 40)
    job.patch(state="Suspended")
    job.until("the suspension", lambda s: s["phase"] == "Suspended")
    job.namespace.wait_for("all pods to be gone", lambda: not (job.pods("driver") or job.pods("executor")) or None)
    assert job.events("SavepointCompleted"), "it stopped with a savepoint"
    job.patch(state="Running")
    job.until_running()
    job.until_finished()
    check_windows(job.output, count)


def test_rescaling_from_two_to_four_and_back_keeps_the_output_exact(job):
    count = start(job, 90)
    job.namespace.kubectl("scale", f"sj/{job.name}", "--replicas=4")
    until_upgraded(job, 2)
    assert len(job.running("executor")) == 4
    job.patch(parallelism=2)
    until_upgraded(job, 3)
    job.until_finished()
    check_windows(job.output, count)


@pytest.mark.parametrize("mode", ["Savepoint", "LastState"])
def test_an_upgrade_with_state_keeps_the_output_exact(job, mode):
    count = start(job, 75, upgradeMode=mode)
    job.patch(checkpoint={"interval": "2s"})
    until_upgraded(job, 2)
    taken = job.events("SavepointCompleted")
    assert bool(taken) == (mode == "Savepoint"), taken
    job.until_finished()
    check_windows(job.output, count)


def test_a_stateless_upgrade_begins_anew(job):
    count = start(job, 30, upgradeMode="Stateless")
    job.until_rows(64)
    job.patch(checkpoint={"interval": "2s"})
    status = until_upgraded(job, 2)
    assert all("lastRestoredCheckpoint" not in region for region in status["regions"]), status["regions"]
    job.until_finished()
    check_windows_begun_twice(job.output, count)


def test_an_upgrade_that_cannot_be_planned_leaves_the_old_job_running(job):
    count = start(job, 45)
    job.patch(pipeline={"source": "def pipeline(env, **_):\n    env.no_such_step()\n"})
    status = job.until("the refusal", lambda s: job.condition("Stalled")["status"] == "True")
    assert "no_such_step" in job.condition("Stalled")["message"]
    assert status["driver"]["generation"] == 1
    assert job.condition("Ready")["status"] == "False"
    job.until_finished()
    check_windows(job.output, count)


def test_an_upgrade_that_does_not_fit_the_state_is_refused_and_goes_on_when_it_is_to_start_without(job):
    count = start(job, 60)
    renamed = job.manifest(KEYED.replace('uid("windows")', 'uid("counts")'), count=count, rate=RATE, parallelism=2)
    job.patch(pipeline=renamed["spec"]["pipeline"])
    status = job.until("the refusal", lambda s: job.condition("Stalled")["status"] == "True")
    assert "state of windows, which the pipeline does not have" in job.condition("Stalled")["message"]
    assert status["driver"]["generation"] == 1 and status["regionsReady"] == "1/1"

    job.until_rows(64)
    job.patch(upgradeMode="Stateless")
    until_upgraded(job, 2)
    job.until_finished()
    check_windows_begun_twice(job.output, count)


def test_an_upgrade_whose_image_is_not_there_leaves_the_old_job_running(job):
    count = start(job, 60, readyTimeout="20s")
    job.patch(image="nowhere.invalid/no-such-image:1")
    status = job.until("the refusal", lambda s: job.condition("Stalled")["status"] == "True")
    assert "no-such-image" in job.condition("Stalled")["message"]
    assert status["driver"]["generation"] == 1
    assert job.condition("Ready")["status"] == "False"
    job.until_finished()
    check_windows(job.output, count)


def test_an_upgrade_that_cannot_start_brings_the_old_job_back(job):
    count = start(job, 90, readyTimeout="30s")
    nowhere = {"spec": {"nodeSelector": {"no-such-label": "anywhere"}}}
    job.patch(executor={"podTemplate": nowhere})
    status = job.until("the rollback", lambda s: s["driver"]["generation"] == 3 and s["phase"] == "Running")
    ready = job.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "RolledBack"), ready
    assert "30 s" in ready["message"], ready
    assert job.events("RolledBack") and status["restarts"] == 0
    job.until_finished()
    check_windows(job.output, count)


def test_a_job_that_crashes_in_a_loop_can_be_upgraded(job):
    broken = KEYED.replace('"seq": lambda o:', '"seq": lambda o: 1 // 0 if len(o) else')
    job.apply(broken, count=RATE * 20, rate=RATE, parallelism=2, recovery={"maxRestarts": 2})
    status = job.until("its failure", lambda s: s["phase"] == "Failed")
    assert "ZeroDivisionError" in status["error"]
    good = job.manifest(KEYED, count=RATE * 20, rate=RATE, parallelism=2)["spec"]["pipeline"]
    job.patch(pipeline=good)
    job.until("the change to be taken up", lambda s: s["phase"] != "Failed")
    job.until_finished()
    check_windows(job.output, RATE * 20)
