"""A namespace of a test's own: everything that the test makes is in it and goes with it."""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from localcluster.errors import ClusterError
from localcluster.testing.kubectl import Kubectl, Manifest
from localcluster.volumes import host_volume, make_empty
from localcluster.waiting import wait_for

Result = TypeVar("Result")
ENDED = ("Succeeded", "Failed")


class Namespace:
    def __init__(self, kubectl: Kubectl, name: str, shared_folders: Path | None = None) -> None:
        self.cluster_kubectl = kubectl
        self.name = name
        self.shared_folders = shared_folders
        """Where folders that all nodes see can be made; None in a cluster that is not ours."""
        self.leaving = ExitStack()

    def create(self) -> None:
        self.cluster_kubectl("create", "namespace", self.name)
        self.leaving.callback(self.delete)

    def delete(self) -> None:
        self.cluster_kubectl("delete", "namespace", self.name, "--wait=false", "--ignore-not-found")

    def kubectl(self, *arguments: str, stdin: str | None = None, timeout: float | None = 120) -> str:
        return self.cluster_kubectl("--namespace", self.name, *arguments, stdin=stdin, timeout=timeout)

    def apply(self, *manifests: Manifest) -> None:
        self.cluster_kubectl.apply(*manifests, namespace=self.name)

    def get(self, kind: str, name: str) -> Manifest | None:
        return self.cluster_kubectl.get(kind, name, self.name)

    def items(self, kind: str, selector: str = "") -> list[Manifest]:
        options = ["--selector", selector] if selector else []
        return self.cluster_kubectl.items(kind, "--namespace", self.name, *options)

    def logs(self, pod: str, *options: str) -> str:
        return self.kubectl("logs", pod, *options)

    def execute(self, pod: str, *command: str) -> str:
        return self.kubectl("exec", pod, "--", *command)

    def wait_for(
        self, what: str, condition: Callable[[], Result | None], *, seconds: float = 60, every: float = 0.3
    ) -> Result:
        """The first true value of `condition`; in vain, an error with what the pods and events said."""
        return wait_for(what, condition, seconds=seconds, every=every, explain=self.describe)

    def wait_for_phase(self, pod: str, phase: str, *, seconds: float = 60) -> Manifest:
        """The pod when it gets there; at once an error when it has ended otherwise."""
        return self.wait_for(f"pod {pod} to be {phase}", lambda: self.pod_in(pod, phase), seconds=seconds)

    def pod_in(self, pod: str, phase: str) -> Manifest | None:
        found = self.get("pod", pod)
        current = found["status"].get("phase") if found else None
        if current != phase and current in ENDED:
            raise ClusterError(f"pod {pod} was to be {phase} and has {current}:\n{self.tail(pod)}", self.describe())
        return found if current == phase else None

    def wait_until_ready(self, pod: str, *, seconds: float = 60) -> Manifest:
        return self.wait_for(f"pod {pod} to be ready", lambda: self.ready_pod(pod), seconds=seconds)

    def ready_pod(self, pod: str) -> Manifest | None:
        found = self.pod_in(pod, "Running")
        conditions = found["status"].get("conditions", []) if found else []
        return found if any(one["type"] == "Ready" and one["status"] == "True" for one in conditions) else None

    def tail(self, pod: str, lines: int = 30) -> str:
        try:
            return self.logs(pod, f"--tail={lines}", "--all-containers")
        except ClusterError as error:
            return f"(no log: {error})"

    def describe(self) -> str:
        pods = self.kubectl("get", "pods", "-o", "wide")
        events = self.kubectl("get", "events", "--sort-by=.lastTimestamp").splitlines()
        return "\n".join([f"In namespace {self.name}:", pods or "(no pods)", "Last events:", *events[-15:]])

    def shared_volume(self, claim: str) -> str:
        """A bound claim for pods of any node; gives its name. In somebody else's cluster its default class serves."""
        if self.shared_folders is None:
            self.apply(volume_claim(claim, access="ReadWriteOnce"))
            return claim
        folder = self.shared_folders / self.name / claim
        make_empty(folder)
        self.leaving.callback(shutil.rmtree, folder.parent, ignore_errors=True)
        volume = f"{self.name}-{claim}"
        self.cluster_kubectl.apply(host_volume(volume, folder, claim={"namespace": self.name, "name": claim}))
        self.leaving.callback(self.cluster_kubectl, "delete", "pv", volume, "--wait=false", "--ignore-not-found")
        self.apply(volume_claim(claim, access="ReadWriteMany", volume=volume))
        return claim

    def leave(self) -> None:
        self.leaving.close()


def volume_claim(name: str, access: str, volume: str | None = None) -> Manifest:
    bound = {"volumeName": volume, "storageClassName": ""} if volume else {}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [access], "resources": {"requests": {"storage": "1Gi"}}, **bound},
    }


def name_for(test: str) -> str:
    """A namespace's name that says which test it belongs to, and is new each time."""
    words = re.sub(r"[^a-z0-9]+", "-", test.lower().removeprefix("test_")).strip("-")
    return f"{words[:48].strip('-')}-{secrets.token_hex(3)}"
