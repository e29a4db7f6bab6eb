"""A real API server without nodes, a real operator process, and stand-ins for what is missing: kubelet and JobMaster.

The stand-in kubelet gives a pod an address and says that it runs; the stand-in JobMaster speaks the control API at
that address. Everything in between is real: CRD validation, watches, status writes, optimistic locking, events.
"""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from streamingjob_operator import naming
from streamingjob_operator.kube import PODS, SERVICE_ACCOUNTS, STREAMING_JOBS, ApiError, Kind, Kube

ROOT = Path(__file__).parents[3]
NAMESPACES = Kind("/api/v1", "namespaces")


@pytest.fixture(scope="session")
def api_server(tmp_path_factory):
    """The kubeconfig of an API server with the CRD installed; one that runs already may be given."""
    given = os.environ.get("STREAMINGJOB_TEST_API_SERVER")
    if given:
        _install_crd(given)
        yield given
        return
    log = tmp_path_factory.mktemp("api-server") / "log"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "hack" / "cluster")}
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "localcluster", "api-server"], env=environment, stdout=output, stderr=output
        )
    try:
        kubeconfig = _await_kubeconfig(process, log)
        _install_crd(kubeconfig)
        yield kubeconfig
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


def _install_crd(kubeconfig):
    environment = {**os.environ, "KUBECONFIG": kubeconfig}
    crd = str(ROOT / "crds" / "streamingjobs.yaml")
    subprocess.run(["kubectl", "apply", "-f", crd], env=environment, check=True, capture_output=True)
    established = ["kubectl", "wait", "--for=condition=Established", "--timeout=30s", "-f", crd]
    subprocess.run(established, env=environment, check=True, capture_output=True)


def _await_kubeconfig(process, log):
    deadline = time.monotonic() + 600  # the first time, the programs are built
    while time.monotonic() < deadline:
        text = log.read_text()
        if "KUBECONFIG=" in text:
            return text.split("KUBECONFIG=")[1].split()[0]
        if process.poll() is not None:
            break
        time.sleep(0.1)
    pytest.fail(f"the API server did not start:\n{log.read_text()}")


@pytest.fixture
async def kube(api_server, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", api_server)
    client = await Kube.connect()
    yield client
    await client.close()


@pytest.fixture
async def namespace(kube, request):
    name = f"t{time.time_ns():x}"
    await kube.create(NAMESPACES, {"metadata": {"name": name}})
    # Its controller does not run here.
    await kube.create(SERVICE_ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
    return name


class JobMaster:
    """One driver's control API, as the operator sees it."""

    def __init__(self, address, generation, regions=3):
        self.address = address
        self.generation = generation
        self.revision = 1
        self.changed = asyncio.Event()
        self.requests = []
        self.stopped_with = None
        self.holds_back_progress = False
        """As a driver does when it is asked to; without, every change is answered at once."""
        self.status = {
            "version": 1,
            "name": "orders",
            "generation": generation,
            "applicationId": f"app-{generation}",
            "phase": "Running",
            "regions": [{"id": f"r{n}", "vertices": ["map"], "state": "Running", "attempt": 1} for n in range(regions)],
            "executors": [],
            "checkpoint": {"lastCompletedId": 1, "completedAt": datetime.now(UTC).isoformat()},
            "savepoints": [],
        }

    def change(self, **changes):
        self.status |= changes
        self.revision += 1
        self.changed.set()

    async def start(self):
        application = web.Application()
        application.router.add_get("/status", self._status)
        application.router.add_post("/pods/lost", self._lost)
        application.router.add_post("/stop", self._stop)
        application.router.add_post("/savepoints", self._savepoint)
        self.runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, self.address, 8081).start()

    async def close(self):
        await self.runner.cleanup()

    def _require_token(self, request):
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            raise web.HTTPUnauthorized

    async def _status(self, request):
        self._require_token(request)
        if "since" in request.query and self.holds_back_progress:
            await asyncio.sleep(float(request.query["progress"]))
        if request.query.get("since") == str(self.revision):
            self.changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.changed.wait(), float(request.query["wait"]))
        return web.json_response({"revision": self.revision, "status": self.status})

    async def _lost(self, request):
        self._require_token(request)
        body = await request.json()
        self.requests.append(("lost", body))
        self.change(executors=[e for e in self.status["executors"] if e["executorId"] != body["executorId"]])
        return web.json_response({"outcome": "Accepted", "regions": ["r1"], "checkpointId": 1})

    async def _stop(self, request):
        body = await request.json()
        self.requests.append(("stop", body))
        self.stopped_with = body
        return web.json_response({"accepted": True})

    async def _savepoint(self, request):
        name = (await request.json())["name"]
        self.requests.append(("savepoint", name))
        done = {"name": name, "state": "Completed", "path": f"s3://b/savepoints/{name}"}
        self.change(savepoints=[done])
        return web.json_response(done)


class Cluster:
    """What a kubelet and the drivers would do, for one namespace."""

    def __init__(self, kube, namespace, first_address):
        self.kube = kube
        self.namespace = namespace
        self.masters = {}
        self._next = first_address
        self._plans = []

    async def run(self):
        while True:
            # A kubelet tries again, too, when somebody else has changed a pod or the API server is slow.
            with contextlib.suppress(ApiError, TimeoutError):
                for pod in await self.kube.list(PODS, self.namespace):
                    await self._attend(pod)
            await asyncio.sleep(0.05)

    async def _attend(self, pod):
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        if "deletionTimestamp" in pod["metadata"]:
            await self.kube.delete(PODS, self.namespace, name, grace=0)
        elif labels.get(naming.COMPONENT_LABEL) == naming.PLANNER:
            await self.set_status(name, {"phase": "Succeeded"})
        elif labels.get(naming.COMPONENT_LABEL) == naming.DRIVER and "podIP" not in pod.get("status", {}):
            await self._start_driver(name, int(labels[naming.GENERATION_LABEL]))

    async def _start_driver(self, name, generation):
        if name not in self.masters:
            self._next += 1
            address = f"127.{self._next // 65536 + 1}.{self._next // 256 % 256}.{self._next % 256}"
            self.masters[name] = JobMaster(address, generation)
            await self.masters[name].start()
        ready = {"type": "Ready", "status": "True"}
        address = self.masters[name].address
        await self.set_status(name, {"phase": "Running", "podIP": address, "conditions": [ready]})

    async def set_status(self, name, status):
        pod = await self.kube.get(PODS, self.namespace, name)
        if pod is not None:
            await self.kube.replace(PODS, {**pod, "status": {**pod.get("status", {}), **status}}, "status")

    async def end_driver(self, name, code, report=None, reason="Completed"):
        await self.masters[name].close()
        ended = {"exitCode": code, "reason": reason, "message": json.dumps(report) if report else ""}
        containers = [
            {
                "name": "driver",
                "state": {"terminated": ended},
                "image": "i",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
            }
        ]
        await self.set_status(name, {"phase": "Succeeded" if code == 0 else "Failed", "containerStatuses": containers})

    async def add_executor(self, job, generation, number):
        labels = naming.job_labels("orders", job["metadata"]["uid"], naming.EXECUTOR)
        labels |= {naming.GENERATION_LABEL: str(generation), naming.EXECUTOR_ID_LABEL: str(number)}
        container = {"name": "executor", "image": "i"}
        name = f"orders-{generation}-exec-{number}"
        body = {"metadata": {"name": name, "namespace": self.namespace, "labels": labels}}
        pod = await self.kube.create(
            PODS, {**body, "spec": {"containers": [container], "automountServiceAccountToken": False}}
        )
        await self.set_status(name, {"phase": "Running"})
        return {"executorId": str(number), "podName": name, "podUid": pod["metadata"]["uid"], "regions": []}

    async def close(self):
        for master in self.masters.values():
            await master.close()


@pytest.fixture
async def cluster(kube, namespace):
    cluster = Cluster(kube, namespace, first_address=int(namespace[-4:], 16) % 60000)
    task = asyncio.create_task(cluster.run())
    yield cluster
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    await cluster.close()


class Operator:
    """A real operator process, that can be killed."""

    def __init__(self, kubeconfig, namespace, log):
        self.kubeconfig, self.namespace, self.log = kubeconfig, namespace, log
        self.port = 20000 + int(namespace[-3:], 16)
        self.process = None

    def start(self, *options):
        command = [sys.executable, "-m", "streamingjob_operator.main", "--image", "engine:1"]
        command += ["--namespace", self.namespace, "--no-watch-nodes", "--port", str(self.port), *options]
        environment = {**os.environ, "KUBECONFIG": self.kubeconfig}
        self.process = subprocess.Popen(command, env=environment, stderr=self.log.open("a"))

    async def until_up(self):
        """Its imports alone take seconds on a busy machine."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(aiohttp.ClientError):
                await self.metrics()
                return
            await asyncio.sleep(0.05)
        pytest.fail(f"the operator did not start:\n{self.log.read_text()[-5000:]}")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.kill()

    async def metrics(self):
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self.port}/metrics") as answer:
            return await answer.text()


@pytest.fixture
def make_operator(api_server, namespace, tmp_path):
    made = []

    def make():
        operator = Operator(api_server, namespace, tmp_path / f"operator-{len(made)}.log")
        operator.port += len(made)
        made.append(operator)
        return operator

    yield make
    for operator in made:
        operator.stop()
        print(operator.log.read_text()[-20000:])


@pytest.fixture
async def operator(make_operator):
    operator = make_operator()
    operator.start("--no-lease")
    await operator.until_up()
    return operator


class Jobs:
    """What a user does with kubectl."""

    def __init__(self, kube, namespace):
        self.kube, self.namespace = kube, namespace

    async def apply(self, name="orders", **spec):
        base = {
            "pipeline": {"entrypoint": "jobs.orders:main"},
            "checkpoint": {"storage": {"uri": "s3://bucket/orders"}},
        }
        body = {
            "apiVersion": "streamingjob.dev/v1alpha1",
            "kind": "StreamingJob",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {**base, **spec},
        }
        return await self.kube.create(STREAMING_JOBS, body)

    async def change(self, name="orders", **spec):
        return await self.kube.merge_patch(STREAMING_JOBS, self.namespace, name, {"spec": spec})

    async def get(self, name="orders"):
        return await self.kube.get(STREAMING_JOBS, self.namespace, name)

    async def until(self, condition, name="orders", seconds=60.0):
        """Waits for the job's status; a timeout tells what it was instead."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            job = await self.get(name)
            with contextlib.suppress(KeyError, IndexError):
                if condition(job):
                    return job
            await asyncio.sleep(0.03)
        pytest.fail(f"not within {seconds} s; the job is:\n{yaml.safe_dump(job)}")


@pytest.fixture
def jobs(kube, namespace):
    return Jobs(kube, namespace)
