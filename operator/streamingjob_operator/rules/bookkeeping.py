"""What is settled before anything else: nonces that were there at creation, and the finalizer where one is
needed."""

from snapshot_engine.wire.spec import DeletionPolicy
from streamingjob_operator import naming
from streamingjob_operator.actions import AddFinalizer, RemoveFinalizer
from streamingjob_operator.draft import Draft
from streamingjob_operator.resource import ConsumedNonces


def remember_first_nonces(draft: Draft) -> None:
    """A nonce that is present at creation triggers nothing: it is left in Git by whoever used it last."""
    if draft.status.consumed is None and draft.spec is not None:
        draft.status.consumed = ConsumedNonces(
            restart=draft.spec.restart_nonce,
            savepoint=draft.spec.savepoint_nonce,
            restore=draft.spec.restore_nonce,
        )


def keep_finalizer_as_asked(draft: Draft) -> None:
    if draft.spec is None:
        return
    wanted = draft.spec.savepoint_on_deletion or draft.spec.deletion_policy is DeletionPolicy.DELETE
    present = naming.FINALIZER in draft.observation.job.finalizers
    if wanted and not present:
        draft.act(AddFinalizer())
    if present and not wanted:
        draft.act(RemoveFinalizer())
