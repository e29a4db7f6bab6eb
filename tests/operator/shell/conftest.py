"""An API server in memory, for the shell's tests: it keeps objects, and refuses or loses what a test tells it to."""

import contextlib
import copy
import functools
import itertools
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from snapshot_engine.wire.status import JobStatus, Phase, RegionState, RegionStatus
from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.controller import Controller
from streamingjob_operator.kube import PODS, STREAMING_JOBS, ApiError
from streamingjob_operator.metrics import OperatorMetrics
from streamingjob_operator.observation import Report


class MemoryApiServer:
    def __init__(self):
        self.objects = {}
        self.refusals = []
        """Functions of verb, kind and body that raise what the API server should answer instead."""
        self.calls = []
        self._numbers = itertools.count(1)

    def refuse(self, refusal):
        self.refusals.append(refusal)

    def _call(self, verb, kind, body):
        self.calls.append((verb, kind.plural, body["metadata"].get("name")))
        for refusal in self.refusals:
            refusal(verb, kind, body)

    def put(self, kind, body):
        """As if somebody else had made it."""
        number = next(self._numbers)
        given = {"uid": f"uid-{number}", "creationTimestamp": datetime.now(UTC).isoformat(), **body["metadata"]}
        stored = {**copy.deepcopy(body), "metadata": {**given, "resourceVersion": str(number)}}
        self.objects[kind, given["namespace"], given["name"]] = stored
        return copy.deepcopy(stored)

    def remove(self, kind, namespace, name):
        del self.objects[kind, namespace, name]

    def names(self, kind):
        return sorted(name for each, _, name in self.objects if each == kind)

    async def get(self, kind, namespace, name):
        self._call("get", kind, {"metadata": {"name": name, "namespace": namespace}})
        return copy.deepcopy(self.objects.get((kind, namespace, name)))

    async def list(self, kind, namespace, *, labels=None, fields=None):
        self._call("list", kind, {"metadata": {"namespace": namespace}})
        wanted = [part.partition("=") for part in (labels or "").split(",") if part]
        found = [body for (each, where, _), body in self.objects.items() if each == kind and where == namespace]
        asked = [part.partition("=") for part in (fields or "").split(",") if part]
        return [copy.deepcopy(body) for body in found if _has_labels(body, wanted) and _has_fields(body, asked)]

    async def create(self, kind, body, *, dry_run=False):
        metadata = body["metadata"]
        self._call("dry run" if dry_run else "create", kind, body)
        name = metadata.get("name") or f"{metadata['generateName']}{next(self._numbers)}"
        if (kind, metadata["namespace"], name) in self.objects:
            raise ApiError(409, "AlreadyExists", f"{kind.plural} {name} already exists")
        named = {**body, "metadata": {**metadata, "name": name}}
        return named if dry_run else self.put(kind, named)

    async def apply(self, kind, body):
        self._call("apply", kind, body)
        metadata = body["metadata"]
        present = self.objects[kind, metadata["namespace"], metadata["name"]]
        if metadata["uid"] != present["metadata"]["uid"]:
            raise ApiError(409, "Conflict", "the UID in the precondition is another one")
        return self.put(kind, {**present, **body})

    async def replace(self, kind, body, subresource=None):
        self._call("replace", kind, body)
        metadata = body["metadata"]
        present = self.objects[kind, metadata["namespace"], metadata["name"]]
        if metadata["resourceVersion"] != present["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.put(kind, {**present, "status": body["status"]})

    async def merge_patch(self, kind, namespace, name, body):
        self._call("patch", kind, {"metadata": {"name": name, "namespace": namespace}})
        present = self.objects[kind, namespace, name]
        if body["metadata"]["resourceVersion"] != present["metadata"]["resourceVersion"]:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.put(kind, {**present, "metadata": {**present["metadata"], **body["metadata"]}})

    async def delete(self, kind, namespace, name, *, uid=None, grace=None):
        self._call("delete", kind, {"metadata": {"name": name, "namespace": namespace}})
        present = self.objects.get((kind, namespace, name))
        if present is not None and uid in (None, present["metadata"]["uid"]):
            self.remove(kind, namespace, name)


def _has_labels(body, wanted):
    labels = body["metadata"].get("labels", {})
    return all(labels.get(key) == value if value else key in labels for key, _, value in wanted)


def _has_fields(body, asked):
    values = {
        path: functools.reduce(lambda part, key: part.get(key, {}), path.split("."), body) for path, _, _ in asked
    }
    return all(values[path] == value for path, _, value in asked)


class Shell:
    """The controller on that API server, and one job of a user's."""

    def __init__(self, api):
        self.api = api
        config = OperatorConfig(image="engine:1", identity="me")
        self.controller = Controller(api, None, config, OperatorMetrics(CollectorRegistry()))
        self.uid = None
        self.name = "orders"

    def apply(self, *, name="orders", **spec):
        """Makes the job, anew if there is one of that name."""
        base = {"pipeline": {"entrypoint": "a:b"}, "checkpoint": {"storage": {"uri": "s3://b/p"}}}
        self.name = name
        metadata = {"name": name, "namespace": "shop", "generation": 1}
        kind = {"apiVersion": "streamingjob.dev/v1alpha1", "kind": "StreamingJob"}
        body = self.api.put(STREAMING_JOBS, {**kind, "metadata": metadata, "spec": {**base, **spec}})
        self.uid = body["metadata"]["uid"]
        self.controller.store.put_job(body)

    def change(self, **spec):
        body = self.api.objects[STREAMING_JOBS, "shop", self.name]
        metadata = {**body["metadata"], "generation": body["metadata"]["generation"] + 1}
        changed = self.api.put(STREAMING_JOBS, {**body, "metadata": metadata, "spec": {**body["spec"], **spec}})
        self.controller.store.put_job(changed)

    async def look(self, times=4):
        """As the queue does: what fails is tried again."""
        for _ in range(times):
            with contextlib.suppress(ApiError):
                await self.controller.reconcile(self.uid)

    @property
    def status(self):
        return self.api.objects[STREAMING_JOBS, "shop", self.name]["status"]

    def condition(self, kind):
        return next(each for each in self.status["conditions"] if each["type"] == kind)

    def run_driver(self, *, ready=True):
        """As a kubelet would, with a driver that has said that all is well."""
        driver = self.status["driver"]
        pod = self.api.objects[PODS, "shop", driver["podName"]]
        states = [{"name": "driver", "state": {"running": {}}, "ready": ready}]
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"phase": "Running", "containerStatuses": states, "conditions": conditions}
        self.controller.pod_seen(self.api.put(PODS, {**pod, "status": status}), deleted=False)
        memory = self.controller._memories[self.uid]
        regions = [RegionStatus(id="r0", state=RegionState.RUNNING, attempt=1)]
        said = JobStatus(name=self.name, generation=driver["generation"], phase=Phase.RUNNING, regions=regions)
        memory.report = Report(said, datetime.now(UTC))


@pytest.fixture
def api():
    return MemoryApiServer()


@pytest.fixture
def shell(api):
    return Shell(api)
