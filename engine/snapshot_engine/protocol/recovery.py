"""Recovery: from the first word of a failure until everything runs again, as one serial decision.

The order is always the same, whatever fails meanwhile:
1. the failed region's survivors are stopped, and checkpoints are suspended (what is pending is aborted);
2. a checkpoint that is Completing is waited for, since its manifest may have landed;
3. with the latest completed checkpoint and the facts of that moment, the rules say which regions restart;
4. these are stopped, and started again together as new attempts when all of them are down and the wait is
   over;
5. when every region runs, checkpoints are resumed.

A failure during 2 to 5 goes through the same steps again, for its own region; regions that are already down
or are starting and that its rules do not name are left alone. Nothing completes while checkpoints are
suspended, so all restarts of one recovery use the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.failover import RegionChannel, RegionFacts, Strategy, regions_to_restart
from snapshot_engine.protocol.region_run import RegionRun, RegionState
from snapshot_engine.protocol.restarts import GiveUp, RestartBudget


@dataclass(frozen=True, slots=True)
class SuspendCheckpoints:
    """Call `Coordinator.suspend`, then `Recovery.decide` as soon as none is Completing."""

    reason: str


@dataclass(frozen=True, slots=True)
class StopSlots:
    """Tell the slots of this attempt to stop; report each that is gone, or abandon them after a while."""

    region: int
    attempt: Attempt
    reason: str


@dataclass(frozen=True, slots=True)
class StartRegions:
    """Start these attempts from the latest completed checkpoint, all from the same one."""

    attempts: Mapping[int, Attempt]


@dataclass(frozen=True, slots=True)
class ResumeCheckpoints:
    """Everything runs: call `Coordinator.resume`."""


@dataclass(frozen=True, slots=True)
class FailJob:
    """The restart budget is spent: stop everything and show the history."""

    verdict: GiveUp


RecoveryAction = SuspendCheckpoints | StopSlots | StartRegions | ResumeCheckpoints | FailJob

_UP = frozenset({RegionState.RUNNING, RegionState.FINISHED})


class Recovery:
    """One per driver. `runs` are changed only through it once the job has started."""

    def __init__(
        self,
        runs: Mapping[int, RegionRun],
        budget: RestartBudget,
        strategy: Strategy = Strategy.REGION,
        deterministic: Collection[int] = (),
        starts_after: Mapping[int, Collection[int]] | None = None,
    ) -> None:
        """`starts_after` names, for a region with blocking inputs, the regions that must be done before."""
        self.runs = runs
        self.budget = budget
        self._strategy = strategy
        self._deterministic = frozenset(deterministic)
        self._undecided: dict[int, str] = {}  # failed regions the rules have not been asked about yet
        self._groups: list[frozenset[int]] = []  # regions that go down and come up together
        self._starts_after = starts_after or {}
        self._ready: set[int] = set()  # down and due, but for the blocking results they read
        self._not_before: dict[int, float] = {}
        self._suspended = True
        self._over = False

    @property
    def recovering(self) -> bool:
        return self._suspended

    @property
    def undecided(self) -> bool:
        """Whether `decide` has to be called once no checkpoint is Completing."""
        return bool(self._undecided) and not self._over

    @property
    def all_are_back(self) -> bool:
        """Nothing goes down or comes up; what does not run waits for blocking results, and has not been started for
        them. What was kept for restarts is kept no longer: those results may be made of what a log lets through only
        when it forgets.
        """
        if self._undecided or self._groups:
            return False
        return all(run.state in _UP for number, run in self.runs.items() if number not in self._ready)

    def next_wakeup(self) -> float | None:
        """When `tick` has to be called next: a restart is due."""
        waiting = [self._due(group) for group in self._groups if self._is_down(group)]
        return min(waiting, default=None) if not self._over else None

    def start(self, now: float) -> list[RecoveryAction]:
        """The job begins: every region is started, each as soon as the blocking results it reads are
        there.
        """
        self._groups.append(frozenset(self.runs))
        return self._start_due(now)

    def end(self) -> None:
        """The job ends, whatever the way: nothing is started any more."""
        self._over = True

    def failed(self, region: int, attempt: Attempt, cause: str, random: float, now: float) -> list[RecoveryAction]:
        """A slot of `region` failed. Anything but the first word about the current attempt is ignored."""
        if self._over or not self.runs[region].failed(attempt, cause, now):
            return []
        return self._count(region, cause, random, now) or self._begin({region: cause}, cause)

    def failed_globally(self, cause: str, random: float, now: float) -> list[RecoveryAction]:
        """Something that no region can be blamed for: all restart, also those that are about to restart."""
        if self._over:
            return []
        down = [run.region for run in self.runs.values() if run.started]
        for region in down:
            self.runs[region].cancel(cause, now)
        given_up = self._count(None, cause, random, now)
        return given_up or self._begin(dict.fromkeys(down, cause), cause)

    def decide(self, channels: Collection[RegionChannel], now: float) -> list[RecoveryAction]:
        """No checkpoint is Completing. `channels` are the facts as they are now, for the latest completed
        one.

        From here until `all_are_back`, the caller keeps that checkpoint and what the logs hold from it on.
        """
        if not self.undecided:
            return self._start_due(now)
        facts = {
            region: RegionFacts(run.started, region in self._deterministic, len(run.slots))
            for region, run in self.runs.items()
        }
        reasons = "; ".join(dict.fromkeys(self._undecided.values()))
        group = regions_to_restart(self._undecided, facts, channels, self._strategy)
        self._undecided.clear()
        actions = self._take_down(group, f"restarts with what failed: {reasons}", now)
        self._merge(group)
        return actions + self._start_due(now)

    def slot_gone(self, region: int, slot: int, attempt: Attempt, now: float) -> list[RecoveryAction]:
        """The process of a slot has ended."""
        self.runs[region].slot_gone(slot, attempt, now)
        return self._start_due(now)

    def abandon_slots(self, region: int, attempt: Attempt, now: float) -> list[RecoveryAction]:
        """The slots of this attempt do not stop: go on without them, the fence holds them off."""
        if self.runs[region].accepts(attempt):
            self.runs[region].abandon_slots(now)
        return self._start_due(now)

    def tick(self, now: float) -> list[RecoveryAction]:
        return self._start_due(now)

    def slot_registered(self, region: int, slot: int, attempt: Attempt, now: float) -> bool:
        """True with the last slot of the region: its slots can be told where their peers are."""
        return self.runs[region].slot_registered(slot, attempt, now)

    def slot_running(self, region: int, slot: int, attempt: Attempt, now: float) -> list[RecoveryAction]:
        if self.runs[region].slot_running(slot, attempt, now):
            self._begin_quiet_time(region, now)
        return self._resume_if_all_run()

    def slot_finished(self, region: int, slot: int, attempt: Attempt, now: float) -> list[RecoveryAction]:
        """The last subtask of the slot has ended; regions that wait for the whole result may start now."""
        if self.runs[region].slot_finished(slot, attempt, now):
            self._begin_quiet_time(region, now)
        return self._start_due(now) or self._resume_if_all_run()

    def slot_done(self, region: int, slot: int, attempt: Attempt, now: float) -> list[RecoveryAction]:
        """The last subtask of the slot has ended, but the slot stays for the logs that it keeps."""
        self.runs[region].slot_done(slot, attempt)
        return self._start_due(now) or self._resume_if_all_run()

    def _begin_quiet_time(self, region: int, now: float) -> None:
        """What waits for a blocking result is not down."""
        self.budget.running(region, now)
        started = [run for number, run in self.runs.items() if run.started and number not in self._ready]
        if all(run.state in _UP for run in started):
            self.budget.none_is_down(now)

    def _count(self, region: int | None, cause: str, random: float, now: float) -> list[RecoveryAction]:
        """None: the failure of no region in particular. What fails together waits for the longest of them."""
        verdict = self.budget.failed(region, cause, random, now)
        if isinstance(verdict, GiveUp):
            self._over = True
            return [FailJob(verdict)]
        for delayed in self.runs if region is None else (region,):
            self._not_before[delayed] = now + verdict.delay
        return []

    def _begin(self, failed: Mapping[int, str], cause: str) -> list[RecoveryAction]:
        self._undecided.update(failed)
        actions: list[RecoveryAction] = [
            StopSlots(region, self.runs[region].attempt, cause)
            for region in failed
            if self.runs[region].state is RegionState.CANCELLING
        ]
        if not self._suspended:
            self._suspended = True
            actions.append(SuspendCheckpoints(cause))
        return actions

    def _take_down(self, group: Iterable[int], reason: str, now: float) -> list[RecoveryAction]:
        """Stop those of the group that are up; those that are going down already go on doing so."""
        actions: list[RecoveryAction] = []
        for region in sorted(group):
            run = self.runs[region]
            if run.state is not RegionState.CANCELLING and run.cancel(reason, now):
                actions.append(StopSlots(region, run.attempt, reason))
        return actions

    def _merge(self, group: frozenset[int]) -> None:
        """What is named by two decisions comes up together with all of both."""
        self._ready -= group
        apart = [other for other in self._groups if not other & group]
        self._groups = [*apart, group.union(*(other for other in self._groups if other & group))]

    def _is_down(self, group: frozenset[int]) -> bool:
        down = (RegionState.WAITING, RegionState.CREATED)
        return not self._undecided and all(self.runs[region].state in down for region in group)

    def _due(self, group: frozenset[int]) -> float:
        return max((self._not_before.get(region, 0.0) for region in group), default=0.0)

    def _start_due(self, now: float) -> list[RecoveryAction]:
        if self._over or self._undecided:
            return []
        due = [group for group in self._groups if self._is_down(group) and now >= self._due(group)]
        self._groups = [group for group in self._groups if group not in due]
        self._ready.update(*due)
        startable = sorted(region for region in self._ready if self._results_are_there(region))
        self._ready.difference_update(startable)
        if not startable:
            return []
        return [StartRegions({region: self.runs[region].schedule(now) for region in startable})]

    def _results_are_there(self, region: int) -> bool:
        return all(self.runs[producer].done for producer in self._starts_after.get(region, ()))

    def _resume_if_all_run(self) -> list[RecoveryAction]:
        if not self._suspended or self._undecided or self._groups or self._ready or self._over:
            return []
        if any(run.state not in _UP for run in self.runs.values()):
            return []
        self._suspended = False
        return [ResumeCheckpoints()]
