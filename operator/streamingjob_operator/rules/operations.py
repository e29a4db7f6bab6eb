"""Begins what the spec asks for: first start, upgrade, suspension, resumption, restart, restore."""

from snapshot_engine.wire.spec import JobState, UpgradeMode
from snapshot_engine.wire.status import Phase
from streamingjob_operator import naming
from streamingjob_operator.draft import Draft, Note
from streamingjob_operator.resource import (
    JobPhase,
    Operation,
    OperationKind,
    OperationStep,
    Reason,
    RestorePoint,
)
from streamingjob_operator.rules.launching import ask_to_go
from streamingjob_operator.rules.rollback import own_state_of_last_good, takes_change_back

_MAY_BE_LEFT_FOR_A_SUSPENSION = (OperationStep.PLAN, OperationStep.WAIT, OperationStep.START)
_CAN_TAKE_A_SAVEPOINT = (Phase.RUNNING, Phase.RECOVERING)


def begin_what_is_asked(draft: Draft) -> None:
    if draft.spec is None:
        return
    operation = draft.status.operation
    if draft.spec.state is JobState.SUSPENDED:
        if operation is None or operation.step in _MAY_BE_LEFT_FOR_A_SUSPENSION:
            _suspend(draft)
    elif operation is None or _still_starts(draft, operation):
        _begin_what_is_due(draft)


def _still_starts(draft: Draft, operation: Operation) -> bool:
    """A start may hang for ever, so it keeps nobody from asking for something else."""
    driver = draft.status.driver
    return operation.step is OperationStep.START and (driver is None or driver.ready_at is None)


def _begin_what_is_due(draft: Draft) -> None:
    if draft.status.phase is JobPhase.SUSPENDED:
        _resume(draft)
    elif draft.running_hash is None:
        _start_first(draft)
    elif draft.accepted and draft.target != draft.running_hash:
        _begin_upgrade(draft)
    elif draft.accepted and restore_is_asked(draft):
        _begin_restore(draft)
    elif draft.accepted and _take_restart_nonce(draft):
        _begin_restart(draft)
    elif draft.status.operation is None and _runs_unproven_spec(draft):
        # Another change came before it was ready, and was refused or taken back.
        begin(draft, OperationKind.UPGRADE, OperationStep.START, target=draft.running_hash, restore=draft.lineage)


def _runs_unproven_spec(draft: Draft) -> bool:
    """Whether there is a way back from what runs, which must not be lost."""
    return not draft.is_terminal and draft.status.last_good_hash not in (None, draft.running_hash)


def driver_can_take_a_savepoint(draft: Draft) -> bool:
    report, pod, driver = draft.observation.report, draft.observation.driver_pod(), draft.status.driver
    if pod is None or pod.ended or driver is None:
        return False
    if report is None:
        # An operator that has just started has not heard of a driver that may be well: it is asked, and may refuse.
        return driver.ready_at is not None and draft.observation.silent_since is None
    return report.status.generation == driver.generation and report.status.phase in _CAN_TAKE_A_SAVEPOINT


def begin(
    draft: Draft,
    kind: OperationKind,
    step: OperationStep,
    *,
    target: str | None = None,
    savepoint: str | None = None,
    restore: RestorePoint | None = None,
) -> None:
    draft.status.operation = Operation(
        kind=kind,
        step=step,
        started_at=draft.now,
        step_started_at=draft.now,
        target_hash=target,
        savepoint_name=savepoint,
        restore=restore,
    )


def stand_still(draft: Draft) -> None:
    """At a step that only a newer operator knows. What is lost meanwhile is replaced all the same."""
    operation = draft.operation
    message = (
        f"the operation {operation.kind} is at step {operation.step}, which this operator does not know: "
        "a newer one has begun it. Run that one again"
    )
    draft.stalled = Note(Reason.UNKNOWN_STEP, message)


def _start_first(draft: Draft) -> None:
    if draft.target is None or draft.is_terminal:
        return
    draft.start_afresh(draft.target, take_asked_restore(draft) if restore_is_asked(draft) else None)
    draft.announce(Reason.STARTING, "The first driver is being launched")


def restore_is_asked(draft: Draft) -> bool:
    """By a changed restoreNonce; or by a restoreFrom that was not used yet, as long as nothing ever ran."""
    assert draft.spec is not None and draft.status.consumed is not None
    consumed = draft.status.consumed
    if draft.spec.restore_nonce not in (None, consumed.restore):
        return True
    another = consumed.restore_from not in (None, draft.spec.restore_from)
    unused = draft.spec.restore_from is not None and (another or not consumed.restore_from_used)
    return unused and draft.status.last_good_hash is None


def take_asked_restore(draft: Draft) -> RestorePoint:
    assert draft.spec is not None and draft.status.consumed is not None
    draft.status.consumed.restore = draft.spec.restore_nonce
    draft.status.consumed.restore_from_used = True
    draft.status.consumed.restore_from = draft.spec.restore_from
    return RestorePoint(id=_restore_id(draft, "restore"), path=draft.spec.restore_from)


def _restore_id(draft: Draft, purpose: str) -> str:
    """One for each decision to go somewhere else than the latest checkpoint; the same for all that follow
    from it."""
    job = draft.observation.job
    return f"{purpose}-{job.uid[:8]}-{job.generation}"


def _suspend(draft: Draft) -> None:
    if draft.status.phase is JobPhase.SUSPENDED:
        _clear_drivers(draft)  # an operator may have died before it did
    elif draft.status.phase is JobPhase.FINISHED:
        return
    elif driver_can_take_a_savepoint(draft):
        job = draft.observation.job
        name = naming.savepoint_name(f"suspend-{job.generation}", job.uid)
        begin(draft, OperationKind.SUSPEND, OperationStep.STOP, savepoint=name, restore=draft.lineage)
        draft.announce(Reason.SUSPENDING, f"Stopping with savepoint {name}")
    elif any(pod.living for pod in draft.observation.pods_of(naming.DRIVER)):
        begin(draft, OperationKind.SUSPEND, OperationStep.KILL, restore=draft.lineage)
        draft.announce(Reason.SUSPENDING, "The driver cannot take a savepoint now; its latest checkpoint counts")
    else:
        become_suspended(draft, draft.lineage)


def become_suspended(draft: Draft, resume: RestorePoint | None) -> None:
    _clear_drivers(draft)
    draft.keep_way_back(resume)
    draft.forget_driver()
    draft.status.resume = resume
    draft.status.operation = None
    draft.status.failure_reason = None
    draft.status.error = None
    draft.status.phase = JobPhase.SUSPENDED
    from_there = resume is not None and resume.path is not None and not draft.has_completed_since(resume)
    source = resume.path if from_there and resume is not None else "the latest completed checkpoint"
    draft.announce(Reason.SUSPENDED, f"Suspended; it will go on from {source}")


def _clear_drivers(draft: Draft) -> None:
    for pod in draft.observation.pods_of(naming.DRIVER):
        ask_to_go(draft, pod)


def _resume(draft: Draft) -> None:
    if draft.target is None:
        return
    restore, kind = draft.status.resume, OperationKind.UPGRADE
    if draft.accepted and restore_is_asked(draft):
        restore, kind = take_asked_restore(draft), OperationKind.RESTORE
    elif draft.policy.upgrade_mode is UpgradeMode.STATELESS and draft.target != draft.status.last_good_hash:
        restore = _no_state(draft)
    elif takes_change_back(draft):
        restore = own_state_of_last_good(draft)
    draft.announce(Reason.STARTING, "The job is resumed")
    draft.status.resume = None
    if draft.status.last_good_hash in (None, draft.target):
        draft.status.phase = JobPhase.STARTING
        draft.start_afresh(draft.target, restore)
    else:
        start_again(draft, kind, draft.target, restore)


def _no_state(draft: Draft) -> RestorePoint:
    return RestorePoint(id=_restore_id(draft, "stateless"), ignore_state=True)


def restore_of_upgrade(draft: Draft) -> RestorePoint | None:
    if draft.policy.upgrade_mode is UpgradeMode.STATELESS:
        return _no_state(draft)
    return own_state_of_last_good(draft) if takes_change_back(draft) else draft.lineage


def planned_restore(draft: Draft) -> RestorePoint | None:
    """What a changed spec would start from, by the modes as they are now: it is planned against that. None for the
    state of the job that runs, of which the latest checkpoint tells. A spec that was good is good for its own state."""
    if restore_is_asked(draft):
        return RestorePoint(id="plan", path=draft.policy.restore_from)
    without = draft.policy.upgrade_mode is UpgradeMode.STATELESS or takes_change_back(draft)
    return RestorePoint(id="plan", ignore_state=True) if without else None


def _begin_upgrade(draft: Draft) -> None:
    """Planned by a pod of its own while the old driver runs on; with no driver there is nothing to
    protect."""
    assert draft.target is not None
    draft.announce(Reason.UPGRADING, f"The spec has changed; upgrading with mode {draft.policy.upgrade_mode}")
    if _has_driver_to_stop(draft):
        begin(draft, OperationKind.UPGRADE, OperationStep.PLAN, target=draft.target)
    elif restore_is_asked(draft):
        start_again(draft, OperationKind.RESTORE, draft.target, take_asked_restore(draft))
    else:
        start_again(draft, OperationKind.UPGRADE, draft.target, restore_of_upgrade(draft))


def _has_driver_to_stop(draft: Draft) -> bool:
    """What is left of a job that has ended need not be stopped: the next driver waits until it is gone."""
    pod = draft.observation.driver_pod()
    return pod is not None and pod.living and not draft.is_terminal


def start_again(draft: Draft, kind: OperationKind, target: str, restore: RestorePoint | None) -> None:
    """From a job that has no living driver, straight to the new one."""
    begin(draft, kind, OperationStep.START, target=target, restore=restore)
    draft.status.phase = JobPhase.UPGRADING
    draft.status.failure_reason = None
    draft.status.error = None
    draft.start_afresh(target, restore)


def restart_is_asked(draft: Draft) -> bool:
    assert draft.spec is not None and draft.status.consumed is not None
    return draft.spec.restart_nonce not in (None, draft.status.consumed.restart)


def _take_restart_nonce(draft: Draft) -> bool:
    assert draft.spec is not None and draft.status.consumed is not None
    if not restart_is_asked(draft):
        return False
    draft.status.consumed.restart = draft.spec.restart_nonce
    return True


def _begin_restart(draft: Draft) -> None:
    assert draft.running_hash is not None
    draft.announce(Reason.UPGRADING, "Restarting, because restartNonce has changed")
    if _has_driver_to_stop(draft):
        step = OperationStep.STOP if driver_can_take_a_savepoint(draft) else OperationStep.KILL
        begin(draft, OperationKind.RESTART, step, target=draft.running_hash, restore=draft.lineage)
    else:
        start_again(draft, OperationKind.RESTART, draft.running_hash, draft.lineage)


def _begin_restore(draft: Draft) -> None:
    """Planned like an upgrade: a job that runs is not stopped for a savepoint that is not there, or does not fit."""
    assert draft.target is not None
    draft.announce(Reason.UPGRADING, f"Going back to {draft.policy.restore_from}, as restoreFrom says")
    if _has_driver_to_stop(draft):
        begin(draft, OperationKind.RESTORE, OperationStep.PLAN, target=draft.target)
    else:
        start_again(draft, OperationKind.RESTORE, draft.target, take_asked_restore(draft))
