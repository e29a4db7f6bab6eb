"""The pod template that Spark's Kubernetes backend makes executor pods from."""

from typing import Any

from snapshot_engine.wire.control import EXECUTOR_CONTAINER_NAME, SECRETS_DIRECTORY, SPARK_SECRET_FILE
from snapshot_engine.wire.quantities import format_bytes
from snapshot_engine.wire.spec import StreamingJobSpec
from streamingjob_operator import naming
from streamingjob_operator.manifests.ownership import Owner
from streamingjob_operator.manifests.pod_security import (
    container_security_context,
    pod_security_context,
    scratch_environment,
    scratch_mounts,
    scratch_volumes,
)
from streamingjob_operator.manifests.pod_template import OWN_VOLUME_PREFIX, merge_pod_template
from streamingjob_operator.manifests.storage import storage_environment_sources, storage_mounts, storage_volumes

SECRETS_VOLUME = f"{OWN_VOLUME_PREFIX}secrets"


def build_executor_template(owner: Owner, spec: StreamingJobSpec) -> dict[str, Any]:
    """Without name, owner, generation, arguments and resources: Spark adds those, from the driver's settings."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": naming.job_labels(owner.name, owner.uid, naming.EXECUTOR)},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            # What is deleted is lost at once for its job, and has nothing to finish. On a node that does not answer any
            # other period would keep the pod, and Spark from asking for its successor, until the node is found lost.
            "terminationGracePeriodSeconds": 0,
            "securityContext": pod_security_context(),
            "containers": [_container(spec)],
            "volumes": [_secret_volume(owner), *scratch_volumes(), *storage_volumes(spec)],
        },
    }
    return merge_pod_template(pod, spec.executor.pod_template)


def build_executor_probe(owner: Owner, spec: StreamingJobSpec) -> dict[str, Any]:
    """An executor pod as Spark makes it of the template, as far as quotas and limits of the namespace look at it."""
    pod = build_executor_template(owner, spec)
    container = next(each for each in pod["spec"]["containers"] if each["name"] == EXECUTOR_CONTAINER_NAME)
    container["resources"] = _resources(container.get("resources") or {}, spec)
    pod["metadata"]["namespace"] = owner.namespace
    return pod


def _resources(given: Any, spec: StreamingJobSpec) -> Any:
    """What is no mapping stays as it is, for the API server to refuse."""
    if not isinstance(given, dict):
        return given
    requests, limits = given.get("requests") or {}, given.get("limits") or {}
    if not (isinstance(requests, dict) and isinstance(limits, dict)):
        return given
    memory = {"memory": format_bytes(spec.executor.memory)}
    requests = {"cpu": str(spec.executor.cores), **requests, **memory}
    return {**given, "requests": requests, "limits": {**limits, **memory}}


def _container(spec: StreamingJobSpec) -> dict[str, Any]:
    return {
        "name": EXECUTOR_CONTAINER_NAME,
        "image": spec.image,
        "imagePullPolicy": spec.image_pull_policy.value,
        "securityContext": container_security_context(),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "env": scratch_environment(),
        "envFrom": storage_environment_sources(spec),
        "volumeMounts": [
            {"name": SECRETS_VOLUME, "mountPath": SECRETS_DIRECTORY, "readOnly": True},
            *scratch_mounts(),
            *storage_mounts(spec),
        ],
    }


def _secret_volume(owner: Owner) -> dict[str, Any]:
    """The Spark secret only: an executor has no business with the control API."""
    secret = {
        "secretName": naming.secret_name(owner.name, owner.uid),
        "defaultMode": 0o440,
        "items": [{"key": SPARK_SECRET_FILE, "path": SPARK_SECRET_FILE}],
    }
    return {"name": SECRETS_VOLUME, "secret": secret}
