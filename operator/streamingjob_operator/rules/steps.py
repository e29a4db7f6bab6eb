"""Takes an operation under way one step further: plan, stop, kill, start."""

from snapshot_engine.wire.control import StopMode, StopRequest
from snapshot_engine.wire.spec import SavepointFallback, UpgradeMode
from snapshot_engine.wire.status import Phase, SavepointState
from streamingjob_operator import naming
from streamingjob_operator.actions import DeletePod, DropStoredSpecs, LaunchPlanner, StopJob
from streamingjob_operator.draft import Draft, Note
from streamingjob_operator.observation import PodView
from streamingjob_operator.resource import JobPhase, OperationKind, OperationStep, Reason, RestorePoint
from streamingjob_operator.rules.acceptance import refuse
from streamingjob_operator.rules.driver import describe_end
from streamingjob_operator.rules.launching import ask_to_go
from streamingjob_operator.rules.operations import become_suspended, driver_can_take_a_savepoint
from streamingjob_operator.rules.rollback import can_roll_back, roll_back

ASK_AGAIN_SECONDS = 2.0


def continue_operation(draft: Draft) -> None:
    operation = draft.status.operation
    if operation is None:
        return
    match operation.step:
        case OperationStep.PLAN:
            _continue_plan(draft)
        case OperationStep.STOP:
            _continue_stop(draft)
        case OperationStep.KILL:
            _continue_kill(draft)
        case OperationStep.START:
            _continue_start(draft)
        case OperationStep.CLEAN:
            draft.status.operation = None  # belongs to a deletion, and this job is not being deleted


def _continue_plan(draft: Draft) -> None:
    if draft.target != draft.operation.target_hash:
        # The spec has changed again, or back: what is being planned is no longer wanted.
        _delete_planners(draft)
        draft.status.operation = None
        draft.look_again(0.1)
        return
    pod = _planner_pod(draft)
    if pod is None:
        draft.act(LaunchPlanner(draft.operation.target_hash or ""))
        draft.look_again(ASK_AGAIN_SECONDS)
    elif pod.phase == "Succeeded":
        _delete_planners(draft)
        _begin_stop(draft)
    elif pod.phase == "Failed":
        _refuse_plan(draft, f"the changed spec cannot be planned: the planner {describe_end(pod)}")
    elif draft.has_passed(draft.operation.step_started_at, draft.policy.ready_timeout):
        why = pod.start_problem or "its planner pod did not end"
        _refuse_plan(draft, f"the changed spec could not be planned in time: {why}")


def _planner_pod(draft: Draft) -> PodView | None:
    target = draft.operation.target_hash
    return next((pod for pod in draft.observation.pods_of(naming.PLANNER) if pod.spec_hash == target), None)


def _delete_planners(draft: Draft) -> None:
    for pod in draft.observation.pods_of(naming.PLANNER):
        draft.act(DeletePod(pod.name, pod.uid))


def _refuse_plan(draft: Draft, message: str) -> None:
    _delete_planners(draft)
    refuse(draft, draft.operation.target_hash or "", Reason.UPGRADE_REFUSED, message)
    draft.status.operation = None
    draft.target = draft.running_hash


def _begin_stop(draft: Draft) -> None:
    mode = draft.policy.upgrade_mode
    if mode is UpgradeMode.SAVEPOINT and driver_can_take_a_savepoint(draft):
        draft.operation.savepoint_name = f"upgrade-{draft.observation.job.generation}"
    elif mode is UpgradeMode.SAVEPOINT:
        draft.announce(
            Reason.SAVEPOINT_FAILED,
            "The driver cannot take a savepoint now; the upgrade goes on from the latest checkpoint",
            warning=True,
        )
        draft.move_to_step(OperationStep.KILL)
        return
    draft.move_to_step(OperationStep.STOP)
    _continue_stop(draft)


def _stop_request(draft: Draft) -> StopRequest:
    operation = draft.operation
    if operation.savepoint_name is not None:
        return StopRequest(mode=StopMode.SAVEPOINT, name=operation.savepoint_name)
    stateless = operation.restore is not None and operation.restore.ignore_state
    return StopRequest(mode=StopMode.CANCEL if stateless else StopMode.CHECKPOINT)


def _continue_stop(draft: Draft) -> None:
    pod = draft.observation.driver_pod()
    if pod is None or pod.ended:
        _finish_stop(draft, pod)
    elif (failure := _savepoint_failure(draft)) is not None:
        _give_up_savepoint(draft, Reason.SAVEPOINT_FAILED, failure)
    elif draft.has_passed(draft.operation.step_started_at, draft.policy.savepoint_timeout):
        waited = f"no end after {draft.policy.savepoint_timeout:.0f} s"
        _give_up_savepoint(draft, Reason.SAVEPOINT_TIMED_OUT, waited)
    elif not draft.observation.stop_accepted:
        draft.act(StopJob(_stop_request(draft)))
        draft.look_again(ASK_AGAIN_SECONDS)


def _savepoint_failure(draft: Draft) -> str | None:
    report, name = draft.observation.report, draft.operation.savepoint_name
    if report is None or name is None:
        return None
    failed = (s for s in report.status.savepoints if s.name == name and s.state is SavepointState.FAILED)
    return next((savepoint.error or "no reason given" for savepoint in failed), None)


def _give_up_savepoint(draft: Draft, reason: Reason, why: str) -> None:
    operation = draft.operation
    keep = draft.policy.savepoint_fallback is SavepointFallback.KEEP_RUNNING
    if keep and operation.kind is OperationKind.UPGRADE and operation.savepoint_name is not None:
        message = f"savepoint {operation.savepoint_name}: {why}; the old spec keeps running"
        refuse(draft, operation.target_hash or "", reason, message)
        draft.status.operation = None
        draft.target = draft.running_hash
        return
    asked = f"Savepoint {operation.savepoint_name}" if operation.savepoint_name else "Stopping"
    draft.announce(reason, f"{asked}: {why}; going on from the latest completed checkpoint", warning=True)
    operation.savepoint_name = None
    draft.move_to_step(OperationStep.KILL)
    _continue_kill(draft)


def _continue_kill(draft: Draft) -> None:
    pod = draft.observation.driver_pod()
    if pod is None or pod.ended:
        _finish_stop(draft, pod)
    else:
        ask_to_go(draft, pod)


def _finish_stop(draft: Draft, pod: PodView | None) -> None:
    operation = draft.operation
    report = pod.exit.report if pod is not None and pod.exit is not None else None
    if report is not None and report.phase is Phase.FINISHED and operation.kind is not OperationKind.ROLLBACK:
        # It came to its end before it could be stopped; a changed spec then starts from there.
        draft.status.phase = JobPhase.FINISHED
        draft.status.operation = None
        draft.announce(Reason.FINISHED, "The job has ended and committed all of its output")
        return
    restore = _restore_after_stop(draft, report.savepoint_path if report is not None else None)
    if operation.kind is OperationKind.SUSPEND:
        become_suspended(draft, restore)
        return
    if pod is not None:
        draft.act(DeletePod(pod.name, pod.uid))
    assert operation.target_hash is not None, "everything but a suspension has a target"
    operation.restore = restore
    draft.move_to_step(OperationStep.START)
    draft.intend_launch(operation.target_hash, restore)


def _restore_after_stop(draft: Draft, written: str | None) -> RestorePoint | None:
    operation = draft.operation
    if operation.savepoint_name is None:
        return operation.restore if operation.kind is not OperationKind.SUSPEND else draft.lineage
    path = written or _completed_savepoint_path(draft, operation.savepoint_name)
    if path is not None:
        uid = draft.observation.job.uid[:8]
        return RestorePoint(id=f"{operation.savepoint_name}-{uid}", path=path)
    draft.announce(
        Reason.SAVEPOINT_FAILED,
        f"The driver ended without savepoint {operation.savepoint_name}; its latest checkpoint is used",
        warning=True,
    )
    return draft.lineage


def _completed_savepoint_path(draft: Draft, name: str) -> str | None:
    return next((s.path for s in draft.status.savepoints if s.name == name and s.path is not None), None)


def _continue_start(draft: Draft) -> None:
    operation, driver = draft.operation, draft.status.driver
    if driver is not None and driver.ready_at is not None:
        draft.announce(Reason.RUNNING, f"{operation.kind} done in {_seconds_since_start(draft):.1f} s")
        draft.status.operation = None
        draft.status.restart_budget.spent = 0
        draft.act(DropStoredSpecs(keep=frozenset({driver.spec_hash})))
    elif draft.target not in (None, operation.target_hash, draft.running_hash):
        # Changed again before it was ready: the next decision begins anew with the newest.
        draft.status.operation = None
        draft.look_again(0.1)
    elif draft.has_passed(operation.step_started_at, draft.policy.ready_timeout):
        _answer_late_start(draft)


def _answer_late_start(draft: Draft) -> None:
    why = draft.waiting.message if draft.waiting is not None else draft.status.error or "no region ran"
    late = f"was not ready within {draft.policy.ready_timeout:.0f} s ({why})"
    if can_roll_back(draft):
        roll_back(draft, late)
    else:
        draft.stalled = Note(Reason.NOT_READY_IN_TIME, f"{late}, and there is nothing to roll back to")


def _seconds_since_start(draft: Draft) -> float:
    return (draft.now - draft.operation.started_at).total_seconds()
