"""Savepoints on demand, and the list of savepoints in the status."""

from snapshot_engine.wire.status import SavepointState, SavepointStatus
from streamingjob_operator import naming
from streamingjob_operator.actions import DropSavepoint, TakeSavepoint
from streamingjob_operator.draft import TERMINAL_PHASES, Draft, fit
from streamingjob_operator.resource import (
    MAX_STATUS_SAVEPOINTS,
    JobPhase,
    OperationKind,
    OperationStep,
    Reason,
    SavepointRecord,
    SavepointTrigger,
)
from streamingjob_operator.rules.operations import driver_can_take_a_savepoint

OWN_SAVEPOINTS_KEPT = 3
_DOES_NOT_RUN = (JobPhase.SUSPENDED, *TERMINAL_PHASES)
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
        name = naming.savepoint_name(f"manual-{nonce}", draft.observation.job.uid)
        _record(draft, name, SavepointTrigger.USER)
        draft.announce(Reason.SAVEPOINT_REQUESTED, f"Savepoint {name} is requested")
    pending = [
        record
        for record in draft.status.savepoints
        if record.state is SavepointState.PENDING and record.trigger is SavepointTrigger.USER
    ]
    if draft.status.phase in _DOES_NOT_RUN:
        for record in pending:
            _give_up(draft, record)
    elif _runs_undisturbed(draft) and driver_can_take_a_savepoint(draft):
        for record in pending:
            if record.name not in draft.observation.savepoints_accepted:
                draft.act(TakeSavepoint(record.name))


def _runs_undisturbed(draft: Draft) -> bool:
    operation = draft.status.operation
    return operation is None or operation.step in (OperationStep.PLAN, OperationStep.WAIT)


def _give_up(draft: Draft, record: SavepointRecord) -> None:
    """Whoever waits for it is told; a job that runs again some day would take it of another state."""
    error = f"the job does not run (phase {draft.status.phase}); change savepointNonce when it does"
    failed = SavepointStatus(name=record.name, state=SavepointState.FAILED, error=error)
    _update(draft, record, failed)


def give_up_own_savepoints(draft: Draft) -> None:
    """Those that no operation waits for any more: it went on without, which was announced then."""
    operation = draft.status.operation
    awaited = operation.savepoint_name if operation is not None else None
    for record in draft.status.savepoints:
        own = record.trigger is not SavepointTrigger.USER and record.name != awaited
        if own and record.state is SavepointState.PENDING:
            record.state = SavepointState.FAILED
            record.error = "given up: it was not there in time, or its driver ended before"


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
    draft.status.savepoints.insert(0, record)
    if len(draft.status.savepoints) > MAX_STATUS_SAVEPOINTS:
        _forget_one(draft)


def _forget_one(draft: Draft) -> None:
    """The oldest of a user's that nobody waits for. An own one is to be deleted some day, and is found by this list."""
    oldest_first = [*reversed(draft.status.savepoints)]
    settled = [r for r in oldest_first if r.trigger is SavepointTrigger.USER and r.state is not SavepointState.PENDING]
    forgotten = (settled or oldest_first)[0]
    draft.status.savepoints.remove(forgotten)
    if forgotten.trigger is not SavepointTrigger.USER and forgotten.path is not None:
        message = f"Savepoint {forgotten.name} is left at {forgotten.path}; delete it by hand"
        draft.announce(Reason.CLEANUP_FAILED, message, warning=True)


def _update(draft: Draft, record: SavepointRecord, reported: SavepointStatus) -> None:
    """Also one that was given up may be completed in the end, by a driver that was left running."""
    if record.state is SavepointState.COMPLETED or reported.state in (record.state, SavepointState.PENDING):
        return
    record.state, record.path = reported.state, reported.path
    record.error = fit(reported.error) if reported.error else None
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
    for record in completed[OWN_SAVEPOINTS_KEPT:]:
        if not _is_in_use(draft, record):
            _drop(draft, record)


def _is_in_use(draft: Draft, record: SavepointRecord) -> bool:
    """A user may have named it in restoreFrom, instead of its path; no two savepoints have the same name."""
    given = draft.lineage.path if draft.lineage is not None else None
    return given is not None and given.rstrip("/") in (record.name, record.path)


def _drop(draft: Draft, record: SavepointRecord) -> None:
    """Listed until it is known to be gone: whatever fails or dies meanwhile, it is asked for again."""
    observation = draft.observation
    if record.name in observation.savepoints_dropped:
        draft.status.savepoints.remove(record)
    elif record.name not in observation.drops_tried:
        draft.act(DropSavepoint(record.name))
    elif (why := observation.drops_tried[record.name]) is not None:
        error = fit(f"it is to be deleted, and cannot be: {why}. It is tried again every minute")
        if record.error is None:
            draft.announce(Reason.CLEANUP_FAILED, f"Savepoint {record.name}: {error}", warning=True)
        record.error = error
