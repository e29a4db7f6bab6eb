"""Launches the driver that was intended, once no other lives and the backoff is over."""

from streamingjob_operator import naming
from streamingjob_operator.actions import DeletePod, LaunchDriver
from streamingjob_operator.draft import Draft, Note, line_of
from streamingjob_operator.observation import PodView
from streamingjob_operator.resource import DriverRecord, Reason, RestorePoint

# Longer than the driver's termination grace period. After that it is fenced by its generation rather than
# waited for.
PATIENCE_WITH_DELETION_SECONDS = 40.0


def launch_intended_driver(draft: Draft) -> None:
    intent = draft.status.launch
    if intent is None or draft.is_terminal:
        return
    if intent.not_before is not None and draft.now < intent.not_before:
        why = f"{draft.status.error}; " if draft.status.error else ""
        when = f"the next driver starts at {intent.not_before:%H:%M:%S} UTC (backoff)"
        draft.waiting = Note(Reason.RECOVERING, why + when)
        draft.look_again_at(intent.not_before)
        return
    if _clear_old_drivers(draft):
        draft.waiting = Note(Reason.RECOVERING, "the old driver pod is not gone yet")
        draft.look_again(1.0)
        return
    _record_and_launch(draft)


def _record_and_launch(draft: Draft) -> None:
    intent = draft.status.launch
    assert intent is not None
    draft.status.driver_generation += 1
    generation = draft.status.driver_generation
    draft.status.driver = DriverRecord(
        generation=generation,
        pod_name=naming.driver_pod_name(draft.observation.job.name, generation),
        spec_hash=intent.spec_hash,
        restore=intent.restore,
        expected_checkpoint=_expected_checkpoint(draft, intent.restore),
        launched_at=draft.now,
    )
    draft.status.launch = None
    draft.act(LaunchDriver(draft.status.driver))


def _expected_checkpoint(draft: Draft, restore: RestorePoint | None) -> str | None:
    """None where nobody knows of one: such a driver may find nothing, and starts with no state."""
    completed = draft.status.completed
    return completed.path if completed is not None and completed.line == line_of(restore) else None


def _clear_old_drivers(draft: Draft) -> bool:
    """Delete what is left of earlier drivers; True while one of them may still run and can be waited for."""
    old = draft.observation.pods_of(naming.DRIVER)
    for pod in old:
        ask_to_go(draft, pod)
    return any(pod.living for pod in old)


def drop_superseded_drivers(draft: Draft) -> None:
    """A pod that comes late, such as one whose making seemed to have failed, is fenced, and only takes up room."""
    for pod in draft.observation.pods_of(naming.DRIVER):
        if pod.generation is not None and pod.generation < draft.status.driver_generation:
            ask_to_go(draft, pod)


def ask_to_go(draft: Draft, pod: PodView) -> None:
    node = draft.observation.node_of(pod)
    if node is not None and node.unreachable:
        draft.act(DeletePod(pod.name, pod.uid, force=True))
    elif pod.deleting_since is None:
        draft.act(DeletePod(pod.name, pod.uid))
    elif draft.has_passed(pod.deleting_since, PATIENCE_WITH_DELETION_SECONDS):
        draft.act(DeletePod(pod.name, pod.uid, force=True))
