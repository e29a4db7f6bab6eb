"""The controller against a real API server, with stand-ins for kubelet and JobMaster."""

import asyncio
import time

import pytest

from streamingjob_operator import naming
from streamingjob_operator.kube import (
    CONFIG_MAPS,
    EVENTS,
    PODS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    STREAMING_JOBS,
    Kind,
)

LIMIT_RANGES = Kind("/api/v1", "limitranges")
RESOURCE_QUOTAS = Kind("/api/v1", "resourcequotas")

pytestmark = pytest.mark.cluster


def is_ready(job):
    ready = next(c for c in job["status"]["conditions"] if c["type"] == "Ready")
    return ready["status"] == "True" and ready["observedGeneration"] == job["metadata"]["generation"]


def is_not_ready_because(text):
    def matches(job):
        ready = next(c for c in job["status"]["conditions"] if c["type"] == "Ready")
        return ready["status"] == "False" and text in ready["message"]

    return matches


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
    secret_name = naming.secret_name("orders", job["metadata"]["uid"])
    secret = await kube.get(SECRETS, namespace, secret_name)
    assert set(secret["data"]) == {"control-token", "spark-secret"}
    for kind, name in ((SERVICES, "orders-driver"), (SECRETS, secret_name), (PODS, "orders-driver-1")):
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


async def test_a_driver_that_ends_while_another_container_of_its_pod_runs_on_is_replaced(
    kube, namespace, cluster, operator, jobs
):
    proxy = {"name": "proxy", "image": "proxy:1"}
    await jobs.apply(driver={"podTemplate": {"spec": {"containers": [proxy]}}})
    await jobs.until(is_ready)
    await cluster.masters["orders-driver-1"].close()
    common = {"image": "i", "imageID": "", "restartCount": 0}
    ended = {"name": "driver", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}, "ready": False, **common}
    runs = {"name": "proxy", "state": {"running": {}}, "ready": True, **common}
    await cluster.set_status("orders-driver-1", {"phase": "Running", "containerStatuses": [runs, ended]})
    await jobs.until(generation_is(2))
    assert await drivers(kube, namespace) == ["orders-driver-2"]


async def test_a_job_that_is_made_again_waits_for_what_the_former_one_left(kube, namespace, cluster, operator, jobs):
    """No garbage collector runs here: the test is it."""
    await jobs.apply()
    former = (await jobs.until(is_ready))["metadata"]["uid"]
    await kube.delete(STREAMING_JOBS, namespace, "orders")
    await jobs.apply()
    await jobs.until(is_not_ready_because("belongs to a former StreamingJob of the same name"))
    left_by_former = f"{naming.UID_LABEL}={former}"
    for kind in (CONFIG_MAPS, SECRETS, SERVICES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, PODS):
        bodies = await kube.list(kind, namespace, labels=left_by_former)
        assert bodies, f"{kind.plural}: nothing of the former job's was touched"
        for body in bodies:
            await kube.delete(kind, namespace, body["metadata"]["name"], grace=0)
    del cluster.masters["orders-driver-1"]
    job = await jobs.until(is_ready)
    for kind in (CONFIG_MAPS, SECRETS, SERVICES, SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS, PODS):
        own = await kube.list(kind, namespace, labels=f"{naming.UID_LABEL}={job['metadata']['uid']}")
        assert own and not await kube.list(kind, namespace, labels=left_by_former), kind.plural


async def test_a_service_of_somebody_elses_is_left_alone(kube, namespace, cluster, operator, jobs):
    theirs = {"metadata": {"name": "orders-driver", "namespace": namespace}, "spec": {"ports": [{"port": 80}]}}
    before = await kube.create(SERVICES, theirs)
    await jobs.apply()
    await jobs.until(is_not_ready_because("does not belong to this StreamingJob; delete it, or give the job another"))
    assert await kube.get(SERVICES, namespace, "orders-driver") == before
    await kube.delete(SERVICES, namespace, "orders-driver")
    await jobs.until(is_ready)


async def test_what_the_namespace_forbids_is_said_and_the_job_starts_when_it_is_allowed(
    kube, namespace, cluster, operator, jobs
):
    limits = {"limits": [{"type": "Container", "max": {"memory": "1Mi"}}]}
    await kube.create(LIMIT_RANGES, {"metadata": {"name": "tiny", "namespace": namespace}, "spec": limits})
    await jobs.apply()
    job = await jobs.until(is_not_ready_because("maximum memory usage per Container is 1Mi"))
    assert not any(c["type"] == "Stalled" and c["status"] == "True" for c in job["status"]["conditions"])
    await kube.delete(LIMIT_RANGES, namespace, "tiny")
    job = await jobs.until(is_ready, seconds=90)
    assert job["status"]["restarts"] == 0 and job["status"]["driver"]["generation"] == 1


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
    job = await jobs.until(is_ready)
    await jobs.change(state="Suspended")
    master = cluster.masters["orders-driver-1"]
    while master.stopped_with is None:
        await asyncio.sleep(0.02)
    name = f"suspend-2-{job['metadata']['uid'][:8]}"
    assert master.stopped_with == {"mode": "savepoint", "name": name}
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
    assert job["status"]["savepoints"][0]["path"] == f"s3://b/savepoints/manual-1-{job['metadata']['uid'][:8]}"


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


@pytest.mark.parametrize("part", ["driver", "executor"])
async def test_a_misspelt_field_of_a_pod_template_is_refused_by_its_name(cluster, operator, jobs, part):
    container = {"name": part, "evn": [{"name": "REGION", "value": "eu"}]}
    template = {"spec": {"nodeSelectr": {"disk": "ssd"}, "containers": [container]}}
    await jobs.apply(**{part: {"podTemplate": template}})
    job = await jobs.until(
        lambda job: any(c["type"] == "Stalled" and c["status"] == "True" for c in job["status"]["conditions"])
    )
    stalled = next(c for c in job["status"]["conditions"] if c["type"] == "Stalled")
    assert stalled["reason"] == "InvalidSpec" and f"refuses the {part} pod" in stalled["message"]
    assert '"spec.nodeSelectr"' in stalled["message"] and '"spec.containers[0].evn"' in stalled["message"]


async def test_a_deleted_job_leaves_with_its_savepoint(kube, namespace, cluster, operator, jobs):
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


async def test_a_job_starts_where_a_quota_wants_every_pod_to_say_what_it_takes(
    kube, namespace, cluster, operator, jobs
):
    hard = {"requests.cpu": "10", "requests.memory": "20Gi", "limits.memory": "20Gi"}
    quota = await kube.create(
        RESOURCE_QUOTAS, {"metadata": {"name": "team", "namespace": namespace}, "spec": {"hard": hard}}
    )
    # Its controller, which says what is used, does not run here.
    await kube.replace(RESOURCE_QUOTAS, {**quota, "status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}, "status")
    await asyncio.sleep(1)  # the admission hears of it by a watch
    await jobs.apply()
    await jobs.until(is_ready, seconds=20)
