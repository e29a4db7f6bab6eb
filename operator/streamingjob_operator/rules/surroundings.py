"""What the cluster refuses, or the operator cannot do, is said. It is nobody's failure and costs nothing; the shell
tries again, with a backoff."""

from streamingjob_operator import naming
from streamingjob_operator.draft import Draft, Note


def tell_hindrance(draft: Draft) -> None:
    hindrance = draft.observation.hindrance
    if hindrance is None:
        return
    note = Note(hindrance.reason, f"{hindrance.message}. It is tried again until it works")
    draft.waiting = note
    draft.degraded.append(note)
    if _runs_something_else(draft):
        draft.stalled = draft.stalled or note


def _runs_something_else(draft: Draft) -> bool:
    """Than what the spec asks for: then the job is not ready, however well it runs."""
    wanted = naming.spec_hash(draft.observation.job.raw_spec)
    return draft.running_hash is not None and draft.target not in (None, wanted)
