"""Back to the last good spec when a changed one does not get ready. The spec itself is never written."""

from streamingjob_operator.draft import Draft
from streamingjob_operator.resource import Operation, OperationKind, OperationStep, Reason
from streamingjob_operator.rules.acceptance import refuse


def can_roll_back(draft: Draft) -> bool:
    operation, last_good = draft.status.operation, draft.status.last_good_hash
    if operation is None or last_good is None or not draft.policy.rollback:
        return False
    starting_changed_spec = operation.kind is OperationKind.UPGRADE and operation.step is OperationStep.START
    return starting_changed_spec and last_good != operation.target_hash


def roll_back(draft: Draft, why: str) -> None:
    failed = draft.operation
    assert failed.target_hash is not None, "an upgrade has a target"
    message = f"the changed spec {why}; the last good spec runs again"
    refuse(draft, failed.target_hash, Reason.ROLLED_BACK, message)
    # A stateless start is not repeated: the old job's latest checkpoint is still there.
    restore = None if failed.restore is not None and failed.restore.ignore_state else failed.restore
    draft.status.operation = Operation(
        kind=OperationKind.ROLLBACK,
        step=OperationStep.KILL,
        started_at=draft.now,
        step_started_at=draft.now,
        target_hash=draft.status.last_good_hash,
        restore=restore,
    )
