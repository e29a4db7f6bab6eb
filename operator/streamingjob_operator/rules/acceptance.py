"""Whether the spec as it is now may run at all. What is refused leaves the running job as it is."""

from streamingjob_operator import naming
from streamingjob_operator.actions import DryRunPods, StoreSpec
from streamingjob_operator.draft import Draft, Note, fit
from streamingjob_operator.resource import Reason


def accept_spec(draft: Draft) -> None:
    """Sets the draft's target: the live spec if it is acceptable, else what runs already."""
    draft.target = draft.running_hash
    if draft.spec is None:
        draft.stalled = Note(Reason.INVALID_SPEC, draft.observation.job.spec_error or "the spec cannot be read")
        return
    wanted = naming.spec_hash(draft.observation.job.raw_spec)
    if wanted == draft.status.refused_hash:
        _answer_refused_before(draft, wanted)
        return
    _forget_refusal(draft)
    operation = draft.status.operation
    accepted_before = operation is not None and operation.target_hash == wanted
    if accepted_before or wanted == draft.running_hash:
        _accept(draft, wanted)
    else:
        _check_pods(draft, wanted)


def _answer_refused_before(draft: Draft, wanted: str) -> None:
    if draft.status.refused_attempt not in (None, naming.attempt_hash(draft.observation.job.raw_spec)):
        _forget_refusal(draft)
        _ask_about_pods(draft, wanted)  # once more: what was in the way may be gone
        return
    reason = Reason(draft.status.refusal_reason or Reason.UPGRADE_REFUSED)
    draft.stalled = Note(reason, draft.status.refusal or "refused before")
    if draft.target is None and reason is not Reason.INVALID_SPEC:
        # Refused while the last good one ran; after a suspension that one goes on. Invalid pods may have been
        # refused while nothing ran, and then nothing is what goes on.
        draft.target = draft.status.last_good_hash


def _accept(draft: Draft, wanted: str) -> None:
    draft.target = wanted
    draft.accepted = True


def _check_pods(draft: Draft, wanted: str) -> None:
    if wanted not in draft.observation.dry_runs:
        _ask_about_pods(draft, wanted)
        return
    problem = draft.observation.dry_runs[wanted]
    if problem is None:
        _accept(draft, wanted)
    else:
        refuse(draft, wanted, Reason.INVALID_SPEC, problem)


def _ask_about_pods(draft: Draft, wanted: str) -> None:
    draft.act(StoreSpec(wanted))
    draft.act(DryRunPods(wanted))
    reason = Reason.STARTING if draft.status.driver_generation == 0 else Reason.UPGRADING
    draft.waiting = Note(reason, "the API server is being asked whether it takes the job's pods")


def refuse(draft: Draft, spec_hash: str, reason: Reason, message: str) -> None:
    """Remember that this spec is not to be tried again in this way; a changed spec is another one."""
    draft.status.refused_hash = spec_hash
    draft.status.refused_attempt = naming.attempt_hash(draft.observation.job.raw_spec)
    draft.status.refusal_reason = reason
    draft.status.refusal = fit(message)
    draft.stalled = Note(reason, message)
    draft.announce(reason, message, warning=True)


def _forget_refusal(draft: Draft) -> None:
    draft.status.refused_hash = None
    draft.status.refused_attempt = None
    draft.status.refusal = None
    draft.status.refusal_reason = None
