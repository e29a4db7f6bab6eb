"""What to do about one job: a pure function of what was observed, the clock included.

The rules are applied in the order below, which can be read aloud. Each looks at the draft as the rules before
it left it. No rule does anything: the shell records the resulting status first, and then acts.
"""

from collections.abc import Callable

from streamingjob_operator.draft import Decision, Draft
from streamingjob_operator.observation import Observation
from streamingjob_operator.resource import StreamingJobStatus
from streamingjob_operator.rules.acceptance import accept_spec
from streamingjob_operator.rules.bookkeeping import keep_finalizer_as_asked, remember_first_nonces
from streamingjob_operator.rules.conditions import conclude
from streamingjob_operator.rules.deletion import handle_deletion
from streamingjob_operator.rules.driver import watch_driver
from streamingjob_operator.rules.executors import count_executors, report_losses, watch_nodes, watch_slots
from streamingjob_operator.rules.launching import drop_superseded_drivers, launch_intended_driver
from streamingjob_operator.rules.operations import begin_what_is_asked
from streamingjob_operator.rules.progress import watch_first_readiness, watch_progress
from streamingjob_operator.rules.reporting import absorb_report
from streamingjob_operator.rules.savepoints import (
    drop_old_own_savepoints,
    give_up_own_savepoints,
    list_savepoints,
    take_asked_savepoint,
)
from streamingjob_operator.rules.steps import continue_operation, drop_idle_planners
from streamingjob_operator.rules.surroundings import tell_hindrance

RULES: tuple[Callable[[Draft], None], ...] = (
    remember_first_nonces,
    keep_finalizer_as_asked,
    accept_spec,
    watch_driver,
    begin_what_is_asked,
    continue_operation,
    drop_idle_planners,
    launch_intended_driver,
    drop_superseded_drivers,
    report_losses,
    watch_nodes,
    watch_slots,
    take_asked_savepoint,
    give_up_own_savepoints,
    drop_old_own_savepoints,
    watch_progress,
    watch_first_readiness,
    count_executors,
)


SOON_SECONDS = 0.1


def decide(observation: Observation) -> Decision:
    draft = Draft(observation, observation.job.status.model_copy(deep=True))
    absorb_report(draft)
    list_savepoints(draft)
    if not handle_deletion(draft):
        for rule in RULES:
            rule(draft)
    tell_hindrance(draft)
    conclude(draft)
    if _has_moved(observation.job.status, draft.status):
        draft.look_again(SOON_SECONDS)
    return Decision(
        draft.status,
        tuple(draft.actions),
        tuple(draft.announcements),
        tuple(draft.recoveries),
        draft.look_again_in,
    )


def _has_moved(before: StreamingJobStatus, after: StreamingJobStatus) -> bool:
    """Whether a step was taken, after which the next may already be due."""
    moved = before.phase != after.phase or before.operation != after.operation or before.launch != after.launch
    return moved or (before.driver is None) != (after.driver is None)
