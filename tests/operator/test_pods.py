"""What is read from pods as the API server gives them."""

import pytest

from streamingjob_operator import naming
from streamingjob_operator.pods import view_pod

RUNS = {"running": {"startedAt": "2026-01-01T12:00:01Z"}}


def ended(code=1, reason="Error", message=""):
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


def waits(reason):
    return {"waiting": {"reason": reason, "message": "no such image"}}


def pod(phase="Running", labels=None, conditions=None, **states):
    """Its containers by name, the first one listed first."""
    labels = {naming.COMPONENT_LABEL: naming.DRIVER} if labels is None else labels
    metadata = {"name": "orders", "uid": "u", "creationTimestamp": "2026-01-01T12:00:00Z", "labels": labels}
    statuses = [{"name": name, "state": state, "ready": "running" in state} for name, state in states.items()]
    listed = [{"type": kind, "status": value} for kind, value in (conditions or {}).items()]
    return {
        "metadata": metadata,
        "spec": {"containers": [{"name": name, "image": f"{name}:1"} for name in states]},
        "status": {"phase": phase, "containerStatuses": statuses, "conditions": listed},
    }


def executor(**values):
    return pod(labels={naming.EXECUTOR_ID_LABEL: "1", naming.GENERATION_LABEL: "1"}, **values)


def ended_pod(message):
    return pod("Failed", driver=ended(message=message))


def test_of_a_crash_the_last_line_is_shown_whole():
    """Kubernetes gives the end of the log, cut anywhere."""
    view = view_pod(ended_pod("nine 7, in f\n    g()\nZeroDivisionError: division by zero\n"))
    assert view.exit is not None and view.exit.message == "ZeroDivisionError: division by zero"


def test_a_crash_without_a_word_has_no_message():
    view = view_pod(ended_pod(""))
    assert view.exit is not None and view.exit.message == ""


@pytest.mark.parametrize("make", [pod, executor])
def test_another_container_that_ends_is_no_end_of_the_pod(make):
    main = "driver" if make is pod else "executor"
    view = view_pod(make(proxy=ended(137, "OOMKilled"), **{main: RUNS}))
    assert view.exit is None and view.living and view.phase == "Running"


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
@pytest.mark.parametrize("make", [pod, executor])
def test_a_main_container_that_ends_is_the_end_although_another_one_runs_on(make, code, phase):
    main = "driver" if make is pod else "executor"
    view = view_pod(make(proxy=RUNS, **{main: ended(code)}))
    assert view.ended and view.phase == phase
    assert view.exit is not None and view.exit.code == code


def test_how_another_container_ended_does_not_change_how_the_main_one_did():
    view = view_pod(pod("Failed", driver=ended(0, "Completed"), proxy=ended(1)))
    assert view.phase == "Succeeded" and view.exit is not None and view.exit.code == 0


def test_the_image_is_the_main_containers():
    assert view_pod(pod(proxy=RUNS, driver=RUNS)).image == "driver:1"


def test_another_container_that_cannot_start_does_not_make_a_driver_that_runs_a_pending_one():
    view = view_pod(pod("Pending", driver=RUNS, proxy=waits("ImagePullBackOff")))
    assert view.phase == "Running" and view.start_problem is None


def test_another_container_that_cannot_start_is_told_while_it_keeps_the_main_one_waiting():
    view = view_pod(pod("Pending", driver=waits("ContainerCreating"), proxy=waits("ImagePullBackOff")))
    assert view.phase == "Pending" and view.start_problem == "ImagePullBackOff: no such image"


@pytest.mark.parametrize(
    ("driver", "conditions", "ready"),
    [
        (RUNS, {"Ready": "True"}, True),
        (RUNS, {"Ready": "False", "ContainersReady": "False"}, True),
        (RUNS, {"Ready": "False", "ContainersReady": "True"}, False),
        (ended(), {"Ready": "False", "ContainersReady": "False"}, False),
    ],
    ids=["all are", "another container is not", "its node is not", "it has ended"],
)
def test_whether_it_is_ready_is_a_matter_of_the_main_container_and_the_node(driver, conditions, ready):
    assert view_pod(pod(driver=driver, proxy=RUNS, conditions=conditions)).ready is ready


def test_a_label_that_is_no_number_breaks_nothing():
    """Whoever may make pods in the namespace can write it."""
    labels = {naming.COMPONENT_LABEL: naming.DRIVER, naming.GENERATION_LABEL: "latest"}
    assert view_pod(pod(labels=labels)).generation is None


def test_of_a_pod_that_failed_before_its_main_container_ran_the_reason_is_told():
    initial = pod("Failed", driver=waits("PodInitializing"))
    initial["status"]["initContainerStatuses"] = [
        {"name": "first", "state": ended(0, "Completed")},
        {"name": "migrate", "state": ended(3, message="cannot reach the database\n")},
    ]
    assert view_pod(initial).never_ran == "its init container migrate exited with code 3: cannot reach the database"
    assert view_pod(initial).init_failed
    rejected = pod("Failed")
    rejected["status"] |= {"reason": "OutOfcpu", "message": "Pod was rejected: not enough cpu"}
    assert view_pod(rejected).never_ran == "Pod was rejected: not enough cpu"
    assert not view_pod(rejected).init_failed
    assert view_pod(pod("Failed", driver=ended(1))).never_ran is None
    assert view_pod(pod("Pending", driver=waits("PodInitializing"))).never_ran is None
