"""From Spark's own words to what died, where, and what to look at."""

from __future__ import annotations

import pytest

from snapshot_engine.runtime.spark_failures import told_by_spark

STAGE = (
    "Job aborted due to stage failure: ResultStage 0 (collect at spark.py:13) has failed too often. "
    "Most recent failure reason: Stage failed because barrier task ResultTask(0, 1) finished unsuccessfully.\n"
)
DIED = (
    STAGE + "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider …\n\tat a.b(c:1)\n"
)
RAISED = (
    STAGE
    + "org.apache.spark.api.python.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
    "Traceback (most recent call last):\n"
    '  File "worker.py", line 1, in main\n'
    "    run()\n"
    "    ^^^^^\n"
    "ModuleNotFoundError: No module named 'orders'\n"
    " SQLSTATE: 38000\n"
    "\tat org.apache.spark.Runner.run(Runner.scala:1)\n"
)
LOST = (
    STAGE + "ExecutorLostFailure (executor 7 exited caused by one of the running tasks) Reason: "
    "The executor with id 7 exited with exit code 137(SIGKILL, possible container OOM).\n"
)
SLOTS, PLACED = [4, 5], {4: "2", 5: "7"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (DIED, "slot 5 failed on executor 7 while it started: its process was killed or crashed"),
        (RAISED, "slot 5 failed on executor 7 while it started: ModuleNotFoundError: No module named 'orders'"),
        (LOST, "executor 7 was lost with its slots: The executor with id 7 exited with exit code 137"),
        ("Job 12 cancelled part of cancelled job group region-0-1.1", "the start of its slots was given up"),
        ("something else\n\tat a.b(c:1)", "something else"),
        ("", "Spark does not say why"),
    ],
)
def test_it_is_told_what_died_where_and_how(said: str, told: str) -> None:
    text = told_by_spark(said, SLOTS, PLACED)
    assert text.startswith(told)
    assert "ResultTask" not in text and "\tat" not in text


def test_a_slot_that_had_come_up_did_not_fail_while_it_started() -> None:
    assert told_by_spark(DIED, SLOTS, PLACED, arrived={5}).startswith("slot 5 failed on executor 7: its process")


@pytest.mark.parametrize("said", [DIED, LOST])
def test_it_is_told_what_to_look_at(said: str) -> None:
    assert "Look at the executor's log" in told_by_spark(said, SLOTS, PLACED)


def test_a_task_that_is_no_slot_of_ours_is_not_named() -> None:
    assert told_by_spark(DIED, [4], PLACED).startswith("a slot failed: ")
