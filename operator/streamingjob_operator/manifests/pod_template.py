"""Merges a user's pod template into a pod that the operator needs to be as it is.

The user's word counts wherever the operator has no need of its own (resources, tolerations, security context, further
containers and volumes). Lists of named things are merged by name; nothing is replaced as a whole.
"""

import copy
from typing import Any

_NAMED_BY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "name",
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
    _restore_program(merged["spec"]["containers"], pod["spec"]["containers"][0])
    return merged


def _restore_identity(merged: dict[str, Any], own: dict[str, Any]) -> None:
    for field in ("name", "namespace", "ownerReferences"):
        if field in own:
            merged[field] = own[field]
        else:
            merged.pop(field, None)
    merged["labels"] = merged.get("labels", {}) | own.get("labels", {})


def _restore_program(containers: list[dict[str, Any]], own: dict[str, Any]) -> None:
    container = next(each for each in containers if each["name"] == own["name"])
    for field in ("args", "command", "image"):
        if field in own:
            container[field] = own[field]
    container["env"] = _merge_named(container.get("env", []), own.get("env", []), "name")


def _merge(base: Any, overlay: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(overlay, dict)):
        return copy.deepcopy(overlay)
    merged = copy.deepcopy(base)
    for key, value in overlay.items():
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
