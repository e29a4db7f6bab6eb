"""Merges a user's pod template into a pod that the operator needs to be as it is.

The user's word counts wherever the operator has no need of its own (resources, tolerations, security context, further
containers and volumes). Lists of named things are merged by name; nothing is replaced as a whole.
"""

import copy
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any

from streamingjob_operator.manifests.pod_security import scratch_mounts

OWN_VOLUME_PREFIX = "streamingjob-"
"""Of volumes that no template can replace, such as the one with the job's state: a template may have a `config` of its
own."""
_NAMED_BY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
}


def merge_pod_template(pod: dict[str, Any], template: dict[str, Any] | None) -> dict[str, Any]:
    """The pod with the template merged in; what identifies the pod and starts its program stays the operator's."""
    if not template:
        return pod
    merged: dict[str, Any] = _merge(pod, {key: template[key] for key in ("metadata", "spec") if key in template})
    _restore_identity(merged["metadata"], pod["metadata"])
    merged["spec"]["restartPolicy"] = pod["spec"]["restartPolicy"]
    _restore_volumes(merged["spec"], pod["spec"])
    _restore_program(merged["spec"]["containers"], pod["spec"]["containers"][0])
    return merged


def _restore_identity(merged: dict[str, Any], own: dict[str, Any]) -> None:
    for field in ("name", "namespace", "ownerReferences"):
        if field in own:
            merged[field] = own[field]
        else:
            merged.pop(field, None)
    merged["labels"] = merged.get("labels", {}) | own.get("labels", {})


def _restore_volumes(merged: dict[str, Any], own: dict[str, Any]) -> None:
    kept = [volume for volume in own["volumes"] if volume["name"].startswith(OWN_VOLUME_PREFIX)]
    merged["volumes"] = _with_own(merged["volumes"], kept, lambda each: each.get("name"))


def _restore_program(containers: list[dict[str, Any]], own: dict[str, Any]) -> None:
    """What the engine needs to run at all: its program, its surroundings, its ports, and the files it reads."""
    container = next(each for each in containers if each["name"] == own["name"])
    for field in ("args", "command", "image", "terminationMessagePath"):
        if field in own:
            container[field] = own[field]
        else:
            container.pop(field, None)
    container["env"] = _with_own(container.get("env", []), own.get("env", []), lambda each: each.get("name"))
    # Of two sources with the same key the last one counts.
    container["envFrom"] = _with_own(container.get("envFrom", []), own.get("envFrom", []), str)
    container["volumeMounts"] = _with_own(container.get("volumeMounts", []), _needed_mounts(own), _mounted_path)
    if "ports" in own:
        container["ports"] = _with_own(container["ports"], own["ports"], lambda each: each.get("containerPort"))


def _needed_mounts(own: dict[str, Any]) -> list[dict[str, Any]]:
    """Not the scratch directories: whatever else can be written to does as well there."""
    return [mount for mount in own.get("volumeMounts", []) if mount not in scratch_mounts()]


def _mounted_path(mount: dict[str, Any]) -> PurePosixPath:
    return PurePosixPath(mount.get("mountPath", ""))


def _with_own(merged: list[Any], own: list[Any], key: Callable[[Any], object]) -> list[Any]:
    """Each of the operator's own as it was, instead of what the template made of it."""
    return list(({key(item): item for item in merged} | {key(item): item for item in own}).values())


def _merge(base: Any, overlay: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return copy.deepcopy(overlay)
    merged = copy.deepcopy(base)
    for key, value in overlay.items():
        if value is None:
            continue  # a block with nothing in it takes nothing away
        if key in _NAMED_BY and isinstance(merged.get(key), list) and isinstance(value, list):
            merged[key] = _merge_named(merged[key], value, _NAMED_BY[key])
        else:
            merged[key] = _merge(merged[key], value) if key in merged else copy.deepcopy(value)
    return merged


def _merge_named(base: list[Any], overlay: list[Any], key: str) -> list[Any]:
    merged = {item.get(key): item for item in base}
    for item in overlay:
        merged[item.get(key)] = _merge(merged[item.get(key)], item) if item.get(key) in merged else item
    return list(merged.values())
