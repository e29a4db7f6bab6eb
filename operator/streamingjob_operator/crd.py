"""Generates the CustomResourceDefinition from the typed model, so that the two cannot drift apart.

``python -m streamingjob_operator.crd`` prints it; `make generate` writes crds/streamingjobs.yaml.
"""

import sys
from typing import Any

import yaml

from snapshot_engine.wire.quantities import format_bytes, format_duration
from snapshot_engine.wire.spec import GROUP, KIND, PLURAL, VERSION, StreamingJobSpec
from streamingjob_operator.crd_rules import FORMAT_RULES, MAX_SPARK_CONF_ENTRIES, PATH_RULES, Rule
from streamingjob_operator.resource import StreamingJobStatus

Schema = dict[str, Any]

# Kubernetes knows these of JSON schema's words; what else pydantic writes is left out or translated.
_KEPT = (
    "type", "description", "enum", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "required",
)  # fmt: skip
_OWN_FORMATS = tuple(FORMAT_RULES)
_PRESERVE = {"x-kubernetes-preserve-unknown-fields": True}


def build_crd() -> Schema:
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["sj"],
                "categories": ["all"],
            },
            "versions": [_version()],
        },
    }


def _version() -> Schema:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root_schema()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.parallelism",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": PRINTER_COLUMNS,
    }


PRINTER_COLUMNS = [
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase"},
    {
        "name": "Regions",
        "type": "string",
        "jsonPath": ".status.regionsReady",
        "description": "Running regions of all",
    },
    {"name": "Checkpoint", "type": "integer", "jsonPath": ".status.checkpoint.lastCompletedId"},
    {
        "name": "Completed",
        "type": "date",
        "jsonPath": ".status.checkpoint.completedAt",
        "description": "How long ago the latest checkpoint was completed",
    },
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts"},
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    {
        "name": "Ready",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].status',
        "priority": 1,
    },
    {
        "name": "Reason",
        "type": "string",
        "jsonPath": '.status.conditions[?(@.type=="Ready")].reason',
        "priority": 1,
    },
]


def _root_schema() -> Schema:
    root = {
        "type": "object",
        "description": "A checkpointed Spark streaming job.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec_schema(),
            "status": status_schema(),
        },
    }
    return _with_rules(root, PATH_RULES[""])


def spec_schema() -> Schema:
    schema = _translate_model(StreamingJobSpec.model_json_schema(by_alias=True), "spec")
    # The scale subresource reads it; all other defaults stay out of the CRD, so that a new one changes no
    # stored spec.
    schema["properties"]["parallelism"]["default"] = 1
    schema["properties"]["sparkConf"]["maxProperties"] = MAX_SPARK_CONF_ENTRIES
    return schema


def status_schema() -> Schema:
    json_schema = StreamingJobStatus.model_json_schema(by_alias=True, mode="serialization")
    schema = _translate_model(json_schema, "status")
    # Nothing in the status is required, and any value allowed: operator and CRD may be one release apart.
    for nested in _all_schemas(schema):
        nested.pop("required", None)
        nested.pop("enum", None)
    conditions = schema["properties"]["conditions"]
    conditions |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    conditions["items"]["required"] = ["type", "status"]
    return schema


def _all_schemas(schema: Schema) -> list[Schema]:
    children = [*schema.get("properties", {}).values(), *([schema["items"]] if "items" in schema else [])]
    return [schema, *(nested for child in children for nested in _all_schemas(child))]


def _translate_model(json_schema: Schema, path: str) -> Schema:
    return _translate(json_schema, json_schema.get("$defs", {}), path)


def _translate(node: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    node = _resolve(node, definitions)
    schema = {key: node[key] for key in _KEPT if key in node}
    if "description" in schema or not isinstance(node.get("default"), dict | None):
        schema["description"] = _describe(node)
    if node.get("format") == "date-time":
        schema["format"] = "date-time"
    if node.get("type") == "integer":
        schema["format"] = "int64"
    if node.get("type") == "object":
        schema |= _object_fields(node, definitions, path)
    if node.get("type") == "array":
        schema["items"] = _translate(node["items"], definitions, f"{path}[]")
    if "type" not in schema:
        schema |= _PRESERVE
    rules = FORMAT_RULES.get(node.get("format", ""), []) + PATH_RULES.get(path, [])
    return _with_rules(schema, rules)


def _object_fields(node: Schema, definitions: dict[str, Schema], path: str) -> Schema:
    if "properties" in node:
        fields = {name: _translate(child, definitions, f"{path}.{name}") for name, child in node["properties"].items()}
        return {"properties": fields}
    values = _resolve(node.get("additionalProperties", {}), definitions)
    if values.get("type") == "string":
        return {"additionalProperties": {"type": "string", "maxLength": 4096}}
    return dict(_PRESERVE)


def _resolve(node: Any, definitions: dict[str, Schema]) -> Schema:
    """Without references, and without the null of an optional field: in Kubernetes a field is there or it is
    not."""
    if not isinstance(node, dict):
        return {}
    outer = {key: value for key, value in node.items() if key not in ("$ref", "anyOf", "allOf")}
    if "$ref" in node:
        return _resolve(definitions[node["$ref"].rsplit("/", 1)[1]], definitions) | outer
    alternatives = [option for option in node.get("anyOf", []) if option.get("type") != "null"]
    if len(alternatives) == 1:
        return _resolve(alternatives[0], definitions) | outer
    return outer


def _describe(node: Schema) -> str:
    text = " ".join(str(node.get("description", "")).split())
    default = node.get("default")
    if default is None or isinstance(default, dict | list) or default == "":
        return text
    return f"{text} Default: {_show_default(node, default)}.".strip()


def _show_default(node: Schema, default: Any) -> str:
    """As a user would write it."""
    if node.get("format") in ("duration", "positive-duration"):
        return format_duration(default)
    if node.get("format") == "byte-size":
        return format_bytes(default)
    return str(default).lower() if isinstance(default, bool) else str(default)


def _with_rules(schema: Schema, rules: list[Rule]) -> Schema:
    if not rules:
        return schema
    return schema | {"x-kubernetes-validations": [{"rule": rule.rule, "message": rule.message} for rule in rules]}


class _PlainDumper(yaml.SafeDumper):
    """Without anchors: every schema is written out where it stands."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def render_crd() -> str:
    header = "# Generated by `make generate` from the typed model. Change the model, not this file.\n"
    return header + yaml.dump(build_crd(), Dumper=_PlainDumper, sort_keys=False, width=120, allow_unicode=True)


if __name__ == "__main__":
    sys.stdout.write(render_crd())
