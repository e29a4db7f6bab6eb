"""A deleted StreamingJob. Owner references clean up; only a savepoint or the removal of checkpoints has to be
waited for."""

from snapshot_engine.wire.control import StopMode, StopRequest
from snapshot_engine.wire.spec import DeletionPolicy
from streamingjob_operator import naming
from streamingjob_operator.actions import DeletePod, LaunchCleaner, RemoveFinalizer, StopJob, StoreSpec
from streamingjob_operator.draft import Draft
from streamingjob_operator.observation import PodView
from streamingjob_operator.resource import JobPhase, OperationKind, OperationStep, Reason, SavepointRecord
from streamingjob_operator.rules.driver import FATAL_EXITS, is_cut_off
from streamingjob_operator.rules.launching import ask_to_go
from streamingjob_operator.rules.operations import begin, driver_can_take_a_savepoint, stand_still
from streamingjob_operator.rules.steps import savepoint_failure

ASK_AGAIN_SECONDS = 2.0
CLEANUP_TIMEOUT_SECONDS = 300.0
CLEAN_AGAIN_SECONDS = 10.0
"""Between the making of two cleaner pods, at least."""


def handle_deletion(draft: Draft) -> bool:
    """True when the job is being deleted: no other rule applies then."""
    if draft.observation.job.deleting_since is None:
        return False
    draft.status.phase = JobPhase.DELETING
    if naming.FINALIZER in draft.observation.job.finalizers:
        _continue(draft)
    draft.status.launch = None
    return True


def _continue(draft: Draft) -> None:
    operation = draft.status.operation
    if operation is None or operation.kind is not OperationKind.DELETE:
        _begin(draft)
    match draft.operation.step:
        case OperationStep.STOP:
            _continue_stop(draft)
        case OperationStep.KILL:
            _continue_kill(draft)
        case OperationStep.CLEAN:
            _continue_clean(draft)
        case _:
            stand_still(draft)


def _begin(draft: Draft) -> None:
    target = _hash_to_clean_by(draft)
    under_way = _savepoint_under_way(draft)
    if draft.policy.savepoint_on_deletion and under_way is not None:
        begin(draft, OperationKind.DELETE, OperationStep.STOP, target=target, savepoint=under_way)
        draft.announce(Reason.DELETING, f"Stopping with savepoint {under_way}, and then the job is deleted")
    elif draft.policy.savepoint_on_deletion and driver_can_take_a_savepoint(draft):
        name = naming.savepoint_name("deletion", draft.observation.job.uid)
        begin(draft, OperationKind.DELETE, OperationStep.STOP, target=target, savepoint=name)
        draft.announce(Reason.DELETING, f"Stopping with savepoint {name} before the job is deleted")
    else:
        begin(draft, OperationKind.DELETE, OperationStep.KILL, target=target)


def _savepoint_under_way(draft: Draft) -> str | None:
    """The driver may have been told to stop with it already, and ends with no other."""
    operation = draft.status.operation
    stops = operation is not None and operation.step is OperationStep.STOP
    return operation.savepoint_name if operation is not None and stops else None


def _hash_to_clean_by(draft: Draft) -> str | None:
    """A stored spec that knows where the checkpoints are, which none of them may change; None if no driver ever ran.

    A job that is suspended, or waits for its next driver, has checkpoints as well.
    """
    if draft.status.driver_generation == 0:
        return None
    known = draft.running_hash or draft.status.last_good_hash
    if known is not None or draft.spec is None:
        return known
    present = naming.spec_hash(draft.observation.job.raw_spec)
    draft.act(StoreSpec(present))
    return present


def _continue_stop(draft: Draft) -> None:
    pod = draft.observation.driver_pod()
    if pod is None or pod.ended:
        _after_driver(draft)
    elif savepoint_failure(draft) is not None or is_cut_off(draft, pod):  # what this means is announced, too
        _kill(draft)
    elif draft.has_passed(draft.operation.step_started_at, draft.policy.savepoint_timeout):
        message = f"No savepoint after {draft.policy.savepoint_timeout:.0f} s; the job is deleted without one"
        draft.announce(Reason.SAVEPOINT_TIMED_OUT, message, warning=True)
        _kill(draft)
    elif not draft.observation.stop_accepted:
        draft.act(StopJob(StopRequest(mode=StopMode.SAVEPOINT, name=draft.operation.savepoint_name)))
        draft.look_again(ASK_AGAIN_SECONDS)


def _kill(draft: Draft) -> None:
    draft.move_to_step(OperationStep.KILL)
    _continue_kill(draft)


def _continue_kill(draft: Draft) -> None:
    living = [pod for pod in draft.observation.pods_of(naming.DRIVER) if pod.living]
    for pod in living:
        ask_to_go(draft, pod)
    if not living:
        _after_driver(draft)


def _after_driver(draft: Draft) -> None:
    if _checkpoints_are_all_there_is(draft):
        message = f"No savepoint was taken before the job was deleted; its checkpoints are left in {_where(draft)}"
        draft.announce(Reason.SAVEPOINT_FAILED, message, warning=True)
        draft.act(RemoveFinalizer())
    elif draft.policy.deletion_policy is DeletionPolicy.DELETE and draft.operation.target_hash is not None:
        draft.move_to_step(OperationStep.CLEAN)
        _continue_clean(draft)
    else:
        draft.act(RemoveFinalizer())


def _checkpoints_are_all_there_is(draft: Draft) -> bool:
    """Of a state that a savepoint was to keep: then they stay, whatever the policy says."""
    if not draft.policy.savepoint_on_deletion or not _has_state(draft):
        return False
    return not any(_keeps_the_state(draft, record) for record in draft.status.savepoints)


def _has_state(draft: Draft) -> bool:
    pod = draft.observation.driver_pod()
    last_word = pod.exit.report if pod is not None and pod.exit is not None else None
    completed_at_its_end = last_word is not None and last_word.last_completed_checkpoint is not None
    return completed_at_its_end or draft.status.checkpoint.last_completed_id is not None


def _keeps_the_state(draft: Draft, record: SavepointRecord) -> bool:
    """The deletion's own savepoint; or one that no checkpoint has overtaken, such as a suspension's."""
    if record.path is None:
        return False
    if record.name == draft.operation.savepoint_name:
        return True
    latest = draft.status.checkpoint.completed_at
    return latest is not None and record.completed_at is not None and record.completed_at >= latest


def _continue_clean(draft: Draft) -> None:
    pod = next(iter(draft.observation.pods_of(naming.CLEANER)), None)
    if pod is not None and pod.phase == "Succeeded":
        draft.act(RemoveFinalizer())
    elif _clean_up_has_failed(draft, pod):
        _leave_state_behind(draft, pod)
    elif pod is None:
        draft.act(LaunchCleaner(draft.operation.target_hash or ""))
        draft.look_again(ASK_AGAIN_SECONDS)
    elif pod.ended and draft.has_passed(pod.created_at, CLEAN_AGAIN_SECONDS):
        draft.act(DeletePod(pod.name, pod.uid))
        draft.look_again(ASK_AGAIN_SECONDS)


def _clean_up_has_failed(draft: Draft, pod: PodView | None) -> bool:
    """Any other end than its own no (eviction, no memory, storage that did not answer) is worth another try."""
    has_said_no = pod is not None and pod.exit is not None and pod.exit.code in FATAL_EXITS
    return has_said_no or draft.has_passed(draft.operation.step_started_at, CLEANUP_TIMEOUT_SECONDS)


def _leave_state_behind(draft: Draft, pod: PodView | None) -> None:
    """A job that cannot be cleaned up must still be deletable."""
    draft.announce(
        Reason.CLEANUP_FAILED,
        f"The checkpoints in {_where(draft)} could not be removed; remove them by hand",
        warning=True,
    )
    if pod is not None:
        draft.act(DeletePod(pod.name, pod.uid))
    draft.act(RemoveFinalizer())


def _where(draft: Draft) -> str:
    return draft.status.checkpoint.path or "checkpoint.storage"
