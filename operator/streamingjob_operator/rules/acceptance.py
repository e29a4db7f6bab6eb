"""Whether the spec as it is now may run at all. What is refused leaves the running job as it is."""

from streamingjob_operator import naming
from streamingjob_operator.actions import DryRunPods, StoreSpec
from streamingjob_operator.draft import Draft, Note
from streamingjob_operator.resource import Reason


def accept_spec(draft: Draft) -> None:
    """Sets the draft's target: the live spec if it is acceptable, else what runs already."""
    running = draft.running_hash
    draft.target = running
    if draft.spec is None:
        draft.stalled = Note(Reason.INVALID_SPEC, draft.observation.job.spec_error or "the spec cannot be read")
        return
    wanted = naming.spec_hash(draft.observation.job.raw_spec)
    if wanted == draft.status.refused_hash:
        reason = Reason(draft.status.refusal_reason or Reason.UPGRADE_REFUSED)
        draft.stalled = Note(reason, draft.status.refusal or "refused before")
        return
    _forget_refusal(draft)
    operation = draft.status.operation
    if operation is not None and operation.target_hash == wanted:
        draft.target = wanted  # accepted when the operation began
        return
    if wanted == running:
        return
    _check_pods(draft, wanted)


def _check_pods(draft: Draft, wanted: str) -> None:
    if wanted not in draft.observation.dry_runs:
        draft.act(StoreSpec(wanted))
        draft.act(DryRunPods(wanted))
        draft.waiting = Note(Reason.STARTING, "the API server is being asked whether it takes the job's pods")
        return
    problem = draft.observation.dry_runs[wanted]
    if problem is None:
        draft.target = wanted
    else:
        refuse(draft, wanted, Reason.INVALID_SPEC, problem)


def refuse(draft: Draft, spec_hash: str, reason: Reason, message: str) -> None:
    """Remember that this spec is not to be tried again; a changed spec is another one."""
    draft.status.refused_hash = spec_hash
    draft.status.refusal_reason = reason
    draft.status.refusal = message
    draft.stalled = Note(reason, message)
    draft.announce(reason, message, warning=True)


def _forget_refusal(draft: Draft) -> None:
    draft.status.refused_hash = None
    draft.status.refusal = None
    draft.status.refusal_reason = None
