"""A look at everything that is there, in case a watch has missed something, while the watches go on."""

import pytest
from prometheus_client import CollectorRegistry

from streamingjob_operator import naming
from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.controller import Controller
from streamingjob_operator.kube import PODS, STREAMING_JOBS
from streamingjob_operator.metrics import OperatorMetrics


class Lists:
    """An API server that can only list, and does something of the test's while the answer is on its way."""

    def __init__(self):
        self.objects = {STREAMING_JOBS: [], PODS: []}
        self.meanwhile = {STREAMING_JOBS: lambda: None, PODS: lambda: None}

    async def list(self, kind, namespace, *, labels=None, fields=None):
        answer = list(self.objects[kind])
        self.meanwhile[kind]()
        return answer


def job(uid="u1", version=1):
    return {"metadata": {"uid": uid, "name": f"orders-{uid}", "namespace": "shop", "resourceVersion": str(version)}}


def pod(name="orders-driver-1"):
    labels = {naming.UID_LABEL: "u1", naming.COMPONENT_LABEL: naming.DRIVER}
    metadata = {"name": name, "uid": name, "namespace": "shop", "labels": labels}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}}


@pytest.fixture
def lists():
    return Lists()


@pytest.fixture
def controller(lists):
    config = OperatorConfig(image="engine:1", namespaces=(), identity="me")
    return Controller(lists, None, config, OperatorMetrics(CollectorRegistry()))


async def test_what_the_watches_missed_is_found(controller, lists):
    controller.store.put_job(job())
    controller.store.put_job(job("gone"))
    lists.objects = {STREAMING_JOBS: [job(version=2)], PODS: [pod()]}
    await controller.resync()
    assert list(controller.store.jobs) == ["u1"]
    assert [each.name for each in controller.store.pods_of("u1")] == ["orders-driver-1"]
    assert len(controller.queue) == 1


async def test_a_changed_job_is_looked_at_although_its_pods_are_the_same(controller, lists):
    controller.store.put_job(job())
    lists.objects[STREAMING_JOBS] = [job(version=2)]
    await controller.resync()
    assert len(controller.queue) == 1


async def test_nothing_new_is_nothing_to_do(controller, lists):
    controller.store.put_job(job())
    controller.store.put_pod(pod())
    lists.objects = {STREAMING_JOBS: [job()], PODS: [pod()]}
    await controller.resync()
    assert len(controller.queue) == 0


async def test_a_job_that_is_made_while_the_lists_are_on_their_way_is_not_forgotten(controller, lists):
    lists.meanwhile[STREAMING_JOBS] = lambda: controller.job_seen(job(), deleted=False)
    await controller.resync()
    assert "u1" in controller.store.jobs


async def test_a_pod_that_is_lost_while_the_lists_are_on_their_way_stays_lost(controller, lists):
    controller.store.put_job(job())
    controller.store.put_pod(pod())
    lists.objects = {STREAMING_JOBS: [job()], PODS: [pod()]}
    lists.meanwhile[PODS] = lambda: controller.pod_seen(pod(), deleted=True)
    await controller.resync()
    assert controller.store.pods_of("u1") == ()


async def test_pods_of_a_job_that_is_gone_are_not_remembered(controller, lists):
    controller.job_seen(job(), deleted=True)
    controller.pod_seen(pod(), deleted=False)
    controller.pod_seen(pod("orders-driver-2"), deleted=True)
    await controller.resync()
    assert controller.store.jobs_of_pods() == set()


async def test_pods_that_are_seen_just_before_their_job_are_remembered(controller, lists):
    lists.meanwhile[PODS] = lambda: controller.pod_seen(pod(), deleted=False)
    await controller.resync()
    controller.job_seen(job(), deleted=False)
    assert [each.name for each in controller.store.pods_of("u1")] == ["orders-driver-1"]


async def test_an_api_server_that_was_restored_from_a_backup_is_believed(controller, lists):
    controller.store.put_job(job(version=9))
    lists.objects[STREAMING_JOBS] = [job(version=2)]
    await controller.resync()
    assert controller.store.versions() == {"u1": "2"} and len(controller.queue) == 1
