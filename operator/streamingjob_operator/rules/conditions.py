"""Concludes a decision: the phase, and the conditions that say why."""

from snapshot_engine.wire.spec import JobState
from streamingjob_operator.draft import Draft, Note, fit
from streamingjob_operator.resource import (
    Condition,
    ConditionType,
    JobPhase,
    OperationKind,
    Reason,
)
from streamingjob_operator.rules.driver import LOG_MARK
from streamingjob_operator.rules.operations import restart_is_asked, restore_is_asked

_ORDER = [str(kind) for kind in ConditionType]
_STEADY = (JobPhase.RUNNING, JobPhase.SUSPENDED, JobPhase.FINISHED)
_AT_REST = (*_STEADY, JobPhase.FAILED)
_LASTING = (JobPhase.SUSPENDED, JobPhase.FINISHED, JobPhase.FAILED, JobPhase.DELETING)
_PHASE_REASONS = {
    JobPhase.PENDING: Reason.STARTING,
    JobPhase.STARTING: Reason.STARTING,
    JobPhase.RUNNING: Reason.RUNNING,
    JobPhase.RECOVERING: Reason.RECOVERING,
    JobPhase.UPGRADING: Reason.UPGRADING,
    JobPhase.SUSPENDING: Reason.SUSPENDING,
    JobPhase.SUSPENDED: Reason.SUSPENDED,
    JobPhase.FINISHED: Reason.FINISHED,
    JobPhase.DELETING: Reason.DELETING,
}


def conclude(draft: Draft) -> None:
    draft.status.error = fit(draft.status.error) if draft.status.error else None
    draft.status.phase = _phase(draft)
    draft.status.observed_generation = draft.observation.job.generation
    draft.status.restarts = draft.status.past_restarts + draft.status.region_restarts
    undecided = _undecided(draft)
    if draft.status.phase is JobPhase.FAILED and undecided is None:
        draft.stalled = _failure(draft)
    _set(draft, ConditionType.READY, *_ready(draft, undecided))
    _set(draft, ConditionType.RECONCILING, *_reconciling(draft, undecided))
    _set(draft, ConditionType.STALLED, *_from_note(draft.stalled, Reason.HEALTHY))
    _set(draft, ConditionType.DEGRADED, *_degraded(draft))
    _set(draft, ConditionType.CHECKPOINTS_HEALTHY, *_checkpoints_healthy(draft))
    finished = draft.status.phase is JobPhase.FINISHED
    _set(draft, ConditionType.COMPLETED, finished, Reason.FINISHED if finished else Reason.NOT_FINISHED, "")


def _undecided(draft: Draft) -> Note | None:
    """Said while a changed spec has been seen, and neither refused nor begun with.

    The conditions carry the new generation from the first look on, and whoever waits for them must not take the
    old spec's word for the new one's.
    """
    if draft.status.phase not in _AT_REST or draft.spec is None or draft.stalled is not None:
        return None
    if draft.accepted and not _is_due(draft):
        return None
    return draft.waiting or Note(Reason.UPGRADING, "the changed spec has been seen, and is acted on next")


def _is_due(draft: Draft) -> bool:
    """Whether the accepted spec asks for something that this look could not begin, such as one that ended another
    operation."""
    if draft.policy.state is JobState.SUSPENDED:
        return False
    return draft.target != draft.running_hash or restore_is_asked(draft) or restart_is_asked(draft)


def _failure(draft: Draft) -> Note:
    """That it does not run comes before what is wrong with the spec that it should run."""
    reason = Reason(draft.status.failure_reason or Reason.RESTARTS_EXHAUSTED)
    message = draft.status.error or "the job has failed"
    if draft.stalled is None:
        return Note(reason, message)
    return Note(reason, f"{message.partition(LOG_MARK)[0]}; {draft.stalled.message}")


def _position(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _phase(draft: Draft) -> JobPhase:
    status = draft.status
    if status.phase in _LASTING:
        return status.phase
    if status.operation is not None:
        suspending = status.operation.kind is OperationKind.SUSPEND
        return JobPhase.SUSPENDING if suspending else JobPhase.UPGRADING
    if status.driver is None and status.launch is None:
        return JobPhase.PENDING
    if status.driver is not None and status.driver.ready_at is not None:
        return JobPhase.RUNNING if _all_regions_run(draft) else JobPhase.RECOVERING
    return JobPhase.STARTING if status.last_good_hash is None else JobPhase.RECOVERING


def _all_regions_run(draft: Draft) -> bool:
    running, _, total = (draft.status.regions_ready or "").partition("/")
    return running == total


def _ready(draft: Draft, undecided: Note | None) -> tuple[bool, Reason, str]:
    """Ready is: as the spec asks. A spec that was refused is not, even if the old one runs well."""
    if draft.stalled is not None:
        return False, draft.stalled.reason, draft.stalled.message
    if undecided is not None:
        return False, undecided.reason, undecided.message
    phase = draft.status.phase
    if phase in _STEADY:
        return True, _PHASE_REASONS[phase], _ready_message(draft)
    if draft.waiting is not None:
        return False, draft.waiting.reason, draft.waiting.message
    why = [*(note.message for note in draft.degraded), draft.status.error]
    return False, _PHASE_REASONS[phase], "; ".join(each for each in why if each)


def _ready_message(draft: Draft) -> str:
    if draft.status.phase is JobPhase.RUNNING:
        return f"{draft.status.regions_ready} regions run"
    return ""


def _reconciling(draft: Draft, undecided: Note | None) -> tuple[bool, Reason, str]:
    if undecided is not None:
        return True, undecided.reason, undecided.message
    phase = draft.status.phase
    under_way = draft.stalled is None and phase not in _STEADY and phase is not JobPhase.FAILED
    if not under_way:
        return False, Reason.HEALTHY, ""
    message = draft.waiting.message if draft.waiting is not None else ""
    return True, _PHASE_REASONS[phase], message


def _from_note(note: Note | None, otherwise: Reason) -> tuple[bool, Reason, str]:
    return (True, note.reason, note.message) if note is not None else (False, otherwise, "")


def _degraded(draft: Draft) -> tuple[bool, Reason, str]:
    if not draft.degraded:
        return False, Reason.HEALTHY, ""
    return True, draft.degraded[0].reason, "; ".join(note.message for note in draft.degraded)


def _checkpoints_healthy(draft: Draft) -> tuple[bool | None, Reason, str]:
    if draft.no_progress is not None:
        return False, Reason.NO_PROGRESS, draft.no_progress.message
    if not _takes_checkpoints(draft):
        return None, Reason.CHECKPOINT_PENDING, "no driver is at work that could complete one"
    if draft.status.checkpoint.last_completed_id is None:
        return None, Reason.CHECKPOINT_PENDING, "no checkpoint has been completed yet"
    return True, Reason.CHECKPOINTS_COMPLETE, ""


def _takes_checkpoints(draft: Draft) -> bool:
    """What an earlier driver completed says nothing about now; what a job that has ended completed does."""
    driver, phase = draft.status.driver, draft.status.phase
    if phase is JobPhase.FINISHED:
        return True
    return driver is not None and driver.ready_at is not None and phase is not JobPhase.FAILED


def _set(draft: Draft, kind: ConditionType, value: bool | None, reason: Reason, message: str) -> None:
    status = "Unknown" if value is None else str(value)
    before = draft.status.condition(kind)
    changed = before is None or before.status != status
    condition = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=fit(message),
        last_transition_time=draft.now if changed or before is None else before.last_transition_time,
        observed_generation=draft.observation.job.generation,
    )
    others = [other for other in draft.status.conditions if other.type != kind]
    draft.status.conditions = sorted([*others, condition], key=lambda each: _position(each.type))
