"""Back to the last good spec when a changed one fails before it was ever ready. The spec itself is never written."""

from snapshot_engine.wire.control import FIRST_LINE
from streamingjob_operator.draft import Draft
from streamingjob_operator.resource import Operation, OperationKind, OperationStep, Reason, RestorePoint
from streamingjob_operator.rules.acceptance import refuse


def can_roll_back(draft: Draft) -> bool:
    operation, last_good = draft.status.operation, draft.status.last_good_hash
    if operation is None or last_good is None or not draft.policy.rollback:
        return False
    return operation.step is OperationStep.START and operation.target_hash != last_good


def roll_back(draft: Draft, why: str) -> None:
    failed = draft.operation
    assert failed.target_hash is not None, "what is being started has a hash"
    message = f"the changed spec {why}; the last good spec runs again"
    refuse(draft, failed.target_hash, Reason.ROLLED_BACK, message)
    draft.status.launch = None  # or another of its drivers would be launched before the last good one's
    draft.status.operation = Operation(
        kind=OperationKind.ROLLBACK,
        step=OperationStep.KILL,
        started_at=draft.now,
        step_started_at=draft.now,
        target_hash=draft.status.last_good_hash,
        restore=_restore_of_last_good(draft, failed),
    )


def _restore_of_last_good(draft: Draft, failed: Operation) -> RestorePoint | None:
    """From where the old job stopped. No state, or another one, was asked for with the new spec only."""
    stateless = failed.restore is not None and failed.restore.ignore_state
    if not (stateless or failed.kind is OperationKind.RESTORE or draft.status.left_good_state):
        return failed.restore
    return own_state_of_last_good(draft)


def takes_change_back(draft: Draft) -> bool:
    """Whether a user wants the last good spec again after one with another state, or none, that never was ready."""
    return draft.status.left_good_state and draft.target == draft.status.last_good_hash


def own_state_of_last_good(draft: Draft) -> RestorePoint:
    """The storage knows where it ended, by the name of what it had begun with, also if others have completed
    checkpoints since."""
    return draft.status.last_good_restore or RestorePoint(id=FIRST_LINE)
