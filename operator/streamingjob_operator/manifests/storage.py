"""How a pod reaches the checkpoint storage: a volume, or credentials for a uri."""

from typing import Any

from snapshot_engine.wire.spec import CHECKPOINT_MOUNT, StreamingJobSpec
from streamingjob_operator.manifests.pod_template import OWN_VOLUME_PREFIX

VOLUME_NAME = f"{OWN_VOLUME_PREFIX}checkpoints"


def storage_volumes(spec: StreamingJobSpec) -> list[dict[str, Any]]:
    storage = spec.checkpoint.storage
    if storage is None or storage.pvc is None:
        return []
    return [{"name": VOLUME_NAME, "persistentVolumeClaim": {"claimName": storage.pvc.claim_name}}]


def storage_mounts(spec: StreamingJobSpec) -> list[dict[str, Any]]:
    storage = spec.checkpoint.storage
    if storage is None or storage.pvc is None:
        return []
    mount = {"name": VOLUME_NAME, "mountPath": CHECKPOINT_MOUNT}
    return [mount | {"subPath": storage.pvc.sub_path}] if storage.pvc.sub_path else [mount]


def storage_environment_sources(spec: StreamingJobSpec) -> list[dict[str, Any]]:
    storage = spec.checkpoint.storage
    if storage is None or storage.secret_ref is None:
        return []
    return [{"secretRef": {"name": storage.secret_ref.name}}]
