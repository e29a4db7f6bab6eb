"""kubectl bound to one cluster, and the few verbs that tests need."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localcluster.commands import run
from localcluster.errors import ClusterError
from localcluster.settings import Paths

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Kubectl:
    program: str
    kubeconfig: Path | None
    """None for what kubectl itself takes by default."""

    def __call__(self, *arguments: str, stdin: str | None = None, timeout: float | None = 120) -> str:
        options = [f"--kubeconfig={self.kubeconfig}"] if self.kubeconfig else []
        return run([self.program, *options, *arguments], stdin=stdin, timeout=timeout)

    def apply(self, *manifests: Manifest, namespace: str | None = None) -> None:
        options = ["--namespace", namespace] if namespace else []
        content = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(manifests)})
        self("apply", "--server-side", *options, "-f", "-", stdin=content)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Manifest | None:
        """None if there is no such object."""
        options = ["--namespace", namespace] if namespace else []
        text = self("get", kind, name, *options, "-o", "json", "--ignore-not-found")
        found: Manifest | None = json.loads(text) if text else None
        return found

    def items(self, kind: str, *options: str) -> list[Manifest]:
        found: list[Manifest] = json.loads(self("get", kind, *options, "-o", "json"))["items"]
        return found


def find_kubectl(paths: Paths) -> str:
    built = paths.programs / "kubectl"
    if built.exists():
        return str(built)
    if installed := shutil.which("kubectl"):
        return installed
    raise ClusterError("no kubectl found", "Install kubectl, or run `make cluster-tools`, which builds one.")
