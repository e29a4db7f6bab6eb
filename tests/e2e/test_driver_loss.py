"""The driver is lost: its successor goes on from the latest completed checkpoint, and the output is exact."""

from __future__ import annotations

import contextlib

from localcluster.errors import ClusterError
from pipelines import KEYED, check_windows
from streaming_job import TOLERATED

RATE = 2000
COUNT = RATE * 60
LONG_COUNT = RATE * 180


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
    with contextlib.suppress(ClusterError):  # the container may go before the command's answer has come
        job.namespace.execute(first, "python", "-c", "import os; os.kill(-1, 9)")
    job.until("the next driver", lambda s: s["driver"]["generation"] >= 2 and s["phase"] == "Running")
    job.until_finished()
    check_windows(job.output, COUNT)


def test_a_driver_whose_node_is_cut_off_has_a_successor_and_does_no_harm_when_it_is_back(own_node, operator, make_job):
    """All of the job is on that node, reaches its storage, and goes on until its successor has fenced it."""
    operator.stay_on("node-1")
    job = make_job("orders")
    executor = {"instances": 2, "podTemplate": preferring(own_node.name, "executor")}
    driver = {"memory": "1Gi", "podTemplate": preferring(own_node.name, "driver")}
    job.apply(KEYED, count=LONG_COUNT, rate=RATE, parallelism=2, executor=executor, driver=driver)
    job.until_ready()
    there = {pod["spec"]["nodeName"] for component in ("driver", "executor") for pod in job.pods(component)}
    assert there == {own_node.name}
    job.until_checkpoint(3)

    own_node.cut_link()

    status = job.until("the next driver", lambda s: s["driver"]["generation"] == 2 and s["phase"] == "Running")
    job.until_checkpoint(status["checkpoint"]["lastCompletedId"] + 3)
    own_node.mend_link()
    job.until_finished()
    check_windows(job.output, LONG_COUNT)
    assert job.status["driver"]["generation"] == 2, "the old driver's return replaced nobody"
    said = job.events("DriverLost")
    assert any(own_node.name in message and "unreachable" in message for message in said), said


def preferring(node, container):
    """There if it can be; elsewhere when that node is lost."""
    here = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    affinity = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "preference": here}]}
    small = {"name": container, "resources": {"requests": {"cpu": "20m"}}}
    return {"spec": {"affinity": {"nodeAffinity": affinity}, "tolerations": TOLERATED, "containers": [small]}}
