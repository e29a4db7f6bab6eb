"""A real cluster, the operator installed in it by helm, and jobs; a namespace and an operator for each test."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from localcluster.node import Node
from localcluster.testing.chosen_cluster import ChosenCluster
from localcluster.testing.fixtures import *  # noqa: F403  fixtures are found by their names here
from localcluster.testing.namespace import Namespace
from streaming_job import OWN_NODE, StreamingJob, moment

from streamingjob_operator.kube import PODS, Kube

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "streamingjob-operator"
SECONDS_TO_GO = 120
"""For a namespace that is being deleted with all that is in it."""
LONGEST_SECONDS = 1800
"""The first test of a machine builds Kubernetes and the image."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(LONGEST_SECONDS))


class Operator:
    """The operator's Deployment in a namespace, as helm installs it for that namespace alone."""

    def __init__(self, helm: str, cluster: ChosenCluster, namespace: Namespace, image: str) -> None:
        self._helm = helm
        self._cluster = cluster
        self.namespace = namespace
        self.image = image
        self.release = "streamingjob-operator"

    def helm(self, *arguments: str) -> str:
        command = [self._helm, "--kubeconfig", str(self._cluster.kubeconfig), "--namespace", self.namespace.name]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False, timeout=600)
        assert done.returncode == 0, f"helm {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def install_as_the_readme_says(self) -> str:
        """For the whole cluster, the CRD included."""
        return self.helm("install", self.release, str(CHART), *_options(self._image_values()), "--wait", "--timeout=4m")

    def upgrade_as_the_readme_says(self, *settings: str) -> str:
        options = _options([*self._image_values(), *settings])
        return self.helm("upgrade", self.release, str(CHART), *options, "--wait", "--timeout=4m")

    def install(self, *settings: str) -> str:
        values = [
            *self._image_values(),
            f"watchNamespaces={{{self.namespace.name}}}",
            "crd.install=false",  # there is one for the whole cluster, and other releases may be there
            "resources.requests.cpu=10m",
            *settings,
        ]
        options = _options(values)
        return self.helm("upgrade", "--install", self.release, str(CHART), *options, "--wait", "--timeout=4m")

    def _image_values(self) -> list[str]:
        repository, _, tag = self.image.rpartition(":")
        return [f"image.repository={repository}", f"image.tag={tag}"]

    def stay_on(self, node: str) -> None:
        """For tests that lose the other node; such an operator must see nodes."""
        self.install("watchNodes=true", f"nodeSelector.kubernetes\\.io/hostname={node}")

    def pods(self) -> list[str]:
        selector = "app.kubernetes.io/name=streamingjob-operator"
        return [pod["metadata"]["name"] for pod in self.namespace.items("pods", selector)]

    def lease(self) -> tuple[str, float]:
        """The pod that holds it, and when it was last renewed."""
        spec = (self.namespace.get("lease", self.release) or {}).get("spec", {})
        return str(spec.get("holderIdentity", "")).rpartition("-")[0], moment(spec["renewTime"])

    def kill_process(self, pod: str) -> float:
        """At once, so that it cannot even give back its lease; the moment after. Kubernetes starts another in that pod.

        In a cluster whose processes are not on this machine the pod is deleted.
        """
        if self._cluster.local is None:
            self.namespace.kubectl("delete", "pod", pod, "--force", "--grace-period=0")
        else:
            for pid in _processes_of(pod):
                with contextlib.suppress(ProcessLookupError):  # it may go with the one before
                    os.kill(pid, signal.SIGKILL)
        return time.time()

    def kill(self) -> None:
        """As a crash or a lost node would: it gets no time to finish anything."""
        self.namespace.kubectl("delete", "pod", *self.pods(), "--force", "--grace-period=0")

    def scale(self, replicas: int) -> None:
        self.namespace.kubectl("scale", f"deployment/{self.release}", f"--replicas={replicas}")

    def log(self) -> str:
        return self.namespace.kubectl("logs", f"deployment/{self.release}", "--tail=200")


def _processes_of(pod: str) -> list[int]:
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOSTNAME={pod}".encode() in environment.read_bytes().split(b"\0"):
                found.append(int(environment.parent.name))
    return found


def _options(values: list[str]) -> list[str]:
    return [word for value in values for word in ("--set", value)]


@pytest.fixture
def no_crd(cluster: ChosenCluster) -> Iterator[None]:
    """A cluster that has never heard of StreamingJobs, as long as nobody has one."""
    name = "streamingjobs.streamingjob.dev"
    if cluster.kubectl.get("crd", name) is not None:
        if jobs := _jobs_that_stay(cluster):
            pytest.skip(f"the CRD cannot be removed, because there are jobs: {jobs}")
        cluster.kubectl("delete", "crd", name)
    yield
    cluster.kubectl("delete", "crd", name, "--ignore-not-found")
    _install_crd(cluster)


def _jobs_that_stay(cluster: ChosenCluster) -> list[str]:
    """In namespaces that are not being deleted; the others, such as those of earlier tests, are waited for."""
    going = "{.items[?(@.status.phase=='Terminating')].metadata.name}"
    for _ in range(SECONDS_TO_GO):
        terminating = cluster.kubectl("get", "namespaces", "-o", f"jsonpath={going}").split()
        listed = "{range .items[*]}{.metadata.namespace}/{.metadata.name} {end}"
        jobs = cluster.kubectl("get", "sj", "--all-namespaces", "-o", f"jsonpath={listed}").split()
        if not any(job.partition("/")[0] in terminating for job in jobs):
            break
        time.sleep(1)
    return jobs


def _install_crd(cluster: ChosenCluster) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds" / "streamingjobs.yaml"))
    cluster.kubectl("wait", "--for=condition=Established", "crd/streamingjobs.streamingjob.dev", "--timeout=60s")


@pytest.fixture(scope="session")
def crd(cluster: ChosenCluster) -> None:
    _install_crd(cluster)


@pytest.fixture
def operator(
    crd: None, cluster: ChosenCluster, namespace: Namespace, project_image: str, tool: Callable[[str], str]
) -> Iterator[Operator]:
    installed = Operator(str(tool("helm")), cluster, namespace, project_image)
    installed.install()
    yield installed
    print(installed.log())


@pytest.fixture
def not_installed(
    no_crd: None, cluster: ChosenCluster, namespace: Namespace, project_image: str, tool: Callable[[str], str]
) -> Iterator[Operator]:
    """An operator that is yet to be installed; what was, is uninstalled."""
    operator = Operator(str(tool("helm")), cluster, namespace, project_image)
    yield operator
    operator.helm("uninstall", operator.release, "--ignore-not-found", "--wait")


@pytest.fixture
def own_node(second_node: Node, cluster: ChosenCluster) -> Node:
    """A second node for the pods of this test alone, which tolerate it: other tests lose nothing with it."""
    cluster.kubectl("taint", "node", second_node.name, f"{OWN_NODE}=true:NoSchedule")
    return second_node


@pytest.fixture
def make_job(namespace: Namespace, project_image: str) -> Callable[[str], StreamingJob]:
    claim = namespace.shared_volume("state")

    def make(name: str) -> StreamingJob:
        return StreamingJob(namespace, name, claim, project_image)

    return make


@pytest.fixture
def job(operator: Operator, make_job: Callable[[str], StreamingJob]) -> StreamingJob:
    return make_job("orders")


@pytest.fixture
def delete_now(cluster: ChosenCluster, namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], float]:
    """`kubectl delete pod --force --grace-period=0` without the time that kubectl takes to start.

    Returns the moment before the request.
    """

    def delete(pod: str) -> float:
        async def ask() -> float:
            kube = await Kube.connect()
            try:
                before = time.time()
                await kube.delete(PODS, namespace.name, pod, grace=0)
                return before
            finally:
                await kube.close()

        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        return asyncio.run(ask())

    return delete


def explain(job: StreamingJob) -> dict[str, Any]:
    return {"status": job.status, "pods": job.pod_names("executor")}
