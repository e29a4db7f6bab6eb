"""Begins what the spec asks for: first start, upgrade, suspension, resumption, restart, restore."""

from snapshot_engine.wire.spec import JobState, UpgradeMode
from snapshot_engine.wire.status import Phase
from streamingjob_operator.actions import DeletePod
from streamingjob_operator.draft import Draft
from streamingjob_operator.resource import (
    JobPhase,
    Operation,
    OperationKind,
    OperationStep,
    Reason,
    RestorePoint,
)

_CAN_TAKE_A_SAVEPOINT = (Phase.RUNNING, Phase.RECOVERING)


def begin_what_is_asked(draft: Draft) -> None:
    if draft.status.operation is not None or draft.spec is None:
        return
    if draft.spec.state is JobState.SUSPENDED:
        _suspend(draft)
    elif draft.status.phase is JobPhase.SUSPENDED:
        _resume(draft)
    elif draft.running_hash is None:
        _start_first(draft)
    elif _take_restore_nonce(draft):
        _begin_restore(draft)
    elif draft.target is not None and draft.target != draft.running_hash:
        _begin_upgrade(draft)
    elif _take_restart_nonce(draft):
        _begin_restart(draft)


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


def _start_first(draft: Draft) -> None:
    if draft.target is None or draft.is_terminal:
        return
    draft.intend_launch(draft.target, _asked_restore(draft) if _may_use_restore_from(draft) else None)
    draft.announce(Reason.STARTING, "The first driver is being launched")


def _may_use_restore_from(draft: Draft) -> bool:
    assert draft.spec is not None and draft.status.consumed is not None
    unused = draft.spec.restore_from is not None and not draft.status.consumed.restore_from_used
    draft.status.consumed.restore_from_used = draft.status.consumed.restore_from_used or unused
    return unused


def _asked_restore(draft: Draft) -> RestorePoint:
    assert draft.spec is not None
    return RestorePoint(id=_restore_id(draft, "restore"), path=draft.spec.restore_from)


def _restore_id(draft: Draft, purpose: str) -> str:
    """One for each decision to go somewhere else than the latest checkpoint; the same for all that follow
    from it."""
    job = draft.observation.job
    return f"{purpose}-{job.uid[:8]}-{job.generation}"


def _suspend(draft: Draft) -> None:
    if draft.status.phase in (JobPhase.SUSPENDED, JobPhase.FINISHED):
        return
    if driver_can_take_a_savepoint(draft):
        name = f"suspend-{draft.observation.job.generation}"
        begin(draft, OperationKind.SUSPEND, OperationStep.STOP, savepoint=name)
        draft.announce(Reason.SUSPENDING, f"Stopping with savepoint {name}")
    elif _driver_pod_lives(draft):
        begin(draft, OperationKind.SUSPEND, OperationStep.KILL, restore=draft.lineage)
        draft.announce(Reason.SUSPENDING, "The driver cannot take a savepoint now; its latest checkpoint counts")
    else:
        become_suspended(draft, draft.lineage)


def become_suspended(draft: Draft, resume: RestorePoint | None) -> None:
    pod = draft.observation.driver_pod()
    if pod is not None:
        draft.act(DeletePod(pod.name, pod.uid))
    draft.forget_driver()
    draft.status.resume = resume
    draft.status.operation = None
    draft.status.failure_reason = None
    draft.status.phase = JobPhase.SUSPENDED
    source = resume.path if resume is not None and resume.path else "the latest completed checkpoint"
    draft.announce(Reason.SUSPENDED, f"Suspended; it will go on from {source}")


def _driver_pod_lives(draft: Draft) -> bool:
    pod = draft.observation.driver_pod()
    return pod is not None and pod.living


def _resume(draft: Draft) -> None:
    if draft.target is None:
        return
    restore = draft.status.resume
    if _take_restore_nonce(draft):
        restore = _asked_restore(draft)
    elif draft.policy.upgrade_mode is UpgradeMode.STATELESS and draft.target != draft.status.last_good_hash:
        restore = RestorePoint(id=_restore_id(draft, "stateless"), ignore_state=True)
    draft.status.phase = JobPhase.STARTING
    draft.status.resume = None
    draft.intend_launch(draft.target, restore)
    draft.announce(Reason.STARTING, "The job is resumed")


def _begin_upgrade(draft: Draft) -> None:
    """Planned by a pod of its own while the old driver runs on; with no driver there is nothing to
    protect."""
    assert draft.target is not None
    stateless = draft.policy.upgrade_mode is UpgradeMode.STATELESS
    restore = RestorePoint(id=_restore_id(draft, "stateless"), ignore_state=True) if stateless else draft.lineage
    draft.announce(Reason.UPGRADING, f"The spec has changed; upgrading with mode {draft.policy.upgrade_mode}")
    if _driver_pod_lives(draft) and not draft.is_terminal:
        begin(draft, OperationKind.UPGRADE, OperationStep.PLAN, target=draft.target, restore=restore)
    else:
        start_again(draft, OperationKind.UPGRADE, draft.target, restore)


def start_again(draft: Draft, kind: OperationKind, target: str, restore: RestorePoint | None) -> None:
    """From a job that has no living driver, straight to the new one."""
    begin(draft, kind, OperationStep.START, target=target, restore=restore)
    draft.status.phase = JobPhase.UPGRADING
    draft.status.failure_reason = None
    draft.status.error = None
    draft.status.restart_budget.spent = 0
    draft.intend_launch(target, restore)


def _take_restart_nonce(draft: Draft) -> bool:
    assert draft.spec is not None and draft.status.consumed is not None
    if draft.spec.restart_nonce in (None, draft.status.consumed.restart):
        return False
    draft.status.consumed.restart = draft.spec.restart_nonce
    return True


def _begin_restart(draft: Draft) -> None:
    assert draft.running_hash is not None
    draft.announce(Reason.UPGRADING, "Restarting, because restartNonce has changed")
    if _driver_pod_lives(draft):
        step = OperationStep.STOP if driver_can_take_a_savepoint(draft) else OperationStep.KILL
        begin(draft, OperationKind.RESTART, step, target=draft.running_hash, restore=draft.lineage)
    else:
        start_again(draft, OperationKind.RESTART, draft.running_hash, draft.lineage)


def _take_restore_nonce(draft: Draft) -> bool:
    assert draft.spec is not None and draft.status.consumed is not None
    if draft.spec.restore_nonce in (None, draft.status.consumed.restore):
        return False
    draft.status.consumed.restore = draft.spec.restore_nonce
    draft.status.consumed.restore_from_used = True
    return True


def _begin_restore(draft: Draft) -> None:
    assert draft.spec is not None
    target = draft.target or draft.running_hash
    assert target is not None, "something runs, so it has a hash"
    restore = _asked_restore(draft)
    draft.announce(Reason.UPGRADING, f"Going back to {restore.path}, because restoreNonce has changed")
    if _driver_pod_lives(draft):
        begin(draft, OperationKind.RESTORE, OperationStep.KILL, target=target, restore=restore)
    else:
        start_again(draft, OperationKind.RESTORE, target, restore)
