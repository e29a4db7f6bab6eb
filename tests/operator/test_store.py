"""What the watches show of a job's pods. Labels can be written by anybody who may make pods anywhere."""

import asyncio
from types import SimpleNamespace

import pytest

from streamingjob_operator import naming
from streamingjob_operator.fleet import Fleet
from streamingjob_operator.observe import Observer
from streamingjob_operator.store import Store

JOB = {"metadata": {"uid": "u1", "name": "orders", "namespace": "shop", "resourceVersion": "1"}}


def pod(namespace, phase="Running"):
    labels = {naming.UID_LABEL: "u1", naming.COMPONENT_LABEL: naming.DRIVER}
    metadata = {"name": "orders-driver-1", "uid": namespace, "namespace": namespace, "labels": labels}
    return {"metadata": {**metadata, "creationTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": phase}}


def seen_one_by_one(store, bodies):
    for body in bodies:
        store.put_pod(body)


def listed(store, bodies):
    store.replace_pods("u1", bodies, asked_after=0)


@pytest.mark.parametrize("show", [seen_one_by_one, listed])
def test_a_pod_of_another_namespace_that_bears_the_jobs_labels_is_not_the_jobs(show):
    store = Store()
    store.put_job(JOB)
    show(store, [pod("shop"), pod("elsewhere", phase="Failed")])
    assert [(view.uid, view.phase) for view in store.pods_of("u1")] == [("shop", "Running")]


def test_its_end_is_not_the_jobs_either():
    store = Store()
    store.put_job(JOB)
    store.put_pod(pod("shop"))
    store.drop_pod(pod("elsewhere"))
    assert [view.uid for view in store.pods_of("u1")] == ["shop"]


def test_a_pod_that_is_seen_before_its_job_is_known_then():
    store = Store()
    store.put_pod(pod("shop"))
    store.put_job(JOB)
    assert [view.uid for view in store.pods_of("u1")] == ["shop"]


def of_version(version):
    return {"metadata": {**JOB["metadata"], "resourceVersion": str(version)}}


def test_what_lags_behind_is_not_news():
    store = Store()
    store.put_job(of_version(5))
    assert not store.put_job(of_version(4)) and store.versions() == {"u1": "5"}


def test_an_api_server_that_has_gone_back_is_believed():
    store = Store()
    store.put_job(of_version(5))
    assert store.put_job(of_version(2), known_when_asked="5") and store.versions() == {"u1": "2"}


def test_an_answer_that_the_watch_has_overtaken_is_not():
    store = Store()
    store.put_job(of_version(5))
    assert not store.put_job(of_version(4), known_when_asked="3") and store.versions() == {"u1": "5"}


class BusyApiServer:
    """Of a job that is so large that one of its pods changes while they are listed, each time."""

    def __init__(self, store):
        self.store, self.lists = store, 0

    async def list(self, kind, namespace, *, labels=None, fields=None):
        self.lists += 1
        self.store.put_pod(executor(self.lists, phase="Pending"))
        self.store.put_pod(executor(0, phase="Failed"))
        await asyncio.sleep(0)
        return [executor(0), executor(99)]


def executor(number, phase="Running"):
    body = pod("shop", phase)
    return {**body, "metadata": {**body["metadata"], "name": f"orders-1-exec-{number}", "uid": f"e{number}"}}


async def test_a_job_whose_pods_never_rest_is_listed_once():
    """What the watch has shown meanwhile counts; of all other pods the list is to be believed."""
    store = Store()
    store.put_job(JOB)
    store.put_pod(executor(50))
    observer = Observer(BusyApiServer(store), store, Fleet())
    async with asyncio.timeout(1):
        assert await observer.list_pods(SimpleNamespace(uid="u1", namespace="shop"))
    phases = {view.name.removeprefix("orders-1-exec-"): view.phase for view in store.pods_of("u1")}
    assert phases == {"0": "Failed", "1": "Pending", "99": "Running"}


async def test_a_pod_that_goes_while_it_is_listed_is_gone():
    store = Store()
    store.put_job(JOB)
    store.put_pod(executor(1))
    asked = store.pod_events["u1"]
    store.drop_pod(executor(1))
    store.replace_pods("u1", [executor(1), executor(2)], asked_after=asked)
    assert [view.uid for view in store.pods_of("u1")] == ["e2"]
    store.replace_pods("u1", [executor(1), executor(2)], asked_after=store.pod_events["u1"])
    assert len(store.pods_of("u1")) == 2


async def test_of_two_lists_the_older_one_brings_nothing_back():
    store = Store()
    store.put_job(JOB)
    store.put_pod(executor(1))
    asked = store.pod_events["u1"]
    store.drop_pod(executor(1))
    store.replace_pods("u1", [], asked_after=store.pod_events["u1"])
    store.replace_pods("u1", [executor(1)], asked_after=asked)
    assert store.pods_of("u1") == ()
