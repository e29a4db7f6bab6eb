"""CEL rules of the CRD: what a schema cannot say, and what it could only say in a message nobody understands.

Each rule's cost is bounded by the lengths in the schema, since the API server refuses a CRD with unbounded
rules.
"""

from typing import NamedTuple

from snapshot_engine.wire.quantities import BYTES_PATTERN, DURATION_PATTERN, UNITS_OF_BYTES
from snapshot_engine.wire.spark_conf import OWNED_SPARK_CONF
from snapshot_engine.wire.spec import (
    ENTRYPOINT_PATTERN,
    FUNCTION_PATTERN,
    MAX_NAME_LENGTH,
    MIN_DRIVER_MEMORY,
    MIN_EXECUTOR_MEMORY,
    MIN_HEARTBEAT_TIMEOUT,
    NAME_PATTERN,
    OBJECT_STORES,
    OUTSIDE_OF_VOLUME,
    OUTSIDE_OF_VOLUME_PATTERN,
    TOO_LITTLE_DRIVER_MEMORY,
    TOO_LITTLE_EXECUTOR_MEMORY,
)
from streamingjob_operator.manifests.pod_security import SCRATCH_DIRECTORY, WORK_DIRECTORY

MAX_SPARK_CONF_ENTRIES = 64


class Rule(NamedTuple):
    rule: str
    message: str


def _matches(pattern: str) -> str:
    return f"self.matches(r'{pattern}')"


def _spark_conf_rule() -> str:
    exact = [key for key in OWNED_SPARK_CONF if not key.endswith(".")]
    prefixes = [key for key in OWNED_SPARK_CONF if key.endswith(".")]
    # One regular expression instead of a list of comparisons: the cost is estimated per comparison.
    alternatives = [f"{_escape(key)}$" for key in exact] + [_escape(key) for key in prefixes]
    return f"self.all(key, !key.matches(r'^({'|'.join(alternatives)})'))"


def _escape(key: str) -> str:
    return key.replace(".", "[.]")


def _is_at_least(mebibytes: int) -> str:
    return f"!isQuantity(self) || !quantity(self).isLessThan(quantity('{mebibytes}Mi'))"


_IS_DURATION = Rule(
    _matches(DURATION_PATTERN), "must be a duration with its unit (ms, s, m, h), such as 500ms, 10s or 1m"
)

FORMAT_RULES: dict[str, list[Rule]] = {
    "duration": [
        _IS_DURATION,
    ],
    "positive-duration": [
        _IS_DURATION,
        Rule("self.matches('[1-9]') || !self.matches('^[0-9]')", "must be longer than 0"),
    ],
    "byte-size": [
        Rule(_matches(BYTES_PATTERN), f"must be a size with its unit ({UNITS_OF_BYTES}), such as 1Gi or 2Gi"),
        Rule("self.matches('[1-9]') || !self.matches('^[0-9]')", "must be more than 0"),
    ],
}

# Slots would write to pods of their own, and a driver that comes later would find nothing. A job that runs without
# Kubernetes has no such trouble, so this is a rule of the CRD and not of the model.
_REACHED_BY_ALL_PODS = rf"^(({'|'.join(OBJECT_STORES)})://[^/]|file:///)"
_OF_EACH_POD_ALONE = rf"^file:///+({SCRATCH_DIRECTORY[1:]}|{WORK_DIRECTORY[1:]}|dev)(/|$)"

_STORAGE_IS_FIXED = (
    "spec.checkpoint.storage cannot be changed: the job's state is there. "
    "Make a new StreamingJob with restoreFrom instead"
)

_BACKOFF_MAX, _BACKOFF_INITIAL = "self.?max.orValue('1m')", "self.?initial.orValue('1s')"

# By path in the document; rules that go by path are for one field, FORMAT_RULES for every field of a kind.
PATH_RULES: dict[str, list[Rule]] = {
    "": [
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
            f"metadata.name may have at most {MAX_NAME_LENGTH} characters",
        ),
        Rule(
            f"self.metadata.name.matches(r'{NAME_PATTERN}')",
            "metadata.name must begin with a lower-case letter and hold only lower-case letters, digits, '-'",
        ),
    ],
    "spec": [
        Rule(
            "has(self.checkpoint) && has(self.checkpoint.storage)",
            "spec.checkpoint.storage is required: give uri (such as s3://bucket/prefix) or pvc.claimName",
        ),
        Rule("!has(self.restoreNonce) || has(self.restoreFrom)", "restoreNonce needs restoreFrom"),
    ],
    "spec.pipeline": [
        Rule(
            "[has(self.entrypoint), has(self.source), has(self.configMap)].exists_one(given, given)",
            "give exactly one of entrypoint, source and configMap",
        ),
        Rule("!has(self.path) || has(self.entrypoint)", "path goes with entrypoint only"),
    ],
    "spec.pipeline.entrypoint": [
        Rule(_matches(ENTRYPOINT_PATTERN), "must be module:function, such as jobs.orders:pipeline"),
    ],
    "spec.pipeline.function": [Rule(_matches(FUNCTION_PATTERN), "must be the name of a Python function")],
    # Storage is required, so that this cannot be evaded by removing it and adding another.
    "spec.checkpoint.storage": [
        Rule("has(self.uri) != has(self.pvc)", "give exactly one of uri and pvc"),
        Rule(
            "has(self.uri) == has(oldSelf.uri) && (!has(self.uri) || self.uri == oldSelf.uri)",
            _STORAGE_IS_FIXED,
        ),
    ],
    "spec.checkpoint.storage.uri": [
        Rule(
            _matches(_REACHED_BY_ALL_PODS),
            "give a place that all pods of the job can reach: "
            f"s3://bucket/prefix ({', '.join(f'{scheme}://' for scheme in OBJECT_STORES[1:])} likewise), file:///path "
            "of a volume that both pod templates mount, or pvc instead of uri",
        ),
        Rule(
            f"!{_matches(_OF_EACH_POD_ALONE)}",
            "each pod has this folder for itself, and the job's state would be lost with it: give s3://bucket/prefix, "
            "file:///path of a volume that both pod templates mount elsewhere, or pvc instead of uri",
        ),
    ],
    "spec.checkpoint.storage.pvc": [
        Rule(
            "self.claimName == oldSelf.claimName && has(self.subPath) == has(oldSelf.subPath) "
            "&& (!has(self.subPath) || self.subPath == oldSelf.subPath)",
            _STORAGE_IS_FIXED,
        ),
    ],
    "spec.checkpoint.storage.pvc.subPath": [
        Rule(f"!{_matches(OUTSIDE_OF_VOLUME_PATTERN)}", OUTSIDE_OF_VOLUME),
    ],
    "spec.recovery.heartbeatTimeout": [
        Rule(
            f"!{_matches(DURATION_PATTERN)} || duration(self) >= duration('{MIN_HEARTBEAT_TIMEOUT:g}s')",
            f"must be at least {MIN_HEARTBEAT_TIMEOUT:g}s: slots say that they are alive every 500ms",
        ),
    ],
    "spec.recovery.backoff": [
        Rule(
            # What is no duration is told where it stands, and cannot be compared.
            f"[{_BACKOFF_MAX}, {_BACKOFF_INITIAL}].exists(each, !each.matches(r'{DURATION_PATTERN}')) "
            f"|| duration({_BACKOFF_MAX}) >= duration({_BACKOFF_INITIAL})",
            "max must not be shorter than initial",
        ),
    ],
    "spec.driver.memory": [Rule(_is_at_least(MIN_DRIVER_MEMORY), TOO_LITTLE_DRIVER_MEMORY)],
    "spec.executor.memory": [Rule(_is_at_least(MIN_EXECUTOR_MEMORY), TOO_LITTLE_EXECUTOR_MEMORY)],
    "spec.sparkConf": [
        Rule(
            _spark_conf_rule(),
            "holds a setting that the engine owns (master, memory, cores, ports, scheduling, allocation, "
            "authentication); docs/crd-reference.md lists them and what to set instead",
        ),
    ],
}
