"""The controller against a real API server, with stand-ins for kubelet and JobMaster."""

import asyncio
import time

import pytest

from streamingjob_operator import naming
from streamingjob_operator.kube import CONFIG_MAPS, EVENTS, PODS, SECRETS, SERVICES

pytestmark = pytest.mark.cluster


def is_ready(job):
    ready = next(c for c in job["status"]["conditions"] if c["type"] == "Ready")
    return ready["status"] == "True" and ready["observedGeneration"] == job["metadata"]["generation"]


def generation_is(number):
    return lambda job: is_ready(job) and job["status"]["driver"]["generation"] == number


async def drivers(kube, namespace):
    pods = await kube.list(PODS, namespace, labels=f"{naming.COMPONENT_LABEL}={naming.DRIVER}")
    return [pod["metadata"]["name"] for pod in pods]


async def reasons(kube, namespace):
    return [event["reason"] for event in await kube.list(EVENTS, namespace)]


async def test_a_job_comes_up_with_all_that_belongs_to_it(kube, namespace, cluster, operator, jobs):
    await jobs.apply()
    job = await jobs.until(is_ready)
    assert job["status"]["phase"] == "Running" and job["status"]["regionsReady"] == "3/3"
    assert job["status"]["driver"]["image"] == "engine:1"
    assert await kube.get(SERVICES, namespace, "orders-driver") is not None
    secret = await kube.get(SECRETS, namespace, "orders-secrets")
    assert set(secret["data"]) == {"control-token", "spark-secret"}
    for kind, name in ((SERVICES, "orders-driver"), (SECRETS, "orders-secrets"), (PODS, "orders-driver-1")):
        body = await kube.get(kind, namespace, name)
        assert body["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    assert "finalizers" not in job["metadata"] and not any("kopf" in a for a in job["metadata"].get("annotations", {}))
    assert "Running" in await reasons(kube, namespace)


async def test_a_deleted_executor_is_told_within_a_moment(kube, namespace, cluster, operator, jobs):
    job = await jobs.apply()
    await jobs.until(is_ready)
    master = cluster.masters["orders-driver-1"]
    master.change(executors=[await cluster.add_executor(job, 1, number) for number in range(3)])
    await jobs.until(lambda job: job["status"]["executors"]["ready"] == 3)
    began = time.monotonic()
    await kube.delete(PODS, namespace, "orders-1-exec-1", grace=0)
    while not master.requests:
        await asyncio.sleep(0.005)
        assert time.monotonic() - began < 5, "nobody told the JobMaster"
    took = time.monotonic() - began
    assert took < 0.5, f"told after {took:.2f} s"
    await asyncio.sleep(1)
    assert [(kind, body["executorId"]) for kind, body in master.requests] == [("lost", "1")], "told once"
    assert "ExecutorLost" in await reasons(kube, namespace)
    assert await drivers(kube, namespace) == ["orders-driver-1"]


async def test_an_executor_lost_while_no_operator_ran_is_found(kube, namespace, cluster, operator, jobs):
    job = await jobs.apply()
    await jobs.until(is_ready)
    master = cluster.masters["orders-driver-1"]
    master.change(executors=[await cluster.add_executor(job, 1, number) for number in range(3)])
    await jobs.until(lambda job: job["status"]["executors"]["ready"] == 3)
    operator.kill()
    await kube.delete(PODS, namespace, "orders-1-exec-2", grace=0)
    operator.start("--no-lease")
    deadline = time.monotonic() + 60
    while not master.requests and time.monotonic() < deadline:
        await asyncio.sleep(0.05)
    assert [(kind, body["executorId"]) for kind, body in master.requests] == [("lost", "2")]


async def test_a_driver_that_dies_is_replaced_by_the_next_generation(kube, namespace, cluster, operator, jobs):
    await jobs.apply()
    await jobs.until(is_ready)
    await cluster.end_driver("orders-driver-1", 1, reason="Error")
    await jobs.until(generation_is(2))
    assert await drivers(kube, namespace) == ["orders-driver-2"]
    await kube.delete(PODS, namespace, "orders-driver-2", grace=0)
    await jobs.until(generation_is(3))


async def test_an_upgrade_with_a_savepoint_while_the_operator_dies_in_the_middle(
    kube, namespace, cluster, operator, jobs
):
    await jobs.apply()
    await jobs.until(is_ready)
    await jobs.change(parallelism=4)
    await jobs.until(lambda job: job["status"]["operation"]["step"] == "Stop")
    operator.kill()
    stopped = {"phase": "Stopped", "savepointPath": "s3://bucket/orders/savepoints/upgrade-2"}
    await cluster.end_driver("orders-driver-1", 0, stopped)
    operator.start("--no-lease")
    job = await jobs.until(generation_is(2))
    assert job["status"]["driver"]["restore"]["path"] == stopped["savepointPath"]
    assert await drivers(kube, namespace) == ["orders-driver-2"]
    assert job["status"]["replicas"] == 4
    async with asyncio.timeout(10):  # old specs are dropped once the new one runs, after that was recorded
        while len(await kube.list(CONFIG_MAPS, namespace, labels=naming.SPEC_HASH_LABEL)) > 1:
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("delay", [0.05, 0.15, 0.3, 0.6])
async def test_an_operator_killed_at_any_moment_of_a_start_makes_no_second_driver(
    kube, namespace, cluster, operator, jobs, delay
):
    await jobs.apply()
    for _ in range(3):
        await asyncio.sleep(delay)
        operator.kill()
        operator.start("--no-lease")
        await operator.until_up()
    await jobs.until(is_ready)
    assert len(await drivers(kube, namespace)) == 1


async def test_suspend_and_resume(kube, namespace, cluster, operator, jobs):
    await jobs.apply()
    await jobs.until(is_ready)
    await jobs.change(state="Suspended")
    master = cluster.masters["orders-driver-1"]
    while master.stopped_with is None:
        await asyncio.sleep(0.02)
    assert master.stopped_with == {"mode": "savepoint", "name": "suspend-2"}
    await cluster.end_driver("orders-driver-1", 0, {"phase": "Stopped", "savepointPath": "s3://p/suspend-2"})
    await jobs.until(lambda job: job["status"]["phase"] == "Suspended")
    await asyncio.sleep(0.3)
    assert await drivers(kube, namespace) == []
    await jobs.change(state="Running")
    job = await jobs.until(generation_is(2))
    assert job["status"]["driver"]["restore"]["path"] == "s3://p/suspend-2"


async def test_a_savepoint_on_demand(kube, namespace, cluster, operator, jobs):
    await jobs.apply()
    await jobs.until(is_ready)
    await jobs.change(savepointNonce=1)
    job = await jobs.until(lambda job: job["status"]["savepoints"][0]["state"] == "Completed")
    assert job["status"]["savepoints"][0]["path"] == "s3://b/savepoints/manual-1"


async def test_a_pod_template_that_the_api_server_refuses_leaves_the_job_running(
    kube, namespace, cluster, operator, jobs
):
    await jobs.apply()
    await jobs.until(is_ready)
    more_than_its_limit = {"name": "driver", "resources": {"requests": {"memory": "8Gi"}}}
    await jobs.change(driver={"podTemplate": {"spec": {"containers": [more_than_its_limit]}}})
    job = await jobs.until(
        lambda job: any(c["type"] == "Stalled" and c["status"] == "True" for c in job["status"]["conditions"])
    )
    stalled = next(c for c in job["status"]["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "InvalidSpec" and "resources.requests" in stalled["message"]
    assert job["status"]["phase"] == "Running" and await drivers(kube, namespace) == ["orders-driver-1"]


async def test_a_deleted_job_leaves_with_its_savepoint(kube, namespace, cluster, operator, jobs):
    from streamingjob_operator.kube import STREAMING_JOBS

    await jobs.apply(savepointOnDeletion=True)
    await jobs.until(lambda job: is_ready(job) and job["metadata"].get("finalizers") == [naming.FINALIZER])
    await kube.delete(STREAMING_JOBS, namespace, "orders")
    master = cluster.masters["orders-driver-1"]
    while master.stopped_with is None:
        await asyncio.sleep(0.02)
    assert (await jobs.get()) is not None
    await cluster.end_driver("orders-driver-1", 0, {"phase": "Stopped", "savepointPath": "s3://p"})
    for _ in range(200):
        if await jobs.get() is None:
            return
        await asyncio.sleep(0.05)
    pytest.fail("the job is still there")


async def test_of_two_operators_only_the_holder_of_the_lease_acts(kube, namespace, cluster, jobs, make_operator):
    first, second = make_operator(), make_operator()
    options = ("--lease-namespace", namespace)
    first.start(*options)
    await first.until_up()
    await jobs.apply()
    await jobs.until(is_ready)
    second.start(*options)
    await second.until_up()
    try:
        assert "leader 0.0" in await second.metrics()
        first.kill()
        killed = time.monotonic()
        await cluster.end_driver("orders-driver-1", 1, reason="Error")
        await jobs.until(generation_is(2))
        assert time.monotonic() - killed < 18, "takeover within 15 s, and then the driver"
    finally:
        first.stop()
        second.stop()
