"""What a user does with a StreamingJob, and what they see of it."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pipelines
from localcluster.testing.claim_contents import ClaimContents
from localcluster.testing.namespace import Namespace

MOUNT = "/var/lib/streamingjob/checkpoints"
SMALL = {"resources": {"requests": {"cpu": "20m"}}}
"""Test machines are small: pods ask for next to nothing and take what there is."""

OWN_NODE = "streamingjob.dev/one-test-only"
TOLERATED = [{"key": OWN_NODE, "operator": "Exists"}]


class StreamingJob:
    def __init__(self, namespace: Namespace, name: str, claim: str, image: str) -> None:
        self.namespace = namespace
        self.name = name
        self.claim = claim
        self.image = image
        self.contents = ClaimContents(namespace, claim, image)

    def manifest(
        self, source: str = pipelines.REGIONS, *, count: int, rate: float, parallelism: int, **spec: Any
    ) -> dict[str, Any]:
        executor = {"cores": 1, "memory": "1Gi", "podTemplate": _container("executor"), **spec.pop("executor", {})}
        args = {"out": f"{MOUNT}/out/{self.name}", "count": count, "rate": rate}
        base: dict[str, Any] = {
            "image": self.image,
            "pipeline": {"source": source, "args": args},
            "parallelism": parallelism,
            "checkpoint": {"interval": "1s", "storage": {"pvc": {"claimName": self.claim}}},
            "driver": {"memory": "1Gi", "podTemplate": _container("driver")},
            "executor": executor,
        }
        return {
            "apiVersion": "streamingjob.dev/v1alpha1",
            "kind": "StreamingJob",
            "metadata": {"name": self.name},
            "spec": {**base, **spec},
        }

    def apply(self, source: str = pipelines.REGIONS, **settings: Any) -> None:
        self.namespace.apply(self.manifest(source, **settings))

    def patch(self, **spec: Any) -> None:
        self.namespace.kubectl("patch", "sj", self.name, "--type=merge", "-p", json.dumps({"spec": spec}))

    @property
    def output(self) -> Path:
        """The committed output, for reading: as it is, or in a cluster that is not ours as it was a moment ago."""
        return self.contents.folder() / "out" / self.name

    # What is seen of it.

    def get(self) -> dict[str, Any]:
        return self.namespace.get("sj", self.name) or {}

    @property
    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self.get().get("status", {})
        return status

    def condition(self, kind: str) -> dict[str, Any]:
        return next((each for each in self.status.get("conditions", []) if each["type"] == kind), {})

    def pods(self, component: str) -> list[dict[str, Any]]:
        selector = f"streamingjob.dev/name={self.name},streamingjob.dev/component={component}"
        return [pod for pod in self.namespace.items("pods", selector) if "deletionTimestamp" not in pod["metadata"]]

    def pod_names(self, component: str) -> list[str]:
        return sorted(pod["metadata"]["name"] for pod in self.pods(component))

    def running(self, component: str) -> list[str]:
        pods = self.pods(component)
        return sorted(pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running")

    def phase_of(self, component: str, generation: int) -> str | None:
        label = "streamingjob.dev/generation"
        pods = [pod for pod in self.pods(component) if pod["metadata"]["labels"].get(label) == str(generation)]
        return pods[0]["status"].get("phase") if pods else None

    def regions(self) -> dict[str, dict[str, Any]]:
        return {region["id"]: region for region in self.status.get("regions", [])}

    def attempts(self) -> dict[str, int]:
        return {name: region["attempt"] for name, region in self.regions().items()}

    def events(self, reason: str) -> list[str]:
        events = self.namespace.items("events")
        mine = [e for e in events if e["involvedObject"].get("name") == self.name and e["reason"] == reason]
        return [event["message"] for event in sorted(mine, key=lambda event: event["metadata"]["creationTimestamp"])]

    # Waiting.

    def until(self, what: str, condition: Callable[[dict[str, Any]], Any], *, seconds: float = 300) -> dict[str, Any]:
        def look() -> dict[str, Any] | None:
            status = self.status
            with contextlib.suppress(KeyError, IndexError, TypeError):
                return status if condition(status) else None
            return None

        return self.namespace.wait_for(f"{self.name}: {what}", look, seconds=seconds)

    @contextlib.contextmanager
    def watching(self, expression: str, *, seconds: float = 60) -> Iterator[None]:
        """Leaves when the job is such as a jsonpath says, and was so after entering.

        Asking again and again would take the processor from what is measured meanwhile; this only waits to be told.
        """
        kubectl = self.namespace.cluster_kubectl
        words = [kubectl.program, f"--kubeconfig={kubectl.kubeconfig}", "--namespace", self.namespace.name, "wait"]
        words += [f"sj/{self.name}", f"--for=jsonpath={expression}", f"--timeout={seconds:.0f}s"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as waiting:
            try:
                yield
            finally:
                said, _ = waiting.communicate(timeout=seconds + 10)
        assert waiting.returncode == 0, f"{self.name}: {expression}: {said}"

    def until_ready(self, *, seconds: float = 480) -> None:
        timeout = f"--timeout={seconds:.0f}s"
        self.namespace.kubectl("wait", "--for=condition=Ready", f"sj/{self.name}", timeout, timeout=seconds + 10)

    def until_running(self, *, seconds: float = 300) -> dict[str, Any]:
        return self.until("all regions run", lambda s: s["phase"] == "Running", seconds=seconds)

    def until_checkpoint(self, number: int, *, seconds: float = 120) -> None:
        self.until(f"checkpoint {number}", lambda s: s["checkpoint"]["lastCompletedId"] >= number, seconds=seconds)

    def until_rows(self, count: int, *, seconds: float = 120) -> None:
        """So much is committed: the job works, seen from outside."""

        def enough() -> bool:
            return sum(_rows(file) for file in self.output.glob("*.parquet")) >= count

        self.namespace.wait_for(f"{count} rows of output", lambda: enough() or None, seconds=seconds)

    def until_finished(self, *, seconds: float = 300) -> dict[str, Any]:
        status = self.until("its end", lambda s: s["phase"] in ("Finished", "Failed"), seconds=seconds)
        assert status["phase"] == "Finished", f"{status.get('error')}\n{status['conditions']}"
        return status


def _rows(file: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(file).num_rows)


def _container(name: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": name, **SMALL}]}}


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def now() -> float:
    return time.time()
