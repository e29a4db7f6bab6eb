"""A decision while it is being made: the status to be, the actions, the announcements."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from snapshot_engine.wire.control import FIRST_LINE
from snapshot_engine.wire.spec import DeletionPolicy, PipelineSpec, StreamingJobSpec
from snapshot_engine.wire.status import RegionState
from streamingjob_operator.actions import Action, Announcement
from streamingjob_operator.observation import Observation
from streamingjob_operator.resource import (
    MAX_MESSAGE_LENGTH,
    CompletedCheckpoint,
    JobPhase,
    LaunchIntent,
    Operation,
    OperationKind,
    OperationStep,
    Reason,
    RestartBudget,
    RestorePoint,
    StreamingJobStatus,
)

# Timeouts and limits while the live spec cannot be read: a running job still has to be looked after.
_DEFAULT_POLICY = StreamingJobSpec(pipeline=PipelineSpec(source="pass"))

LONGEST_WAIT_SECONDS = 86400.0
"""A timer that is set for longer is set again then."""
TERMINAL_PHASES = (JobPhase.FINISHED, JobPhase.FAILED)


def fit(text: str) -> str:
    """As much as the API server takes, which counts bytes: it would refuse the whole status otherwise."""
    return text.encode()[:MAX_MESSAGE_LENGTH].decode(errors="ignore")


def _policy_of_invalid(raw_spec: Mapping[str, Any]) -> StreamingJobSpec:
    deletes = raw_spec.get("deletionPolicy") == DeletionPolicy.DELETE
    wishes = {
        "deletion_policy": DeletionPolicy.DELETE if deletes else DeletionPolicy.RETAIN,
        "savepoint_on_deletion": raw_spec.get("savepointOnDeletion") is True,
    }
    return _DEFAULT_POLICY.model_copy(update=wishes)


def line_of(restore: RestorePoint | None) -> str:
    """What the storage calls the line of drivers that begins with it."""
    return restore.id if restore is not None else FIRST_LINE


@dataclass(frozen=True)
class Note:
    """Something that a condition should say."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Decision:
    status: StreamingJobStatus
    actions: tuple[Action, ...]
    announcements: tuple[Announcement, ...]
    recoveries: tuple[float, ...]
    """Seconds that each region which runs again was away."""
    look_again_in: float | None
    """Seconds until the clock alone may change the decision; None if only an event can."""


@dataclass
class Draft:
    observation: Observation
    status: StreamingJobStatus
    target: str | None = None
    """Hash of the spec that should run: an accepted one, or else what runs already."""
    accepted: bool = False
    """Whether the target is the live spec. If not, its nonces must not touch what runs."""
    actions: list[Action] = field(default_factory=list)
    announcements: list[Announcement] = field(default_factory=list)
    look_again_in: float | None = None
    recoveries: list[float] = field(default_factory=list)
    degraded: list[Note] = field(default_factory=list)
    waiting: Note | None = None
    """Why the job is not ready although nothing is wrong with the operator's plan."""
    stalled: Note | None = None
    no_progress: Note | None = None

    @property
    def now(self) -> datetime:
        return self.observation.now

    @property
    def spec(self) -> StreamingJobSpec | None:
        return self.observation.job.spec

    @property
    def policy(self) -> StreamingJobSpec:
        """The live spec for timeouts and limits; defaults while it is invalid, but for what its deletion leaves."""
        return self.spec or _policy_of_invalid(self.observation.job.raw_spec)

    @property
    def running_hash(self) -> str | None:
        """The stored spec that runs, or is to be launched."""
        if self.status.driver is not None:
            return self.status.driver.spec_hash
        return self.status.launch.spec_hash if self.status.launch is not None else None

    @property
    def lineage(self) -> RestorePoint | None:
        """What the present line of drivers started from; their successors must be given the same."""
        current = self.status.driver or self.status.launch
        return current.restore if current is not None else self.status.resume

    @property
    def is_terminal(self) -> bool:
        return self.status.phase in TERMINAL_PHASES

    def act(self, action: Action) -> None:
        if action not in self.actions:
            self.actions.append(action)

    def announce(self, reason: Reason, message: str, *, warning: bool = False) -> None:
        self.announcements.append(Announcement(reason, message, warning))

    def look_again(self, seconds: float) -> None:
        """Ask for another look when the clock may change the decision; the earliest request counts."""
        seconds = min(max(seconds, 0.1), LONGEST_WAIT_SECONDS)
        self.look_again_in = seconds if self.look_again_in is None else min(self.look_again_in, seconds)

    def look_again_at(self, moment: datetime) -> None:
        self.look_again((moment - self.now).total_seconds())

    def has_passed(self, since: datetime, seconds: float) -> bool:
        """Whether so many seconds have passed; if not, a look is asked for when they have."""
        left = seconds - (self.now - since).total_seconds()  # a deadline may lie beyond what a datetime can hold
        if left <= 0:
            return True
        self.look_again(left)
        return False

    def move_to_step(self, step: OperationStep) -> None:
        operation = self.operation
        operation.step = step
        operation.step_started_at = self.now

    @property
    def operation(self) -> Operation:
        assert self.status.operation is not None, "only called while an operation is under way"
        return self.status.operation

    def note_completed(self, path: str | None) -> None:
        """The present driver has completed this checkpoint; None if it has only started from one, or from nothing."""
        if path is not None:
            self.status.completed = CompletedCheckpoint(line=line_of(self.lineage), path=path)

    def has_completed_since(self, restore: RestorePoint) -> bool:
        """Whether drivers that began from there have gone on to checkpoints of their own."""
        return self.status.completed is not None and self.status.completed.line == line_of(restore)

    def start_afresh(self, spec_hash: str, restore: RestorePoint | None) -> None:
        """Record the launch of a line of drivers with a budget of its own; it is the restart that was asked for."""
        self.status.restart_budget = RestartBudget()
        proven = spec_hash == self.status.last_good_hash
        leaves = self.status.left_good_state or self._leaves_good_state(restore)
        self.status.left_good_state = leaves and not proven
        if self.accepted and spec_hash == self.target and self.spec is not None and self.status.consumed is not None:
            self.status.consumed.restart = self.spec.restart_nonce
        self.intend_launch(spec_hash, restore)

    def _leaves_good_state(self, restore: RestorePoint | None) -> bool:
        """Whether a spec that is still to prove itself is given another state than the last good one's, or none."""
        operation = self.status.operation
        goes_back = operation is not None and operation.kind is OperationKind.RESTORE
        if restore == self.status.last_good_restore:
            return False  # one that began without state itself
        return goes_back or (restore is not None and restore.ignore_state)

    def intend_launch(self, spec_hash: str, restore: RestorePoint | None, not_before: datetime | None = None) -> None:
        """Record that a driver is to be launched; the one before is history."""
        self._close_driver()
        self.status.launch = LaunchIntent(spec_hash=spec_hash, restore=restore, not_before=not_before, since=self.now)

    def _close_driver(self) -> None:
        self.status.past_restarts += self.status.region_restarts
        self.status.region_restarts = 0
        self.status.driver = None
        self.status.silent_since = None
        self._mark_regions(RegionState.WAITING)

    def _mark_regions(self, state: RegionState) -> None:
        """Their driver is gone. What else is known of them stays: somebody may look for the last failure."""
        self.status.regions = [region.model_copy(update={"state": state}) for region in self.status.regions]
        if self.status.regions_ready is not None:
            self.status.regions_ready = f"0/{self.status.regions_ready.partition('/')[2]}"

    def forget_driver(self) -> None:
        self._close_driver()
        self.status.launch = None

    def keep_way_back(self, restore: RestorePoint | None) -> None:
        """The drivers of what runs have stopped, and would go on from here: also after a rollback, if it is good."""
        if self.running_hash == self.status.last_good_hash:
            self.status.last_good_restore = restore

    def finish(self) -> None:
        """A bounded job has come to its end, so its spec is as good as one that was seen to run."""
        self.status.phase = JobPhase.FINISHED
        self.status.operation = None
        self.status.error = None
        self.status.last_good_hash = self.running_hash
        self.status.last_good_restore = self.lineage
        self.status.left_good_state = False
        self.announce(Reason.FINISHED, "The job has ended and committed all of its output")

    def fail(self, reason: Reason, message: str) -> None:
        """The job has failed for good: nothing restarts it but a changed spec or a nonce."""
        self.status.phase = JobPhase.FAILED
        self.status.failure_reason = reason
        self.status.error = fit(message)
        self.status.operation = None
        self.status.launch = None
        self._mark_regions(RegionState.FAILED)
        self.announce(reason, message, warning=True)
