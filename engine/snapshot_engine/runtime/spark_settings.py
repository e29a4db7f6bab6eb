"""How Spark is set up, embedded and on Kubernetes. Pure: names and values, no Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from snapshot_engine.wire import control
from snapshot_engine.wire.spec import MIB, MIN_DRIVER_HEAP, MIN_EXECUTOR_HEAP, MIN_MEMORY_OF_SLOTS, StreamingJob

OWNED_SETTINGS: Mapping[str, str] = {
    # Restarting is ours: a failed slot must end its Spark job at once, and must not end the application.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.executor.maxNumFailures": "2147483647",
    "spark.excludeOnFailure.enabled": "false",
    # Neither goes with barrier mode.
    "spark.dynamicAllocation.enabled": "false",
    "spark.speculation": "false",
    # Waiting is most of a recovery: look for free slots often, and do not wait for better placed ones.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "600",
    "spark.scheduler.revive.interval": "100ms",
    "spark.scheduler.minRegisteredResourcesRatio": "0",
    "spark.locality.wait": "0",
    "spark.python.task.killTimeout": "50ms",
    # Forked from a process that has imported everything: a slot is there in milliseconds.
    "spark.python.worker.reuse": "true",
    "spark.python.use.daemon": "true",
    "spark.python.daemon.module": "snapshot_engine.runtime.spark_daemon",
}

KUBERNETES_SETTINGS: Mapping[str, str] = {
    "spark.master": "k8s://https://kubernetes.default.svc",
    "spark.submit.deployMode": "client",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # After what looks like a lack of memory, replacements would be given one task each, and regions no longer fit.
    "spark.kubernetes.allocation.recoveryMode.enabled": "false",
    # Executors are told everything by their environment.
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.executor.securityContext.allowPrivilegeEscalation": "false",
    # As the template says; this counts.
    "spark.kubernetes.executor.terminationGracePeriodSeconds": "0s",
    # A sidecar may end or fail: a pod is judged by the executor's container.
    "spark.kubernetes.executor.checkAllContainers": "false",
    # A pod that went without a word is missed by polling alone, and its replacement waits for that. Asked of the API
    # server's cache, a poll costs next to nothing.
    "spark.kubernetes.executor.apiPollingInterval": "5s",
    "spark.kubernetes.executor.enablePollingWithResourceVersion": "true",
    "spark.kubernetes.executor.missingPodDetectDelta": "5s",
    "spark.kubernetes.dynamicAllocation.deleteGracePeriod": "1s",
    "spark.authenticate": "true",
    "spark.authenticate.secret.file": f"{control.SECRETS_DIRECTORY}/{control.SPARK_SECRET_FILE}",
    "spark.driver.port": str(control.SPARK_DRIVER_PORT),
    "spark.driver.blockManager.port": str(control.SPARK_BLOCK_MANAGER_PORT),
    "spark.kubernetes.executor.podTemplateFile": control.EXECUTOR_TEMPLATE_PATH,
    "spark.kubernetes.executor.podTemplateContainerName": control.EXECUTOR_CONTAINER_NAME,
}

LONGEST_POD_NAME_PREFIX = 47
"""Spark adds -exec- and a number of up to ten digits, and 63 characters are allowed."""


@dataclass(frozen=True)
class DriverPod:
    """Where the driver runs, as Kubernetes told it."""

    name: str
    ip: str
    generation: int


def kubernetes_settings(
    job: StreamingJob, pod: DriverPod, executor_template: Mapping[str, Any], instances: int
) -> dict[str, str]:
    """Everything that Spark is told for a driver in client mode in its own pod. `instances`: executors, without the
    standby ones."""
    spec = job.spec
    heap, overhead = split_executor_memory(spec.executor.memory)
    return {
        **spec.spark_conf,
        **OWNED_SETTINGS,
        **KUBERNETES_SETTINGS,
        "spark.app.name": job.metadata.name,
        "spark.kubernetes.namespace": job.metadata.namespace,
        "spark.kubernetes.driver.pod.name": pod.name,
        "spark.kubernetes.container.image": spec.image or "",
        "spark.kubernetes.container.image.pullPolicy": spec.image_pull_policy.value,
        "spark.kubernetes.executor.podNamePrefix": _pod_name_prefix(job.metadata.name, pod.generation),
        f"spark.kubernetes.executor.label.{control.GENERATION_LABEL}": str(pod.generation),
        # By address and not by the service's name, behind which an older driver may still be.
        "spark.driver.host": pod.ip,
        "spark.driver.bindAddress": pod.ip,
        "spark.driver.memory": f"{driver_heap(spec.driver.memory)}m",
        "spark.executor.instances": str(instances + spec.executor.standby),
        "spark.executor.cores": str(spec.executor.cores),
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{overhead}m",
        **_cpu_settings(executor_template),
    }


def _pod_name_prefix(job: str, generation: int) -> str:
    room = LONGEST_POD_NAME_PREFIX - 1 - len(str(generation))
    if len(job) > room:  # cut short, it could be another job's as well
        mark = hashlib.sha256(job.encode()).hexdigest()[:6]
        job = f"{job[: room - 1 - len(mark)]}-{mark}"
    return f"{job}-{generation}"


def split_executor_memory(whole: int) -> tuple[int, int]:
    """MiB of the JVM's heap, which only schedules, and of everything else: the slots, which do the work."""
    total = whole // MIB
    heap = min(max(MIN_EXECUTOR_HEAP, total // 8), 2048)
    return heap, max(total - heap, MIN_MEMORY_OF_SLOTS)


def driver_heap(whole: int) -> int:
    """MiB of the JVM's heap; the JobMaster's own process has the rest."""
    return min(max(MIN_DRIVER_HEAP, whole // MIB * 3 // 8), 4096)


def _cpu_settings(executor_template: Mapping[str, Any]) -> dict[str, str]:
    """Spark overwrites what a template says about processors, so it is told the same."""
    containers = executor_template.get("spec", {}).get("containers", [])
    named = [each for each in containers if each.get("name") == control.EXECUTOR_CONTAINER_NAME]
    resources = (named[0].get("resources") if named else None) or {}
    wanted = {kind: (resources.get(f"{kind}s") or {}).get("cpu") for kind in ("request", "limit")}
    return {f"spark.kubernetes.executor.{kind}.cores": str(value) for kind, value in wanted.items() if value}
