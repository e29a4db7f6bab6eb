"""What a failed test leaves for the person who looks into it: one folder with the logs, pods and events."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.testing.namespace import Namespace


def keep_evidence(namespace: Namespace, folder: Path) -> str:
    """Says what was kept. Never raises: inside pytest's reporting an error would end the whole session."""
    lines = ["logs and events of the test's namespace:"]
    try:
        collect(namespace, folder)
    except (ClusterError, OSError) as error:
        lines = [f"not all evidence could be kept: {error}"]
    return "\n".join([*lines, *map(str, sorted(folder.glob("*")))])


def collect(namespace: Namespace, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    keep(folder / "pods.yaml", namespace, "get", "pods", "-o", "yaml")
    keep(folder / "events.txt", namespace, "get", "events", "--sort-by=.lastTimestamp")
    keep(folder / "objects.txt", namespace, "get", "all,configmaps,pvc", "-o", "wide")
    for pod in namespace.items("pods"):
        keep_logs(namespace, pod["metadata"]["name"], folder)


def keep_logs(namespace: Namespace, pod: str, folder: Path) -> None:
    keep(folder / f"{pod}.log", namespace, "logs", pod, "--all-containers", "--timestamps")
    restarted = folder / f"{pod}.previous.log"
    keep(restarted, namespace, "logs", pod, "--all-containers", "--timestamps", "--previous")
    if "previous terminated container" in restarted.read_text():
        restarted.unlink()


def keep(file: Path, namespace: Namespace, *arguments: str) -> None:
    """Evidence that cannot be had is itself evidence."""
    try:
        file.write_text(namespace.kubectl(*arguments, timeout=30))
    except ClusterError as error:
        file.write_text(f"{error}\n")


def folder_name(test: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", test).strip("_")[-120:]
