"""The driver is lost: its successor goes on from the latest completed checkpoint, and the output is exact."""

from __future__ import annotations

from pipelines import KEYED, check_windows

RATE = 2000
COUNT = RATE * 60


def test_a_killed_driver_pod_is_replaced_and_the_output_stays_exact(job, delete_now):
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2)
    job.until_ready()
    job.until_checkpoint(5)
    (first,) = job.running("driver")

    delete_now(first)

    status = job.until("the next driver", lambda s: s["driver"]["generation"] == 2 and s["phase"] == "Running")
    assert status["restarts"] >= 1
    job.until_finished()
    check_windows(job.output, COUNT)
    restored = [region["lastRestoredCheckpoint"] for region in job.regions().values()]
    assert all(number >= 5 for number in restored), restored


def test_a_driver_process_that_dies_is_replaced_and_the_output_stays_exact(job):
    job.apply(KEYED, count=COUNT, rate=RATE, parallelism=2)
    job.until_ready()
    job.until_checkpoint(3)
    (first,) = job.running("driver")
    job.namespace.execute(first, "python", "-c", "import os, signal; os.kill(1, signal.SIGTERM); os.kill(-1, 9)")
    job.until("the next driver", lambda s: s["driver"]["generation"] >= 2 and s["phase"] == "Running")
    job.until_finished()
    check_windows(job.output, COUNT)
