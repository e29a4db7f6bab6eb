"""What every pod of a job has, so that it meets the `restricted` Pod Security Standard."""

from typing import Any

# The image's user; it works with any other as well, where a cluster assigns its own.
JOB_USER = 1000
SCRATCH_DIRECTORY = "/tmp"
WORK_DIRECTORY = "/var/lib/streamingjob/work"
# Spark takes a volume of such a name in an executor as its own, instead of adding another one at the same path.
WORK_VOLUME = "spark-local-dir-1"


def pod_security_context() -> dict[str, Any]:
    return {
        "runAsNonRoot": True,
        "runAsUser": JOB_USER,
        "fsGroup": JOB_USER,
        # A large checkpoint volume is not walked file by file at every start.
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security_context() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def scratch_volumes() -> list[dict[str, Any]]:
    """The root file system is read-only: this is where Spark and Python write."""
    return [{"name": "tmp", "emptyDir": {}}, {"name": WORK_VOLUME, "emptyDir": {}}]


def scratch_mounts() -> list[dict[str, Any]]:
    return [
        {"name": "tmp", "mountPath": SCRATCH_DIRECTORY},
        {"name": WORK_VOLUME, "mountPath": WORK_DIRECTORY},
    ]


def scratch_environment() -> list[dict[str, Any]]:
    return [{"name": "HOME", "value": SCRATCH_DIRECTORY}]
