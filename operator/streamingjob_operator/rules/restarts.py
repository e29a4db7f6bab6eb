"""A driver is replaced by one of the next generation, within a budget and with a backoff."""

from datetime import datetime, timedelta

from snapshot_engine.wire.spec import BackoffSpec
from streamingjob_operator.draft import Draft
from streamingjob_operator.resource import DriverRecord, Reason, RestartBudget
from streamingjob_operator.rules.rollback import can_roll_back, roll_back

LAUNCH_AGAIN_SECONDS = 10.0
"""Between the launches of two drivers, at least, if the first never got ready and its end costs nothing."""
LONGEST_BACKOFF_SECONDS = 30 * 86400.0
"""Whatever the spec says: its end must be a date that can be written down."""


def restart_driver(draft: Draft, why: str, *, costs: bool) -> None:
    """Record that a successor is to be launched; or, with the budget spent, a rollback or the job's failure.

    What Kubernetes does to a pod (delete, evict, reject, lose its node) costs nothing; what the driver does to itself
    does.
    """
    driver = draft.status.driver
    assert driver is not None, "only a driver that was recorded can be restarted"
    draft.status.error = f"{driver.pod_name} {why}"
    if costs and not _spend(draft):
        _give_up(draft, why)
        return
    wait = _backoff(draft, driver.generation) if costs else _pause(draft, driver)
    draft.status.past_restarts += 1
    not_before = draft.now + timedelta(seconds=wait) if wait else None
    when = f"in {wait:.1f} s" if wait else "at once"
    draft.announce(Reason.DRIVER_LOST, f"{driver.pod_name} {why}; a new driver takes over {when}", warning=True)
    draft.intend_launch(driver.spec_hash, driver.restore, not_before)


def _pause(draft: Draft, driver: DriverRecord) -> float:
    """What ended one that never got ready (a kubelet that rejects it, an eviction) may end the next one as soon."""
    if driver.ready_at is not None:
        return 0.0
    return max(LAUNCH_AGAIN_SECONDS - _seconds(draft.now, driver.launched_at), 0.0)


def _spend(draft: Draft) -> bool:
    """Take one restart from the budget; False if none is left."""
    budget, recovery = draft.status.restart_budget, draft.policy.recovery
    _move_window(budget, draft.now, recovery.window)
    if _counted(budget, draft.now, recovery.window) >= recovery.max_restarts:
        return False
    budget.spent += 1
    budget.last_restart_at = draft.now
    return True


def _move_window(budget: RestartBudget, now: datetime, window: float) -> None:
    """Restarts older than the window no longer count."""
    last, started = budget.last_restart_at, budget.window_started_at or budget.last_restart_at
    if last is None or started is None or _seconds(now, last) > window:
        budget.spent, budget.spent_before, budget.window_started_at = 0, 0, now
    elif _seconds(now, started) >= window:
        budget.spent, budget.spent_before = 0, budget.spent
        budget.window_started_at = started + timedelta(seconds=window)
    else:
        budget.window_started_at = started


def _counted(budget: RestartBudget, now: datetime, window: float) -> float:
    """Restarts within the window that ends now, if those of the window before were spread evenly over it."""
    share = 1 - _seconds(now, budget.window_started_at or now) / window
    return budget.spent + budget.spent_before * max(share, 0.0)


def _seconds(now: datetime, since: datetime) -> float:
    return (now - since).total_seconds()


def _give_up(draft: Draft, why: str) -> None:
    recovery = draft.policy.recovery
    counted = _counted(draft.status.restart_budget, draft.now, recovery.window)
    restarts = (
        f"{counted:.0f} driver restarts within {recovery.window:.0f} s (recovery.maxRestarts: "
        f"{recovery.max_restarts}); the last driver {why}"
    )
    if can_roll_back(draft):
        roll_back(draft, f"was not ready after {restarts}")
    else:
        draft.fail(Reason.RESTARTS_EXHAUSTED, restarts)


def _backoff(draft: Draft, generation: int) -> float:
    """The first restart is at once; then initial, times multiplier each, up to max, with jitter."""
    recovery = draft.policy.recovery
    backoff, restarts = recovery.backoff, round(_counted(draft.status.restart_budget, draft.now, recovery.window))
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
