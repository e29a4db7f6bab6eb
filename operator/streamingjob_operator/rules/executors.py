"""Finds executors that the JobMaster counts on and that have no living pod, and tells it at once.

Lost is a level, not an event: so a loss while no operator ran is found as well.
"""

from dataclasses import dataclass

from snapshot_engine.wire.control import LossReason, NodeSuspectRequest, PodLostRequest
from snapshot_engine.wire.spec import StreamingJobSpec
from snapshot_engine.wire.status import ExecutorStatus, JobStatus, Phase, SlotStatus
from streamingjob_operator import naming
from streamingjob_operator.actions import DeletePod, HintSuspectNode, ProbeExecutor, ReportLoss
from streamingjob_operator.draft import Draft, Note
from streamingjob_operator.observation import PROBE_AGAIN_SECONDS, LossKey, PodView
from streamingjob_operator.resource import DriverRecord, JobSize, Reason

SAY_AGAIN_SECONDS = 5.0
EXECUTORS_MADE_WITHIN_SECONDS = 20.0
"""Spark makes many pods in batches, and one that is lost anew, seconds after the driver has found out."""
_AT_ITS_END = (Phase.STOPPED, Phase.FINISHED, Phase.FAILED)


def count_executors(draft: Draft) -> None:
    draft.status.selector = naming.executor_selector(draft.observation.job.uid)
    driver = draft.status.driver
    pods = draft.observation.executors(driver.generation) if driver is not None else []
    draft.status.executors.ready = sum(pod.phase == "Running" and pod.deleting_since is None for pod in pods)
    size = _size(draft, driver)
    if size is not None:
        draft.status.executors.desired, draft.status.replicas = size.executors, size.parallelism
    _date_shortage(draft)


def _date_shortage(draft: Draft) -> None:
    """Counted from when it was first seen: pods that are gone have left nothing that says when."""
    shortage, counts = _shortage(draft), draft.status.executors
    if shortage is None:
        counts.short_since = None
    elif counts.short_since is None:
        counts.short_since = draft.now
        draft.look_again(EXECUTORS_MADE_WITHIN_SECONDS)


def _size(draft: Draft, driver: DriverRecord | None) -> JobSize | None:
    """Of what runs; None if that is not known."""
    if driver is None or draft.is_terminal:
        return JobSize(parallelism=0, executors=0)
    if driver.size is not None or draft.spec is None:
        return driver.size
    return JobSize(parallelism=draft.spec.parallelism, executors=draft.spec.executor_pods)


def report_losses(draft: Draft) -> None:
    status = _current_report(draft)
    if status is None or status.application_id is None or status.phase in _AT_ITS_END:
        return  # a job that has ended lets its executors go
    if draft.observation.silent_since is not None:
        return  # so does one whose driver has just ended; any other is told when it answers again
    pods = {pod.executor_id: pod for pod in draft.observation.executors(status.generation)}
    for executor in status.executors:
        loss = _loss_of(executor, pods.get(executor.executor_id))
        if loss is not None:
            _tell_loss(draft, status, executor, loss, pods.get(executor.executor_id))


def _current_report(draft: Draft) -> JobStatus | None:
    report, driver = draft.observation.report, draft.status.driver
    if report is None or driver is None or report.status.generation != driver.generation or draft.is_terminal:
        return None
    return report.status


def _loss_of(executor: ExecutorStatus, pod: PodView | None) -> LossReason | None:
    if pod is None or (executor.pod_uid is not None and executor.pod_uid != pod.uid):
        return LossReason.POD_GONE
    if pod.exit is not None and pod.exit.reason == "OOMKilled":
        return LossReason.OOM_KILLED
    if pod.status_reason in ("Evicted", "Preempting", "Preempted"):
        return LossReason.EVICTED
    if pod.ended or pod.exit is not None:
        return LossReason.POD_FAILED
    return LossReason.POD_DELETING if pod.deleting_since is not None else None


def _tell_loss(
    draft: Draft, status: JobStatus, executor: ExecutorStatus, reason: LossReason, pod: PodView | None
) -> None:
    pod_uid = executor.pod_uid or (pod.uid if pod is not None else None)
    assert status.application_id is not None
    name = executor.pod_name or (pod.name if pod is not None else f"executor {executor.executor_id}")
    draft.degraded.append(Note(Reason.EXECUTOR_LOST, f"{name} is lost ({reason})"))
    draft.look_again(SAY_AGAIN_SECONDS)
    key = LossKey(status.generation, status.application_id, executor.executor_id, pod_uid)
    if key in draft.observation.losses_told:
        return
    request = PodLostRequest(
        generation=key.generation,
        application_id=key.application_id,
        executor_id=key.executor_id,
        pod_uid=pod_uid,
        pod_name=executor.pod_name or (pod.name if pod is not None else None),
        reason=reason,
        observed_at=draft.now,
    )
    draft.act(ReportLoss(request))


def watch_nodes(draft: Draft) -> None:
    """A node that is not ready is a hint; the JobMaster knows whether its slots still have a heartbeat."""
    status = _current_report(draft)
    if status is None:
        return
    suspect: dict[str, list[PodView]] = {}
    for pod in draft.observation.executors(status.generation):
        node = draft.observation.node_of(pod)
        if node is not None and not node.ready and not pod.ended:
            suspect.setdefault(node.name, []).append(pod)
    for name, pods in suspect.items():
        _answer_suspect_node(draft, status, name, pods)


def _answer_suspect_node(draft: Draft, status: JobStatus, name: str, pods: list[PodView]) -> None:
    unreachable = draft.observation.nodes[name].unreachable
    state = "unreachable" if unreachable else "not ready"
    note = f"node {name} is {state}; {len(pods)} executors are there"
    draft.degraded.append(Note(Reason.NODE_SUSPECT, note))
    if name not in draft.observation.nodes_told:
        ids = [pod.executor_id for pod in pods if pod.executor_id is not None]
        request = NodeSuspectRequest(generation=status.generation, node=name, executor_ids=ids, reason=state)
        draft.act(HintSuspectNode(request))
        draft.look_again(SAY_AGAIN_SECONDS)
    if unreachable:
        # Nobody is there to confirm their end; without this the objects would stay for ever.
        for pod in pods:
            draft.act(DeletePod(pod.name, pod.uid, force=True))


def watch_slots(draft: Draft) -> None:
    """Executors that cannot start, and regions that wait for slots: said, but no restart."""
    draft.degraded += notes_on_slots(draft)


def notes_on_slots(draft: Draft) -> list[Note]:
    """What keeps regions from having the slots that they need."""
    status, driver = _current_report(draft), draft.status.driver
    if driver is None or draft.is_terminal:
        return []
    notes = []
    stuck = [pod for pod in draft.observation.executors(driver.generation) if pod.start_problem is not None]
    if stuck:
        message = f"{len(stuck)} executor pods cannot start, {stuck[0].name}: {stuck[0].start_problem}"
        notes.append(Note(Reason.EXECUTORS_CANNOT_START, message))
    shortage = _shortage(draft)
    if shortage is not None:
        notes += _note_on_shortage(draft, shortage)
    elif status is not None and status.slots.needed > status.slots.total > 0:
        notes.append(Note(Reason.TOO_FEW_SLOTS, _too_few_slots(draft, status.slots)))
    return notes


@dataclass(frozen=True)
class _Shortage:
    """Fewer executor pods exist than Spark was told to make. Those that cannot start do exist."""

    there: list[PodView]
    wanted: int


def _shortage(draft: Draft) -> _Shortage | None:
    status = _current_report(draft)
    if status is None or status.phase in _AT_ITS_END or draft.observation.silent_since is not None:
        return None  # Spark makes none yet, none any more, or nobody knows
    there = [pod for pod in draft.observation.executors(status.generation) if pod.living and pod.deleting_since is None]
    wanted = _wanted_executors(draft, status)
    return _Shortage(there, wanted) if len(there) < wanted else None


def _wanted_executors(draft: Draft, status: JobStatus) -> int:
    """What the driver has told Spark, which may be more than can be said without the pipeline."""
    size, spec = _size(draft, draft.status.driver), _running_spec(draft)
    at_least = size.executors if size is not None else 0
    if spec is None or spec.executor.instances is not None:
        return at_least
    return max(at_least, -(-status.slots.needed // spec.executor.cores) + spec.executor.standby)


def _running_spec(draft: Draft) -> StreamingJobSpec | None:
    """The live spec, if it is the one that runs."""
    runs = draft.running_hash == naming.spec_hash(draft.observation.job.raw_spec)
    return draft.spec if runs else None


def _note_on_shortage(draft: Draft, shortage: _Shortage) -> list[Note]:
    since = draft.status.executors.short_since
    if since is None:
        return []
    # As long as one comes after the other, they are being made.
    if not draft.has_passed(max([since, *(pod.created_at for pod in shortage.there)]), EXECUTORS_MADE_WITHIN_SECONDS):
        return []
    found = f"{len(shortage.there)} of {shortage.wanted} executor pods are there, and no more are being made"
    return [Note(Reason.EXECUTORS_CANNOT_START, f"{found}: {_why_none_are_made(draft)}")]


def _why_none_are_made(draft: Draft) -> str:
    """Spark is refused them and only logs it, and a pod that was never made has no events."""
    running = draft.running_hash
    if running is not None and not draft.observation.executor_probed:
        draft.act(ProbeExecutor(running))
    draft.look_again(PROBE_AGAIN_SECONDS)
    refusal = draft.observation.executor_refusal
    if refusal is not None:
        return f"the API server refuses them: {refusal}"
    return (
        "a ResourceQuota or an admission rule of the namespace may refuse them "
        f"(kubectl describe quota -n {draft.observation.job.namespace})"
    )


def _too_few_slots(draft: Draft, slots: SlotStatus) -> str:
    found = f"the job needs {slots.needed} slots and the executors have {slots.total}; "
    spec = _running_spec(draft)
    if spec is not None and spec.executor.instances is None:
        return f"{found}all executor pods are there, but not all have come to the driver yet"
    return f"{found}raise executor.instances or executor.cores, or lower parallelism"
