"""Savepoints on demand, and the list of savepoints in the status."""

from snapshot_engine.wire.status import SavepointState, SavepointStatus
from streamingjob_operator.actions import DropSavepoint, TakeSavepoint
from streamingjob_operator.draft import Draft
from streamingjob_operator.resource import (
    MAX_STATUS_SAVEPOINTS,
    OperationKind,
    Reason,
    SavepointRecord,
    SavepointTrigger,
)
from streamingjob_operator.rules.operations import driver_can_take_a_savepoint

OWN_SAVEPOINTS_KEPT = 3
_TRIGGERS = {
    OperationKind.UPGRADE: SavepointTrigger.UPGRADE,
    OperationKind.SUSPEND: SavepointTrigger.SUSPEND,
    OperationKind.DELETE: SavepointTrigger.DELETION,
}


def take_asked_savepoint(draft: Draft) -> None:
    """The name comes from the nonce, so that a repeated request is the same request."""
    if draft.spec is None or draft.status.consumed is None:
        return
    nonce = draft.spec.savepoint_nonce
    if nonce is not None and nonce != draft.status.consumed.savepoint:
        draft.status.consumed.savepoint = nonce
        _record(draft, f"manual-{nonce}", SavepointTrigger.USER)
        draft.announce(Reason.SAVEPOINT_REQUESTED, f"Savepoint manual-{nonce} is requested")
    if draft.status.operation is not None or not driver_can_take_a_savepoint(draft):
        return
    for record in draft.status.savepoints:
        pending = record.state is SavepointState.PENDING and record.trigger is SavepointTrigger.USER
        if pending and record.name not in draft.observation.savepoints_accepted:
            draft.act(TakeSavepoint(record.name))


def list_savepoints(draft: Draft) -> None:
    operation = draft.status.operation
    if operation is not None and operation.savepoint_name is not None:
        _record(draft, operation.savepoint_name, _TRIGGERS.get(operation.kind, SavepointTrigger.UPGRADE))
    report = draft.observation.report
    if report is not None:
        reported = {savepoint.name: savepoint for savepoint in report.status.savepoints}
        for record in draft.status.savepoints:
            if record.name in reported:
                _update(draft, record, reported[record.name])
    _take_over_final_savepoint(draft)


def _record(draft: Draft, name: str, trigger: SavepointTrigger) -> None:
    if any(record.name == name for record in draft.status.savepoints):
        return
    record = SavepointRecord(name=name, trigger=trigger, requested_at=draft.now)
    draft.status.savepoints = [record, *draft.status.savepoints][:MAX_STATUS_SAVEPOINTS]


def _update(draft: Draft, record: SavepointRecord, reported: SavepointStatus) -> None:
    if record.state is not SavepointState.PENDING:
        return
    record.state, record.path, record.error = reported.state, reported.path, reported.error
    record.completed_at = reported.completed_at
    if reported.state is SavepointState.COMPLETED:
        draft.announce(Reason.SAVEPOINT_COMPLETED, f"Savepoint {record.name} is at {record.path}")
    elif reported.state is SavepointState.FAILED:
        draft.announce(Reason.SAVEPOINT_FAILED, f"Savepoint {record.name}: {record.error}", warning=True)


def _take_over_final_savepoint(draft: Draft) -> None:
    """The driver that stops with a savepoint may be gone before anybody asked it again; its last word
    counts."""
    pod, operation = draft.observation.driver_pod(), draft.status.operation
    if pod is None or pod.exit is None or pod.exit.report is None or operation is None:
        return
    path = pod.exit.report.savepoint_path
    for record in draft.status.savepoints:
        if record.name == operation.savepoint_name and path is not None:
            done = SavepointState.COMPLETED
            _update(
                draft,
                record,
                SavepointStatus(name=record.name, state=done, path=path, completed_at=draft.now),
            )


def drop_old_own_savepoints(draft: Draft) -> None:
    """Those that the operator took for a purpose of its own; a user's are never deleted."""
    if not driver_can_take_a_savepoint(draft) or draft.status.operation is not None:
        return
    own = [record for record in draft.status.savepoints if record.trigger is not SavepointTrigger.USER]
    completed = [record for record in own if record.path is not None]
    in_use = draft.lineage.path if draft.lineage is not None else None
    for record in completed[OWN_SAVEPOINTS_KEPT:]:
        if record.path != in_use:
            draft.act(DropSavepoint(record.name))
            draft.status.savepoints.remove(record)
