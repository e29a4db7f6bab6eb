from benchmarks.peers.flink_log import job_has_failed, restart_times


def said(seconds, subtask, attempt, old, new, level="INFO "):
    return (
        f"2026-11-18 20:00:{seconds:06.3f}".replace(".", ",")
        + f" {level} org.apache.flink.runtime.taskmanager.Task                    [] - Source: numbers[1] -> Calc[2] "
        + f"({subtask}/2)#{attempt} (e3_cb_{subtask}_{attempt}) switched from {old} to {new}."
    )


def started(seconds, attempt, subtasks=(1, 2)):
    return [said(seconds + subtask / 10, subtask, attempt, "INITIALIZING", "RUNNING") for subtask in subtasks]


def test_a_restart_lasts_from_the_first_failure_until_the_last_task_runs():
    log = [
        *started(1, 0),
        said(4.0, 1, 0, "RUNNING", "FAILED with failure cause:", "WARN "),
        "java.lang.ArithmeticException: / by zero",
        said(4.05, 2, 0, "RUNNING", "CANCELING"),
        *started(4.1, 1),
    ]
    assert [round(seconds, 3) for seconds in restart_times(log)] == [0.3]


def test_an_attempt_that_fails_before_all_of_it_runs_tells_no_time():
    log = [
        *started(1, 0),
        said(4.0, 1, 0, "RUNNING", "FAILED", "WARN "),
        *started(4.1, 1, subtasks=(1,)),
        said(4.3, 1, 1, "RUNNING", "FAILED", "WARN "),
        *started(4.4, 2),
    ]
    assert [round(seconds, 3) for seconds in restart_times(log)] == [0.3]  # the second restart


def test_a_job_that_may_not_restart_any_more():
    assert not job_has_failed(started(1, 0))
    assert job_has_failed(["… Job insert-into (c0ffee) switched from state FAILING to FAILED."])


def test_nothing_said_is_no_restart():
    assert restart_times([]) == []
