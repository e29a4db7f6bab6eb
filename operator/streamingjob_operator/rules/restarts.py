"""A driver is replaced by one of the next generation, within a budget and with a backoff."""

from datetime import timedelta

from snapshot_engine.wire.spec import BackoffSpec
from streamingjob_operator.draft import Draft
from streamingjob_operator.resource import Reason
from streamingjob_operator.rules.rollback import can_roll_back, roll_back

LONGEST_BACKOFF_SECONDS = 30 * 86400.0
"""Whatever the spec says: its end must be a date that can be written down."""


def restart_driver(draft: Draft, why: str, *, costs: bool) -> None:
    """Record that a successor is to be launched; or, with the budget spent, a rollback or the job's failure.

    What Kubernetes does to a pod (delete, evict, lose its node) costs nothing; what the driver does to itself
    does.
    """
    driver = draft.status.driver
    assert driver is not None, "only a driver that was recorded can be restarted"
    draft.status.error = why
    if costs and not _spend(draft):
        _give_up(draft, why)
        return
    wait = (
        _backoff(draft.policy.recovery.backoff, draft.status.restart_budget.spent, driver.generation) if costs else 0.0
    )
    draft.status.past_restarts += 1
    not_before = draft.now + timedelta(seconds=wait) if wait else None
    when = f"in {wait:.1f} s" if wait else "at once"
    draft.announce(Reason.DRIVER_LOST, f"{driver.pod_name} {why}; a new driver takes over {when}", warning=True)
    draft.intend_launch(driver.spec_hash, driver.restore, not_before)


def _spend(draft: Draft) -> bool:
    """Take one restart from the budget; False if none is left."""
    budget, recovery = draft.status.restart_budget, draft.policy.recovery
    last = budget.last_restart_at
    if last is not None and (draft.now - last).total_seconds() > recovery.window:
        budget.spent = 0
    if budget.spent >= recovery.max_restarts:
        return False
    budget.spent += 1
    budget.last_restart_at = draft.now
    return True


def _give_up(draft: Draft, why: str) -> None:
    recovery = draft.policy.recovery
    restarts = (
        f"{draft.status.restart_budget.spent} driver restarts within {recovery.window:.0f} s (recovery.maxRestarts: "
        f"{recovery.max_restarts}); the last driver {why}"
    )
    if can_roll_back(draft):
        roll_back(draft, f"was not ready after {restarts}")
    else:
        draft.fail(Reason.RESTARTS_EXHAUSTED, restarts)


def _backoff(backoff: BackoffSpec, restarts: int, generation: int) -> float:
    """The first restart is at once; then initial, times multiplier each, up to max, with jitter."""
    if restarts <= 1:
        return 0.0
    wait = min(_grown(backoff, restarts - 2), LONGEST_BACKOFF_SECONDS)
    # Spread by the generation instead of at random: the decision stays a pure function of what was observed.
    spread = ((generation * 2654435761) % 1000) / 500 - 1
    return wait * (1 + backoff.jitter * spread)


def _grown(backoff: BackoffSpec, times: int) -> float:
    try:
        return min(backoff.initial * backoff.multiplier**times, backoff.max)
    except OverflowError:  # the power alone is beyond a float's range
        return backoff.max if backoff.initial else 0.0
