"""Takes an operation under way one step further: plan, stop, kill, start."""

from snapshot_engine.wire.control import StopMode, StopRequest
from snapshot_engine.wire.spec import JobState, SavepointFallback, UpgradeMode
from snapshot_engine.wire.status import Phase, SavepointState
from streamingjob_operator import naming
from streamingjob_operator.actions import DeletePod, DropStoredSpecs, LaunchPlanner, StopJob
from streamingjob_operator.draft import Draft, Note
from streamingjob_operator.observation import PodView
from streamingjob_operator.resource import OperationKind, OperationStep, Reason, RestorePoint
from streamingjob_operator.rules.acceptance import refuse
from streamingjob_operator.rules.driver import FATAL_EXITS, describe_end, is_cut_off
from streamingjob_operator.rules.executors import notes_on_slots
from streamingjob_operator.rules.launching import ask_to_go
from streamingjob_operator.rules.operations import (
    become_suspended,
    driver_can_take_a_savepoint,
    planned_restore,
    restore_is_asked,
    restore_of_upgrade,
    stand_still,
    take_asked_restore,
)
from streamingjob_operator.rules.rollback import can_roll_back, roll_back, takes_change_back

ASK_AGAIN_SECONDS = 2.0
PLAN_AGAIN_SECONDS = 10.0
"""Between the making of two planner pods, at least."""
_GO_BACK = (OperationKind.RESTORE, OperationKind.ROLLBACK)
"""Where the job does not go on from its end, should it have come to it."""


def continue_operation(draft: Draft) -> None:
    operation = draft.status.operation
    if operation is None:
        return
    match operation.step:
        case OperationStep.PLAN:
            _continue_plan(draft)
        case OperationStep.WAIT:
            _continue_wait(draft)
        case OperationStep.STOP:
            _continue_stop(draft)
        case OperationStep.KILL:
            _continue_kill(draft)
        case OperationStep.START:
            _continue_start(draft)
        case OperationStep.CLEAN:
            draft.status.operation = None  # belongs to a deletion, and this job is not being deleted
        case _:
            stand_still(draft)


def drop_idle_planners(draft: Draft) -> None:
    """Nobody waits for their word any more; also if that was recorded by an operator that died before it acted."""
    operation = draft.status.operation
    awaited = _planner_name(draft) if operation is not None and operation.step is OperationStep.PLAN else None
    for pod in draft.observation.pods_of(naming.PLANNER):
        if pod.name != awaited:
            draft.act(DeletePod(pod.name, pod.uid))


def _continue_plan(draft: Draft) -> None:
    if _is_no_longer_wanted(draft):
        return
    pod = _planner_pod(draft)
    if pod is not None and pod.phase == "Succeeded":
        _begin_stop(draft)
    elif pod is not None and _has_said_no(pod):
        message = f"the changed spec cannot be planned: the planner {describe_end(pod)}"
        _keep_running_spec(draft, Reason.UPGRADE_REFUSED, message)
    elif pod is not None and _can_never_start(pod):
        message = f"the changed spec cannot be planned: the planner cannot start: {pod.start_problem}"
        _keep_running_spec(draft, Reason.UPGRADE_REFUSED, message)
    elif draft.has_passed(draft.operation.step_started_at, draft.policy.ready_timeout):
        message = f"the changed spec could not be planned in time: {_why_late(draft, pod)}"
        _keep_running_spec(draft, Reason.UPGRADE_REFUSED, message)
    elif pod is None:
        draft.act(LaunchPlanner(draft.operation.target_hash or "", planned_restore(draft)))
        draft.look_again(ASK_AGAIN_SECONDS)
    elif pod.ended:
        _plan_again(draft, pod)
    elif pod.start_problem is not None:
        draft.waiting = Note(Reason.UPGRADING, f"the planner {pod.name} cannot start: {pod.start_problem}")


def _has_said_no(planner: PodView) -> bool:
    """Any other end (eviction, no memory, storage that did not answer) says nothing about the spec."""
    return planner.exit is not None and planner.exit.code in FATAL_EXITS


def _can_never_start(planner: PodView) -> bool:
    """Any other problem (an image that is not there, a missing Secret, no room) may go away by itself."""
    return planner.start_problem is not None and planner.start_problem.startswith("InvalidImageName")


def _plan_again(draft: Draft, ended: PodView) -> None:
    what = f"the planner {describe_end(ended)}; it is tried again"
    draft.waiting = Note(Reason.UPGRADING, what)
    if draft.has_passed(ended.created_at, PLAN_AGAIN_SECONDS):
        draft.announce(Reason.UPGRADING, what[0].upper() + what[1:], warning=True)
        draft.act(DeletePod(ended.name, ended.uid))
        draft.look_again(ASK_AGAIN_SECONDS)


def _why_late(draft: Draft, planner: PodView | None) -> str:
    if planner is None:
        refused = draft.observation.hindrance
        return "no planner pod could be made" + (f": {refused.message}" if refused is not None else "")
    if planner.ended:
        return f"the planner {describe_end(planner)}"
    return planner.start_problem or "its planner pod did not end"


def _is_no_longer_wanted(draft: Draft) -> bool:
    """The spec has changed again, or back, before anything was done to the running job."""
    taken_back = draft.operation.kind is OperationKind.RESTORE and not restore_is_asked(draft)
    if draft.target == draft.operation.target_hash and not taken_back:
        return False
    draft.status.operation = None
    draft.look_again(0.1)
    return True


def _planner_pod(draft: Draft) -> PodView | None:
    """One that is being deleted was asked by another operation, and its end says nothing."""
    name, pods = _planner_name(draft), draft.observation.pods_of(naming.PLANNER)
    return next((pod for pod in pods if pod.name == name and pod.deleting_since is None), None)


def _planner_name(draft: Draft) -> str:
    job, target = draft.observation.job, draft.operation.target_hash or ""
    return naming.planner_pod_name(job.name, target, planned_restore(draft))


def _keep_running_spec(draft: Draft, reason: Reason, message: str) -> None:
    refuse(draft, draft.operation.target_hash or "", reason, message)
    draft.status.operation = None
    draft.target = draft.running_hash
    draft.accepted = False


def _begin_stop(draft: Draft) -> None:
    """The modes are read now: they may have changed while the new spec was planned."""
    operation, mode = draft.operation, draft.policy.upgrade_mode
    if restore_is_asked(draft):
        operation.kind = OperationKind.RESTORE
        operation.restore = take_asked_restore(draft)
        _kill(draft)
        return
    operation.restore = restore_of_upgrade(draft)
    if takes_change_back(draft):
        _kill(draft)
    elif driver_can_take_a_savepoint(draft):
        if mode is UpgradeMode.SAVEPOINT:
            job = draft.observation.job
            operation.savepoint_name = naming.savepoint_name(f"upgrade-{job.generation}", job.uid)
        draft.move_to_step(OperationStep.STOP)
        _continue_stop(draft)
    elif mode is UpgradeMode.SAVEPOINT and _must_have_savepoint(draft):
        draft.move_to_step(OperationStep.WAIT)
        _continue_wait(draft)
    else:
        _go_on_without_stopping(draft, mode)


def _go_on_without_stopping(draft: Draft, mode: UpgradeMode) -> None:
    if mode is UpgradeMode.SAVEPOINT:
        draft.announce(
            Reason.SAVEPOINT_FAILED,
            "The driver cannot take a savepoint now; the upgrade goes on from the latest checkpoint",
            warning=True,
        )
    _kill(draft)


def _kill(draft: Draft) -> None:
    draft.move_to_step(OperationStep.KILL)
    _continue_kill(draft)


def _must_have_savepoint(draft: Draft) -> bool:
    """A spec that never was ready is nothing to keep running."""
    keep = draft.policy.savepoint_fallback is SavepointFallback.KEEP_RUNNING
    upgrades = draft.operation.kind is OperationKind.UPGRADE
    return keep and upgrades and draft.running_hash == draft.status.last_good_hash


def _continue_wait(draft: Draft) -> None:
    if _is_no_longer_wanted(draft):
        return
    still_so = draft.policy.upgrade_mode is UpgradeMode.SAVEPOINT and _must_have_savepoint(draft)
    if not still_so or driver_can_take_a_savepoint(draft) or restore_is_asked(draft):
        _begin_stop(draft)
    elif draft.has_passed(draft.operation.step_started_at, draft.policy.savepoint_timeout):
        message = (
            f"the driver could take no savepoint within {draft.policy.savepoint_timeout:.0f} s; the old spec keeps "
            "running, as savepointFallback says (upgradeMode: LastState goes on from the latest checkpoint)"
        )
        _keep_running_spec(draft, Reason.SAVEPOINT_TIMED_OUT, message)
    else:
        draft.waiting = Note(Reason.UPGRADING, "waiting until the running driver can take a savepoint")


def _stop_request(draft: Draft) -> StopRequest:
    operation = draft.operation
    if operation.savepoint_name is not None:
        return StopRequest(mode=StopMode.SAVEPOINT, name=operation.savepoint_name)
    # A job that began without state once is given the same restore point for ever, and goes on from its checkpoints.
    goes_on = operation.restore is None or operation.restore == draft.lineage
    stateless = operation.restore is not None and operation.restore.ignore_state and not goes_on
    return StopRequest(mode=StopMode.CANCEL if stateless else StopMode.CHECKPOINT)


def _continue_stop(draft: Draft) -> None:
    pod = draft.observation.driver_pod()
    if pod is None or pod.ended:
        _finish_stop(draft, pod)
    elif (failure := savepoint_failure(draft)) is not None:
        _give_up_savepoint(draft, Reason.SAVEPOINT_FAILED, failure)
    elif is_cut_off(draft, pod):
        _give_up_savepoint(draft, Reason.SAVEPOINT_FAILED, f"{pod.name} does not answer, and its node is unreachable")
    elif draft.has_passed(draft.operation.step_started_at, draft.policy.savepoint_timeout):
        waited = f"no end after {draft.policy.savepoint_timeout:.0f} s"
        _give_up_savepoint(draft, Reason.SAVEPOINT_TIMED_OUT, waited)
    elif not draft.observation.stop_accepted:
        draft.act(StopJob(_stop_request(draft)))
        draft.look_again(ASK_AGAIN_SECONDS)


def savepoint_failure(draft: Draft) -> str | None:
    report, name = draft.observation.report, draft.operation.savepoint_name
    if report is None or name is None:
        return None
    failed = (s for s in report.status.savepoints if s.name == name and s.state is SavepointState.FAILED)
    return next((savepoint.error or "no reason given" for savepoint in failed), None)


def _give_up_savepoint(draft: Draft, reason: Reason, why: str) -> None:
    operation = draft.operation
    if operation.savepoint_name is not None and _must_have_savepoint(draft):
        _keep_running_spec(draft, reason, f"savepoint {operation.savepoint_name}: {why}; the old spec keeps running")
        return
    asked = f"Savepoint {operation.savepoint_name}" if operation.savepoint_name else "Stopping"
    draft.announce(reason, f"{asked}: {why}; going on from the latest completed checkpoint", warning=True)
    operation.savepoint_name = None
    _kill(draft)


def _continue_kill(draft: Draft) -> None:
    living = [pod for pod in draft.observation.pods_of(naming.DRIVER) if pod.living]
    for pod in living:
        ask_to_go(draft, pod)
    if not living:
        _finish_stop(draft, draft.observation.driver_pod())


def _finish_stop(draft: Draft, pod: PodView | None) -> None:
    operation = draft.operation
    report = pod.exit.report if pod is not None and pod.exit is not None else None
    if report is not None and report.phase is Phase.FINISHED and operation.kind not in _GO_BACK:
        draft.finish()  # before it could be stopped; a changed spec then starts from there
        return
    written = report.savepoint_path if report is not None else None
    path = written or _completed_savepoint_path(draft, operation.savepoint_name)
    if path is None and operation.savepoint_name is not None and _must_have_savepoint(draft):
        message = f"the driver ended without savepoint {operation.savepoint_name}; the old spec goes on"
        _keep_running_spec(draft, Reason.SAVEPOINT_FAILED, message)
        return
    _go_on_after_stop(draft, pod, _restore_after_stop(draft, path))


def _go_on_after_stop(draft: Draft, pod: PodView | None, restore: RestorePoint | None) -> None:
    operation = draft.operation
    if (
        operation.target_hash is None
    ):  # a suspension; or of a kind that a newer operator knows: then it goes on after it
        become_suspended(draft, restore)
        return
    if draft.policy.state is JobState.SUSPENDED:
        # No state was asked for with the new spec; which one is resumed is not known yet.
        # A rollback's is the old job's, also if that had once begun without any.
        stateless = restore is not None and restore.ignore_state and operation.kind is not OperationKind.ROLLBACK
        become_suspended(draft, draft.lineage if stateless else restore)
        return
    if operation.savepoint_name is not None:
        draft.keep_way_back(restore)
    if pod is not None:
        draft.act(DeletePod(pod.name, pod.uid))
    operation.restore = restore
    draft.move_to_step(OperationStep.START)
    draft.start_afresh(operation.target_hash, restore)


def _restore_after_stop(draft: Draft, path: str | None) -> RestorePoint | None:
    operation = draft.operation
    if operation.savepoint_name is None:
        return operation.restore
    if path is not None:
        return RestorePoint(id=operation.savepoint_name, path=path)
    draft.announce(
        Reason.SAVEPOINT_FAILED,
        f"The driver ended without savepoint {operation.savepoint_name}; its latest checkpoint is used",
        warning=True,
    )
    return operation.restore


def _completed_savepoint_path(draft: Draft, name: str | None) -> str | None:
    return next((s.path for s in draft.status.savepoints if s.name == name and s.path is not None), None)


def _continue_start(draft: Draft) -> None:
    operation, driver = draft.operation, draft.status.driver
    if driver is not None and driver.ready_at is not None:
        draft.announce(Reason.RUNNING, f"{operation.kind} done in {_seconds_since_start(draft):.1f} s")
        draft.status.operation = None
        draft.act(DropStoredSpecs(keep=frozenset({driver.spec_hash})))
    elif draft.has_passed(operation.step_started_at, draft.policy.ready_timeout):
        _answer_late_start(draft)


def _answer_late_start(draft: Draft) -> None:
    late = f"was not ready within {draft.policy.ready_timeout:.0f} s ({_why_not_ready(draft)})"
    if can_roll_back(draft):
        roll_back(draft, late)
    else:
        draft.stalled = Note(Reason.NOT_READY_IN_TIME, f"{late}, and there is nothing to roll back to")


def _why_not_ready(draft: Draft) -> str:
    """What has to be changed, as far as anybody knows: slots that are missing come before what followed from that."""
    if draft.waiting is not None:
        return draft.waiting.message
    known = [note.message for note in notes_on_slots(draft)]
    if draft.status.error:
        known.append(draft.status.error)
    return "; ".join(known) or "no region ran"


def _seconds_since_start(draft: Draft) -> float:
    return (draft.now - draft.operation.started_at).total_seconds()
