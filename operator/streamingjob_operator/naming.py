"""Names and labels of everything that belongs to a job: the one place that forms them."""

import hashlib
import json
from typing import Any

from snapshot_engine.wire.control import DRIVER_CONTAINER_NAME
from snapshot_engine.wire.control import GENERATION_LABEL as GENERATION_LABEL
from snapshot_engine.wire.spec import GROUP
from streamingjob_operator.resource import RestorePoint

NAME_LABEL = f"{GROUP}/name"
UID_LABEL = f"{GROUP}/uid"
COMPONENT_LABEL = f"{GROUP}/component"
SPEC_HASH_LABEL = f"{GROUP}/spec-hash"
EXECUTOR_ID_LABEL = "spark-exec-id"
RENDER_VERSION_ANNOTATION = f"{GROUP}/render-version"
PARALLELISM_ANNOTATION = f"{GROUP}/parallelism"
EXECUTORS_ANNOTATION = f"{GROUP}/executors"
FINALIZER = f"{GROUP}/cleanup"

DRIVER = "driver"
EXECUTOR = "executor"
PLANNER = "planner"
CLEANER = "cleaner"

DRIVER_CONTAINER = DRIVER_CONTAINER_NAME
"""The main container of driver, planner and cleaner; an executor's is named by the wire."""

# What the operator reads from the live spec, so that a change takes effect without restarting the job.
FIELDS_WITHOUT_RESTART = (
    "state",
    "upgradeMode",
    "savepointFallback",
    "savepointTimeout",
    "readyTimeout",
    "rollback",
    "restoreFrom",
    "restoreNonce",
    "savepointNonce",
    "restartNonce",
    "deletionPolicy",
    "savepointOnDeletion",
)
# Those of them that say how a changed spec is reached. A spec that was refused may be within reach when one changes.
FIELDS_OF_AN_ATTEMPT = (
    "upgradeMode",
    "savepointFallback",
    "savepointTimeout",
    "readyTimeout",
    "rollback",
    "restoreFrom",
    "restoreNonce",
    "restartNonce",
)
RECOVERY_FIELDS_WITHOUT_RESTART = ("progressWindow", "onNoProgress")


def spec_hash(raw_spec: dict[str, Any]) -> str:
    """Names a spec by what needs a restart to take effect.

    Taken of what the user wrote, not of the defaults filled in: a newer operator with other defaults or more
    fields must not restart a job whose spec nobody touched.
    """
    relevant = {key: value for key, value in raw_spec.items() if key not in FIELDS_WITHOUT_RESTART}
    recovery = relevant.get("recovery")
    if isinstance(recovery, dict):
        kept = {key: value for key, value in recovery.items() if key not in RECOVERY_FIELDS_WITHOUT_RESTART}
        relevant["recovery"] = kept
    return _short_hash(_without_empty(relevant) | _verbatim(raw_spec))


def _verbatim(raw_spec: dict[str, Any]) -> dict[str, Any]:
    """What the pipeline's function is given: there an empty block, or null, says something else than none."""
    pipeline = raw_spec.get("pipeline")
    if not (isinstance(pipeline, dict) and pipeline.get("args")):
        return {}
    return {"pipeline": {**_without_empty(pipeline), "args": pipeline["args"]}}


def attempt_hash(raw_spec: dict[str, Any]) -> str:
    """Names the way to a spec, as `spec_hash` names the spec."""
    return _short_hash(_without_empty({key: value for key, value in raw_spec.items() if key in FIELDS_OF_AN_ATTEMPT}))


def _short_hash(document: dict[str, Any]) -> str:
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]


def _without_empty(value: Any) -> Any:
    """An empty block says the same as none."""
    if not isinstance(value, dict):
        return value
    cleaned = {key: _without_empty(item) for key, item in value.items()}
    return {key: item for key, item in cleaned.items() if item is not None and item != {}}


def stored_spec_name(job: str, uid: str, hashed: str) -> str:
    """Carries the job's uid, as `secret_name` does: a node that still has a pod of a former job of the same name gives
    a new pod what it remembers under a name, not what is there now."""
    return f"{job}-spec-{uid[:8]}-{hashed}"


def driver_pod_name(job: str, generation: int) -> str:
    return f"{job}-driver-{generation}"


def planner_pod_name(job: str, hashed: str, restore: RestorePoint | None = None) -> str:
    """Each for one spec and one state to start from: what it says is said of both."""
    if restore is not None:
        document = {"spec": hashed, "path": restore.path, "ignoreState": restore.ignore_state}
        hashed = _short_hash(_without_empty(document))
    return f"{job}-plan-{hashed}"


def cleaner_pod_name(job: str, uid: str) -> str:
    return f"{job}-clean-{uid[:8]}"


def savepoint_name(purpose: str, uid: str) -> str:
    """Carries the job's uid: another job of the same name, on the same storage, begins its generations and nonces anew,
    and savepoints outlive the jobs they are of."""
    return f"{purpose}-{uid[:8]}"


def driver_service_name(job: str) -> str:
    return f"{job}-driver"


def service_account_name(job: str) -> str:
    return f"{job}-driver"


def secret_name(job: str, uid: str) -> str:
    return f"{job}-secrets-{uid[:8]}"


def job_labels(job: str, uid: str, component: str | None = None) -> dict[str, str]:
    labels = {
        "app.kubernetes.io/name": "streamingjob",
        "app.kubernetes.io/instance": job,
        "app.kubernetes.io/managed-by": "streamingjob-operator",
        NAME_LABEL: job,
        UID_LABEL: uid,
    }
    return labels if component is None else {**labels, COMPONENT_LABEL: component}


def executor_selector(uid: str) -> str:
    return f"{UID_LABEL}={uid},{COMPONENT_LABEL}={EXECUTOR}"
