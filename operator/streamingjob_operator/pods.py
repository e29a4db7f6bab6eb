"""Reads pods and nodes, as the API server gives them, into the views that decisions are made on."""

import json
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from snapshot_engine.wire.control import EXECUTOR_CONTAINER_NAME
from snapshot_engine.wire.status import TerminationReport
from streamingjob_operator import naming
from streamingjob_operator.observation import ContainerExit, NodeView, PodView
from streamingjob_operator.resource import JobSize

# Reasons for which a container waits because something is wrong, and not because it is on its way.
_TROUBLED_WAITING = (
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
)
LONGEST_SHOWN_LINE = 500
UNREACHABLE_TAINT = "node.kubernetes.io/unreachable"


def read_time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def view_pod(body: dict[str, Any]) -> PodView:
    """The pod as its main container makes it; what further containers do is their own business."""
    metadata, spec, status = body["metadata"], body.get("spec", {}), body.get("status", {})
    labels, annotations = metadata.get("labels", {}), metadata.get("annotations", {})
    component = _component(labels)
    main = _main_container(status.get("containerStatuses"), component)
    container_exit = _container_exit(main)
    created = read_time(metadata["creationTimestamp"])
    assert created is not None, "the API server always sets it"
    return PodView(
        name=metadata["name"],
        uid=metadata["uid"],
        component=component,
        generation=_number(labels.get(naming.GENERATION_LABEL)),
        executor_id=labels.get(naming.EXECUTOR_ID_LABEL),
        spec_hash=labels.get(naming.SPEC_HASH_LABEL),
        node=spec.get("nodeName"),
        ip=status.get("podIP"),
        phase=_phase(status, main, container_exit),
        ready=_is_ready(status, main),
        created_at=created,
        deleting_since=_deletion_began(metadata),
        exit=container_exit,
        start_problem=_start_problem(status, main),
        image=_main_container(spec.get("containers"), component).get("image"),
        render_version=_number(annotations.get(naming.RENDER_VERSION_ANNOTATION)),
        size=_size(annotations),
        status_reason=status.get("reason"),
        never_ran=_why_never_run(status) if container_exit is None else None,
        init_failed=container_exit is None and _failed_init_container(status) is not None,
    )


def _size(annotations: dict[str, str]) -> JobSize | None:
    parallelism = _number(annotations.get(naming.PARALLELISM_ANNOTATION))
    executors = _number(annotations.get(naming.EXECUTORS_ANNOTATION))
    return JobSize(parallelism=parallelism, executors=executors) if parallelism and executors else None


def _number(text: str | None) -> int | None:
    """Anybody can put anything into a label; what is no number is not the operator's."""
    return int(text) if text is not None and text.isdecimal() else None


def _main_container(containers: list[dict[str, Any]] | None, component: str) -> dict[str, Any]:
    """The one that runs the job's program: of the pod's spec or of its status. Empty if it is not there yet."""
    name = EXECUTOR_CONTAINER_NAME if component == naming.EXECUTOR else naming.DRIVER_CONTAINER
    return next((container for container in containers or [] if container.get("name") == name), {})


def _phase(status: dict[str, Any], main: dict[str, Any], container_exit: ContainerExit | None) -> str:
    """Kubernetes calls a pod Running while any container runs, and Pending while any has not started."""
    if container_exit is not None:
        return "Succeeded" if container_exit.code == 0 else "Failed"
    phase: str = status.get("phase", "Pending")
    return "Running" if phase == "Pending" and _runs(main) else phase


def _runs(container: dict[str, Any]) -> bool:
    return container.get("state", {}).get("running") is not None


def _is_ready(status: dict[str, Any], main: dict[str, Any]) -> bool:
    """Also if only another container is not; but not if the pod is unready for its node's sake."""
    if _condition(status, "Ready") == "True":
        return True
    return bool(main.get("ready")) and _condition(status, "ContainersReady") == "False"


def _component(labels: dict[str, str]) -> str:
    if naming.EXECUTOR_ID_LABEL in labels:
        return naming.EXECUTOR
    return labels.get(naming.COMPONENT_LABEL, "")


def _deletion_began(metadata: dict[str, Any]) -> datetime | None:
    """Kubernetes' deletionTimestamp is when the grace period ends."""
    ends = read_time(metadata.get("deletionTimestamp"))
    if ends is None:
        return None
    seconds = metadata.get("deletionGracePeriodSeconds") or 0
    return datetime.fromtimestamp(ends.timestamp() - seconds, tz=ends.tzinfo)


def _condition(status: dict[str, Any], kind: str) -> str | None:
    return next((each.get("status") for each in status.get("conditions") or [] if each.get("type") == kind), None)


def _container_exit(main: dict[str, Any]) -> ContainerExit | None:
    ended = main.get("state", {}).get("terminated")
    if ended is None:
        return None
    message = ended.get("message", "")
    report = _termination_report(message)
    shown = "" if report is not None else _last_line(message)
    return ContainerExit(ended.get("exitCode", -1), ended.get("reason", "Unknown"), report, shown)


def _why_never_run(status: dict[str, Any]) -> str | None:
    if status.get("phase") != "Failed":
        return None
    failed = _failed_init_container(status)
    if failed is None:
        return status.get("message")
    ended = failed["state"]["terminated"]
    said = _last_line(ended.get("message", ""))
    told = f"its init container {failed.get('name')} exited with code {ended['exitCode']}"
    return f"{told}: {said}" if said else told


def _failed_init_container(status: dict[str, Any]) -> dict[str, Any] | None:
    for container in status.get("initContainerStatuses") or []:
        ended = container.get("state", {}).get("terminated") or {}
        if ended.get("exitCode", 0) != 0:
            return dict(container)
    return None


def _last_line(log: str) -> str:
    """Of a traceback, that is what went wrong."""
    lines = log.strip().splitlines()
    return lines[-1].strip()[:LONGEST_SHOWN_LINE] if lines else ""


def _termination_report(message: str) -> TerminationReport | None:
    try:
        return TerminationReport.model_validate(json.loads(message))
    except (ValueError, ValidationError):
        return None


def _start_problem(status: dict[str, Any], main: dict[str, Any]) -> str | None:
    """Whatever keeps the main container from starting, be it another one of the pod; None once it runs."""
    if _runs(main):
        return None
    for container in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        waiting = container.get("state", {}).get("waiting") or {}
        if waiting.get("reason") in _TROUBLED_WAITING:
            return f"{waiting['reason']}: {waiting.get('message', '')}".rstrip(": ")
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return f"{condition.get('reason', 'Unschedulable')}: {condition.get('message', '')}".rstrip(": ")
    return None


def view_node(body: dict[str, Any]) -> NodeView:
    ready = _condition(body.get("status", {}), "Ready")
    taints = body.get("spec", {}).get("taints") or []
    tainted = any(taint.get("key") == UNREACHABLE_TAINT for taint in taints)
    return NodeView(body["metadata"]["name"], ready=ready == "True", unreachable=ready == "Unknown" or tainted)
