"""The driver pod, and its siblings that plan a changed spec or remove a deleted job's checkpoints."""

from typing import Any

from snapshot_engine.wire.control import (
    CONTROL_PORT,
    CONTROL_PORT_NAME,
    CONTROL_TOKEN_FILE,
    HEALTH_PATH,
    METRICS_PATH,
    READY_PATH,
    SLOT_PORT,
    SPARK_BLOCK_MANAGER_PORT,
    SPARK_DRIVER_PORT,
    SPARK_SECRET_FILE,
    Environment,
)
from snapshot_engine.wire.quantities import format_bytes
from snapshot_engine.wire.spec import StreamingJobSpec
from streamingjob_operator import naming
from streamingjob_operator.manifests.ownership import Owner
from streamingjob_operator.manifests.pod_security import (
    WORK_DIRECTORY,
    container_security_context,
    pod_security_context,
    scratch_environment,
    scratch_mounts,
    scratch_volumes,
)
from streamingjob_operator.manifests.pod_template import OWN_VOLUME_PREFIX, merge_pod_template
from streamingjob_operator.manifests.storage import storage_environment_sources, storage_mounts, storage_volumes
from streamingjob_operator.manifests.stored_spec import EXECUTOR_KEY, MANIFEST_KEY, StoredSpec
from streamingjob_operator.resource import DriverRecord, RestorePoint

CONFIG_DIRECTORY = "/etc/streamingjob"
CONFIG_VOLUME = f"{OWN_VOLUME_PREFIX}config"
TERMINATION_GRACE_SECONDS = 30

# In executors Spark sets it.
_LOCAL_DIRECTORIES = {"name": "SPARK_LOCAL_DIRS", "value": WORK_DIRECTORY}

RUN = ("driver",)
PLAN = ("driver", "--plan")
DELETE_STATE = ("driver", "--delete-state")


def build_driver_pod(owner: Owner, stored: StoredSpec, driver: DriverRecord) -> dict[str, Any]:
    pod = _base_pod(owner, stored, driver.pod_name, naming.DRIVER, RUN, driver.generation)
    pod["metadata"]["labels"][naming.GENERATION_LABEL] = str(driver.generation)
    pod["metadata"]["annotations"] |= _size_annotations(stored.spec)
    container = pod["spec"]["containers"][0]
    container["env"] += _restore_environment(driver.restore) + _expectation(driver)
    container |= {"ports": _ports(), **_probes()}
    if stored.spec.monitoring.scrape:
        pod["metadata"]["annotations"] |= _scrape_annotations()
    return merge_pod_template(pod, stored.spec.driver.pod_template)


def build_planner_pod(owner: Owner, stored: StoredSpec, restore: RestorePoint | None = None) -> dict[str, Any]:
    """Plans the pipeline and ends: 0 if it can run from that state, a fatal ExitCode with the reason if it cannot."""
    name = naming.planner_pod_name(owner.name, stored.spec_hash, restore)
    pod = _base_pod(owner, stored, name, naming.PLANNER, PLAN, generation=0)
    ignores = restore is not None and restore.ignore_state
    environment = {Environment.IGNORE_STATE: "true" if ignores else "false"}
    if restore is not None and restore.path is not None:
        environment[Environment.RESTORE_FROM] = restore.path
    pod["spec"]["containers"][0]["env"] += [{"name": name.value, "value": said} for name, said in environment.items()]
    return merge_pod_template(pod, stored.spec.driver.pod_template)


def build_cleaner_pod(owner: Owner, stored: StoredSpec) -> dict[str, Any]:
    """Removes the job's checkpoints, not its savepoints, and ends."""
    name = naming.cleaner_pod_name(owner.name, owner.uid)
    pod = _base_pod(owner, stored, name, naming.CLEANER, DELETE_STATE, generation=0)
    return merge_pod_template(pod, stored.spec.driver.pod_template)


def _base_pod(
    owner: Owner, stored: StoredSpec, name: str, component: str, program: tuple[str, ...], generation: int
) -> dict[str, Any]:
    spec = stored.spec
    metadata = owner.metadata(name, component)
    metadata["labels"][naming.SPEC_HASH_LABEL] = stored.spec_hash
    metadata["annotations"] = {naming.RENDER_VERSION_ANNOTATION: str(stored.render_version)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {
            # A driver that ended is replaced by one of the next generation, never restarted under the same.
            "restartPolicy": "Never",
            "serviceAccountName": spec.service_account_name or naming.service_account_name(owner.name),
            "automountServiceAccountToken": component == naming.DRIVER,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": TERMINATION_GRACE_SECONDS,
            "securityContext": pod_security_context(),
            "containers": [_container(owner, stored, program, generation)],
            "volumes": [_config_volume(owner, stored), *scratch_volumes(), *storage_volumes(spec)],
        },
    }


def _container(owner: Owner, stored: StoredSpec, program: tuple[str, ...], generation: int) -> dict[str, Any]:
    spec = stored.spec
    return {
        "name": naming.DRIVER_CONTAINER,
        "image": stored.image,
        "imagePullPolicy": spec.image_pull_policy.value,
        "args": list(program),
        "env": [*_identity_environment(owner, generation), *scratch_environment(), _LOCAL_DIRECTORIES],
        "envFrom": storage_environment_sources(spec),
        "resources": _resources(spec),
        "securityContext": container_security_context(),
        # The driver writes its report; one that could not leaves its last log lines instead.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": CONFIG_VOLUME, "mountPath": CONFIG_DIRECTORY, "readOnly": True},
            *scratch_mounts(),
            *storage_mounts(spec),
        ],
    }


def _identity_environment(owner: Owner, generation: int) -> list[dict[str, Any]]:
    fixed = {
        Environment.NAME: owner.name,
        Environment.NAMESPACE: owner.namespace,
        Environment.UID: owner.uid,
        Environment.GENERATION: str(generation),
    }
    from_pod = {
        Environment.POD_NAME: "metadata.name",
        Environment.POD_UID: "metadata.uid",
        Environment.POD_IP: "status.podIP",
    }
    return [
        *({"name": name.value, "value": value} for name, value in fixed.items()),
        *({"name": name.value, "valueFrom": {"fieldRef": {"fieldPath": p}}} for name, p in from_pod.items()),
    ]


def _restore_environment(restore: RestorePoint | None) -> list[dict[str, Any]]:
    if restore is None:
        return []
    environment = [{"name": Environment.RESTORE_ID.value, "value": restore.id}]
    if restore.path is not None:
        environment.append({"name": Environment.RESTORE_FROM.value, "value": restore.path})
    if restore.ignore_state:
        environment.append({"name": Environment.IGNORE_STATE.value, "value": "true"})
    return environment


def _expectation(driver: DriverRecord) -> list[dict[str, Any]]:
    """An engine that is older than the operator does not know it, and starts from whatever it finds."""
    expected = driver.expected_checkpoint
    return [{"name": Environment.EXPECTED_CHECKPOINT.value, "value": expected}] if expected is not None else []


def _resources(spec: StreamingJobSpec) -> dict[str, Any]:
    """Memory is a hard limit, since the engine splits it; a CPU limit would only throttle."""
    memory = format_bytes(spec.driver.memory)
    return {"requests": {"cpu": str(spec.driver.cores), "memory": memory}, "limits": {"memory": memory}}


def _ports() -> list[dict[str, Any]]:
    return [
        {"name": CONTROL_PORT_NAME, "containerPort": CONTROL_PORT},
        {"name": "spark", "containerPort": SPARK_DRIVER_PORT},
        {"name": "blockmanager", "containerPort": SPARK_BLOCK_MANAGER_PORT},
        {"name": "slots", "containerPort": SLOT_PORT},
    ]


def _probes() -> dict[str, Any]:
    def get(path: str) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": CONTROL_PORT_NAME}, "timeoutSeconds": 5}

    return {
        "startupProbe": get(HEALTH_PATH) | {"periodSeconds": 5, "failureThreshold": 60},
        "livenessProbe": get(HEALTH_PATH) | {"periodSeconds": 10, "failureThreshold": 6},
        "readinessProbe": get(READY_PATH) | {"periodSeconds": 2, "failureThreshold": 2},
    }


def _size_annotations(spec: StreamingJobSpec) -> dict[str, str]:
    """For whoever sees the pod and not the stored spec."""
    return {naming.PARALLELISM_ANNOTATION: str(spec.parallelism), naming.EXECUTORS_ANNOTATION: str(spec.executor_pods)}


def _scrape_annotations() -> dict[str, str]:
    return {
        "prometheus.io/scrape": "true",
        "prometheus.io/port": str(CONTROL_PORT),
        "prometheus.io/path": METRICS_PATH,
    }


def _config_volume(owner: Owner, stored: StoredSpec) -> dict[str, Any]:
    """One projected volume, because a mount inside a read-only mount cannot be made."""
    spec_items = [{"key": key, "path": key} for key in (MANIFEST_KEY, EXECUTOR_KEY)]
    secret_items = [{"key": key, "path": f"secrets/{key}"} for key in (CONTROL_TOKEN_FILE, SPARK_SECRET_FILE)]
    sources: list[dict[str, Any]] = [
        {"configMap": {"name": naming.stored_spec_name(owner.name, owner.uid, stored.spec_hash), "items": spec_items}},
        {"secret": {"name": naming.secret_name(owner.name, owner.uid), "items": secret_items}},
    ]
    code = stored.spec.pipeline.config_map
    if code is not None:
        item = {"key": code.key, "path": f"pipeline/{code.key}"}
        sources.append({"configMap": {"name": code.name, "items": [item]}})
    return {"name": CONFIG_VOLUME, "projected": {"defaultMode": 0o440, "sources": sources}}
