"""The shape of a pod template, as far as it is merged part by part; the rest is the API server's to judge."""

from collections.abc import Iterator, Mapping
from typing import Any

# Lists whose items are told apart by one of their fields.
_LISTS_OF_A_POD = {"containers": "name", "initContainers": "name", "volumes": "name", "imagePullSecrets": "name"}
_LISTS_OF_A_CONTAINER = {"env": "name", "envFrom": None, "ports": "containerPort", "volumeMounts": "mountPath"}


# Of a whole pod, which may be given as well.
_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")


def find_ignored(template: Mapping[str, Any], container: str) -> list[str]:
    """What is in a template of the right shape and would not be merged, one sentence each; `container` is the
    engine's.
    """
    return [*_beside_the_spec(template), *_in_place_of_the_engine(template, container)]


def _beside_the_spec(template: Mapping[str, Any]) -> Iterator[str]:
    ignored = sorted(set(template) - set(_FIELDS))
    if ignored:
        names = ", ".join(ignored)
        yield f"{names} would be ignored: a pod template has metadata and spec; a pod's fields belong in spec"


def _in_place_of_the_engine(template: Mapping[str, Any], container: str) -> Iterator[str]:
    containers = template.get("spec", {}).get("containers", [])
    given = {field for each in containers if each["name"] == container for field in each if each[field] is not None}
    where = f"spec.containers[{container}]"
    if "image" in given:
        yield f"{where}.image would be ignored: set spec.image instead"
    program = ", ".join(f"{where}.{field}" for field in ("command", "args") if field in given)
    if program:
        yield (
            f"{program} would be ignored: the engine's program runs there; what runs beside it is a container of "
            "another name"
        )


def find_misshapen(template: Mapping[str, Any]) -> list[str]:
    """What cannot be merged into a pod, one sentence each; none if it can."""
    return [*_in_metadata(template), *_in_spec(template)]


def _in_metadata(template: Mapping[str, Any]) -> Iterator[str]:
    metadata = template.get("metadata", {})
    if not isinstance(metadata, dict):
        yield _expected("a mapping", "metadata", metadata)
    elif not isinstance(metadata.get("labels", {}), dict):
        yield _expected("a mapping", "metadata.labels", metadata["labels"])


def _in_spec(template: Mapping[str, Any]) -> Iterator[str]:
    spec = template.get("spec", {})
    if not isinstance(spec, dict):
        yield _expected("a mapping", "spec", spec)
        return
    misshapen = list(_in_lists(spec, _LISTS_OF_A_POD, "spec"))
    yield from misshapen
    if misshapen:
        return
    for kind in ("containers", "initContainers"):
        for container in spec.get(kind, []):
            yield from _in_lists(container, _LISTS_OF_A_CONTAINER, f"spec.{kind}[{container['name']}]")


def _in_lists(parent: Mapping[str, Any], lists: Mapping[str, str | None], where: str) -> Iterator[str]:
    for field, key in lists.items():
        items = parent.get(field, [])
        if not isinstance(items, list):
            yield _expected("a list", f"{where}.{field}", items)
            continue
        for number, item in enumerate(items):
            if not isinstance(item, dict):
                yield _expected("a mapping", f"{where}.{field}[{number}]", item)
            elif key is not None and not isinstance(item.get(key), str | int):
                yield f"{where}.{field}[{number}] has no {key}"


def _expected(shape: str, where: str, found: object) -> str:
    return f"{where} must be {shape}; found {'null' if found is None else repr(found)[:80]}"
