"""A job that completes no checkpoint does not make progress, however well its pods look."""

from datetime import datetime

from snapshot_engine.wire.spec import NoProgressPolicy
from streamingjob_operator.actions import DeletePod
from streamingjob_operator.draft import Draft, Note
from streamingjob_operator.resource import ConditionType, Reason
from streamingjob_operator.rules.restarts import restart_driver


def watch_progress(draft: Draft) -> None:
    driver = draft.status.driver
    if driver is None or driver.ready_at is None or draft.is_terminal or draft.status.operation is not None:
        return
    if draft.observation.report is None or draft.observation.silent_since is not None:
        return  # nobody knows what it has completed meanwhile
    since = _last_progress(draft, driver.ready_at)
    window = draft.policy.progress_window
    if not draft.has_passed(since, window):
        return
    message = f"no checkpoint was completed for more than {window:.0f} s (since {since:%d %b %H:%M:%S} UTC)"
    if draft.status.checkpoint.last_failure:
        message += f"; the last one failed: {draft.status.checkpoint.last_failure}"
    draft.no_progress = Note(Reason.NO_PROGRESS, message)
    _announce_once(draft, message)
    pod = draft.observation.driver_pod()
    if draft.policy.recovery.on_no_progress is NoProgressPolicy.RESTART and pod is not None:
        draft.act(DeletePod(pod.name, pod.uid))
        restart_driver(draft, f"made no progress: {message}", costs=True)


def _last_progress(draft: Draft, ready_at: datetime) -> datetime:
    completed = draft.status.checkpoint.completed_at
    return max(completed, ready_at) if completed is not None else ready_at


def _announce_once(draft: Draft, message: str) -> None:
    before = draft.status.condition(ConditionType.CHECKPOINTS_HEALTHY)
    if before is None or before.reason != Reason.NO_PROGRESS:
        draft.announce(Reason.NO_PROGRESS, message[0].upper() + message[1:], warning=True)


def watch_first_readiness(draft: Draft) -> None:
    """A driver of a spec that is not being changed has nothing to roll back to: it is left trying, and said to be
    late."""
    driver = draft.status.driver
    if driver is None or driver.ready_at is not None:
        return
    if draft.is_terminal or draft.status.operation is not None:
        return
    if draft.has_passed(driver.launched_at, draft.policy.ready_timeout):
        why = f": {draft.waiting.message}" if draft.waiting is not None else ""
        message = f"not ready after {draft.policy.ready_timeout:.0f} s{why}"
        draft.stalled = Note(Reason.NOT_READY_IN_TIME, message)
