"""One checkpoint's life, from the trigger to its completion or abort, and what the coordinator asks for.

A checkpoint is Pending while subtasks acknowledge. When all have, it is Completing: from here on the manifest
may have landed, so it cannot be taken back until its outcome is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from snapshot_engine.protocol.critical_path import Timings
from snapshot_engine.protocol.elements import Barrier, Mode, SubtaskId
from snapshot_engine.protocol.transitions import Machine


class CheckpointState(Enum):
    PENDING = "Pending"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    ABORTED = "Aborted"


TRANSITIONS: Mapping[CheckpointState, frozenset[CheckpointState]] = {
    CheckpointState.PENDING: frozenset({CheckpointState.COMPLETING, CheckpointState.ABORTED}),
    # Aborted only when the manifest is known not to have landed.
    CheckpointState.COMPLETING: frozenset({CheckpointState.COMPLETED, CheckpointState.ABORTED}),
    CheckpointState.COMPLETED: frozenset(),
    CheckpointState.ABORTED: frozenset(),
}


@dataclass(frozen=True, slots=True)
class CheckpointConfig:
    """Times in seconds. `interval` None: no periodic checkpoints, only savepoints and the last one."""

    interval: float | None = 10.0
    min_pause: float = 0.0
    timeout: float = 600.0
    max_concurrent: int = 1
    tolerable_failures: int = 0
    mode: Mode = Mode.EXACTLY_ONCE


@dataclass(frozen=True, slots=True)
class Trigger:
    """Tell each of `subtasks` to take its snapshot and emit `barrier`.

    These are the sources that have not finished, and subtasks whose regular inputs have all ended. With
    `stop` a source emits no record after the barrier until it hears that the checkpoint was aborted.
    """

    barrier: Barrier
    subtasks: tuple[SubtaskId, ...]
    savepoint: str | None = None
    stop: bool = False


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write the manifest and make it count; then call `manifest_written`.

    `manifest_failed` may be called only when it is known that the manifest has not landed and never will.
    While that is unknown, read back or try again; a driver that cannot find out exits.
    """

    checkpoint: int
    states: Mapping[SubtaskId, object]
    finished: frozenset[SubtaskId]
    """Those whose state is their final one: at restore they are not run again, and their channels
    have ended.
    """
    triggered_at: float
    savepoint: str | None = None
    stop: bool = False

    @property
    def retained(self) -> bool:
        """Whether `current.json` must name it as the latest: always, but for the savepoint of a running job.

        A stop-with-savepoint commits, so a restart from an older checkpoint would commit the same records
        twice: it has to become the latest like a checkpoint.
        """
        return self.savepoint is None or self.stop


@dataclass(frozen=True, slots=True)
class Completed:
    """The manifest has landed.

    If `commits`: commit what it names, tell every subtask, clean up what older ones kept. Otherwise it is the
    savepoint of a running job: tell only whoever asked for it. If `stop`: commit, then end the job.
    """

    checkpoint: int
    commits: bool
    triggered_at: float
    completed_at: float
    timings: Mapping[SubtaskId, Timings]
    savepoint: str | None = None
    stop: bool = False
    subsumed: tuple[int, ...] = ()
    """Older pending checkpoints that are aborted because of it; each has its own `Abort`."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Tell every subtask that `checkpoint` will never complete, and delete the files of `discard`.

    Only files: prepared transactions stay, since later snapshots of the same lineage list them too.
    """

    checkpoint: int
    reason: str
    discard: Mapping[SubtaskId, object]
    savepoint: str | None = None
    stop: bool = False
    triggered_at: float = 0.0
    failed: bool = False
    """Something was wrong with it; False if a failover or a newer checkpoint took its place."""


@dataclass(frozen=True, slots=True)
class Discard:
    """Delete the files of a snapshot that came too late or from an older attempt; they are in no manifest."""

    checkpoint: int
    subtask: SubtaskId
    state: object


@dataclass(frozen=True, slots=True)
class FailOver:
    """Too many checkpoints in a row have failed: restart the whole job from the latest completed one.

    The coordinator has suspended itself; nothing is triggered until `resume`.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Finished:
    """All subtasks have finished, and a checkpoint with all their final states has completed: the job is
    done.
    """


CoordinatorAction = Trigger | WriteManifest | Completed | Abort | Discard | FailOver | Finished


@dataclass(slots=True)
class Checkpoint:
    """What the coordinator knows of one checkpoint that is not over yet."""

    barrier: Barrier
    waiting: set[SubtaskId]
    savepoint: str | None = None
    stop: bool = False
    states: dict[SubtaskId, object] = field(default_factory=dict)
    finished: set[SubtaskId] = field(default_factory=set)
    timings: dict[SubtaskId, Timings] = field(default_factory=dict)
    machine: Machine[CheckpointState] = field(init=False)

    def __post_init__(self) -> None:
        self.machine = Machine(f"checkpoint {self.number}", TRANSITIONS, CheckpointState.PENDING)

    @property
    def number(self) -> int:
        return self.barrier.checkpoint

    @property
    def state(self) -> CheckpointState:
        return self.machine.state

    @property
    def commits(self) -> bool:
        """Its completion commits, subsumes and cleans; that of a running job's savepoint does none
        of these.
        """
        return self.savepoint is None or self.stop

    def acknowledge(self, subtask: SubtaskId, state: object, timings: Timings) -> None:
        self.waiting.discard(subtask)
        self.states[subtask] = state
        self.timings[subtask] = timings

    def take_final(self, subtask: SubtaskId, state: object) -> None:
        self.waiting.discard(subtask)
        self.states[subtask] = state
        self.finished.add(subtask)
