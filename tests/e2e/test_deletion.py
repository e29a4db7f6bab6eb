"""Deleted and applied again: what happens to the old state is what deletionPolicy and restoreFrom say."""

from __future__ import annotations

from pipelines import KEYED, check_windows

RATE = 2000
COUNT = RATE * 45


def storage(job):
    return job.output.parents[1] / job.namespace.name / job.name


def delete(job):
    job.namespace.kubectl("delete", "sj", job.name, "--timeout=120s", timeout=130)
    job.namespace.wait_for("all pods to be gone", lambda: not job.pods("driver") or None, seconds=90)


def test_state_that_is_retained_is_not_taken_by_a_new_job_unless_it_says_so(job):
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2, savepointOnDeletion=True)
    job.until_ready()
    job.until_checkpoint(3)
    delete(job)
    (savepoint,) = (storage(job) / "savepoints").iterdir()

    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2)
    status = job.until("its refusal", lambda s: s["phase"] == "Failed")
    assert job.condition("Stalled")["reason"] == "ForeignState"
    assert "restoreFrom" in status["error"]

    delete(job)
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2, restoreFrom=savepoint.name)
    job.until_finished()
    check_windows(job.output, COUNT)


def test_state_that_is_deleted_is_gone_but_for_savepoints(job):
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2, deletionPolicy="Delete")
    job.until_ready()
    job.until_checkpoint(2)
    job.patch(savepointNonce=7)
    status = job.until("the savepoint", lambda s: s["savepoints"][0]["state"] == "Completed")
    name = status["savepoints"][0]["name"]
    delete(job)
    assert sorted(entry.name for entry in storage(job).iterdir()) == ["savepoints"]
    assert (storage(job) / "savepoints" / name / "manifest.json").exists()


def test_a_job_that_is_applied_again_at_once_is_a_job_of_its_own(job):
    """Nodes remember what the former one's pods have mounted, for as long as one of them is there."""
    settings = {"count": RATE * 20, "rate": RATE, "parallelism": 1, "deletionPolicy": "Delete"}
    job.apply(KEYED, **settings)
    job.until_ready()
    job.until_checkpoint(2)
    job.namespace.kubectl("delete", "sj", job.name, "--timeout=120s", timeout=130)
    job.apply(KEYED, **settings)
    job.until_ready()
    status = job.until_finished()
    assert status["driver"]["generation"] == 1 and status["restarts"] == 0
    delete(job)  # while its operator is there: nobody else takes its finalizer away
