"""How long to wait before a restart, and when to stop restarting.

The first restart is made at once; later ones wait 1 s, 1.5 s, 2.25 s … up to a minute, each with some jitter.
A region that has run undisturbed for the quiet time gets its whole budget back, and so does the job.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class RestartConfig:
    """Times in seconds. A budget is the number of restarts without a quiet time between them; None:
    no limit.
    """

    first_delay: float = 1.0  # of the second restart; the first one is made at once
    max_delay: float = 60.0
    factor: float = 1.5
    jitter: float = 0.1  # a delay is varied by at most this share of it
    per_region: int | None = 10
    per_job: int | None = 30
    quiet_time: float = 600.0

    def for_regions(self, count: int) -> RestartConfig:
        """A lost machine may take all regions with it: the job's budget is at least what they have together."""
        if self.per_job is None or self.per_region is None:
            return self
        return replace(self, per_job=max(self.per_job, count * self.per_region))


@dataclass(frozen=True, slots=True)
class Failure:
    """One entry of the history that a job which gives up tells its user."""

    at: float
    region: int | None
    cause: str


@dataclass(frozen=True, slots=True)
class RestartAfter:
    """Restart, `delay` seconds from now."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The budget is spent: fail the job and show the history."""

    reason: str
    history: tuple[Failure, ...]


@dataclass(slots=True)
class _Account:
    """The restarts of a region or of the job since its last quiet time."""

    limit: int | None
    used: int = 0
    running_since: float | None = None
    """Since when nothing has failed; None while it is down."""

    def give_back(self, now: float, quiet_time: float) -> None:
        if self.running_since is not None and now - self.running_since >= quiet_time:
            self.used = 0

    def spend(self) -> bool:
        self.running_since = None
        self.used += 1
        return self.limit is None or self.used <= self.limit


@dataclass(slots=True)
class RestartBudget:
    """Ask `failed` once for each failure that leads to a restart; tell `running` when the region
    runs again, and `none_is_down` when that holds for all.
    """

    config: RestartConfig = field(default_factory=RestartConfig)
    history: list[Failure] = field(default_factory=list)
    _regions: dict[int, _Account] = field(default_factory=dict)
    _job: _Account = field(init=False)

    HISTORY = 50  # what a user can still read

    def __post_init__(self) -> None:
        self._job = _Account(self.config.per_job, running_since=None)

    def used(self, region: int) -> int:
        return self._account(region).used

    def failed(self, region: int | None, cause: str, random: float, now: float) -> RestartAfter | GiveUp:
        """`region` has failed by itself (not because another one took it along); None: the job as a whole.

        `random` is from [0, 1).
        """
        self.history.append(Failure(now, region, cause))
        del self.history[: -self.HISTORY]
        accounts = [self._job] if region is None else [self._account(region), self._job]
        for account in accounts:
            account.give_back(now, self.config.quiet_time)
        spent = [account for account in accounts if not account.spend()]
        if spent:
            who = "the job" if spent[0] is self._job else f"region {region}"
            return self._give_up(f"{who} has used up its {spent[0].limit} restarts")
        return RestartAfter(self._delay(accounts[0].used, random))

    def running(self, region: int, now: float) -> None:
        """`region` runs again: its quiet time begins. The job's does not: another may still be down."""
        self._account(region).running_since = now

    def none_is_down(self, now: float) -> None:
        """Every region that was started runs or has finished: the job's quiet time begins, unless it has begun."""
        if self._job.running_since is None:
            self._job.running_since = now

    def _account(self, region: int) -> _Account:
        return self._regions.setdefault(region, _Account(self.config.per_region))

    def _delay(self, restart: int, random: float) -> float:
        if restart <= 1:
            return 0.0
        return self._grown(restart - 2) * (1.0 + self.config.jitter * (2.0 * random - 1.0))

    def _grown(self, times: int) -> float:
        try:
            return min(self.config.first_delay * self.config.factor**times, self.config.max_delay)
        except OverflowError:  # the power alone is beyond a float's range
            return self.config.max_delay if self.config.first_delay else 0.0

    def _give_up(self, what: str) -> GiveUp:
        quiet = f"without {self.config.quiet_time:g} s of quiet between them"
        return GiveUp(f"{what} {quiet}; the last cause: {self.history[-1].cause}", tuple(self.history))
