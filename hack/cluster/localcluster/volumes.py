"""Volumes that are folders of this machine, which pods of every node see; some of them for whoever asks for any."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

STORAGE_CLASS = "shared"
NAMES = tuple(f"volume-{number}" for number in range(1, 9))
FREE_OR_IN_USE = ("Pending", "Available", "Bound")


def default_storage_class() -> dict[str, Any]:
    """Nobody makes volumes on demand: a claim that names no class gets one of those that are there."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "Immediate",
    }


def host_volume(
    name: str, folder: Path, storage_class: str = "", claim: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "hostPath": {"path": str(folder), "type": "Directory"},
            **({"claimRef": claim} if claim else {}),
        },
    }


def make_empty(folder: Path) -> None:
    """Writable for whichever user a pod runs as."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    folder.chmod(0o777)
