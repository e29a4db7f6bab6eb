"""What the JobMaster reports about a running job, and what it leaves behind when it exits.

Every type tolerates unknown fields and unknown enum values, so that operator and driver may be one release
apart. Times are timestamps, never ages; lists are bounded by the sender.
"""

from enum import IntEnum, StrEnum
from typing import Annotated, Self

from pydantic import AwareDatetime, Field

from snapshot_engine.wire.model import TolerantModel

STATUS_VERSION = 1
MAX_HISTORY_ENTRIES = 100
MAX_REPORTED_SAVEPOINTS = 20


class _TolerantEnum(StrEnum):
    """An enum with a member UNKNOWN, which stands for every value a newer release may add."""

    @classmethod
    def _missing_(cls, _value: object) -> Self:
        return cls("Unknown")


class Phase(_TolerantEnum):
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class RegionState(_TolerantEnum):
    WAITING = "Waiting"
    SCHEDULING = "Scheduling"
    RESTORING = "Restoring"
    RUNNING = "Running"
    STOPPING = "Stopping"
    FINISHED = "Finished"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class CheckpointOutcome(_TolerantEnum):
    COMPLETED = "Completed"
    ABORTED = "Aborted"
    UNKNOWN = "Unknown"


class SavepointState(_TolerantEnum):
    PENDING = "Pending"
    COMPLETED = "Completed"
    FAILED = "Failed"
    UNKNOWN = "Unknown"


class RegionFailure(TolerantModel):
    at: AwareDatetime
    cause: str
    """One word for metrics and events, such as SlotLost, UserError, PodLost, HeartbeatTimeout."""
    message: str = ""
    """For people; the user's own frames of a traceback, shortened by the sender."""


class RegionStatus(TolerantModel):
    id: str
    vertices: list[str] = Field(default_factory=list)
    state: RegionState = RegionState.UNKNOWN
    attempt: int = 0
    restarts: int = 0
    last_restored_checkpoint: int | None = None
    last_failure: RegionFailure | None = None
    running_since: AwareDatetime | None = None
    """When the current attempt began to process; with last_failure.at it tells how long a recovery took."""


class PathStep(TolerantModel):
    """One subtask on a checkpoint's critical path, with its four times in seconds."""

    subtask: str
    start_delay: float = 0.0
    alignment: float = 0.0
    sync: float = 0.0
    async_: Annotated[float, Field(alias="async")] = 0.0


class SlowestStep(TolerantModel):
    """The step of a checkpoint's critical path that added most to it, and which of its times that was."""

    subtask: str
    vertex: str
    part: str
    """start_delay, alignment, sync or async."""
    seconds: float
    """All that the step added."""


class CheckpointEntry(TolerantModel):
    """One checkpoint of the history, newest first in a list."""

    id: int
    outcome: CheckpointOutcome
    triggered_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    duration_seconds: float | None = None
    size_bytes: int | None = None
    full_size_bytes: int | None = None
    path: str | None = None
    reason: str | None = None
    """Why it was aborted."""
    critical_path: list[PathStep] = Field(default_factory=list)
    slowest: SlowestStep | None = None


class CheckpointProgress(TolerantModel):
    """A checkpoint that is under way."""

    id: int
    triggered_at: AwareDatetime
    acknowledged: int = 0
    subtasks: int = 0


class CheckpointStatus(TolerantModel):
    last_completed_id: int | None = None
    path: str | None = None
    size_bytes: int | None = None
    full_size_bytes: int | None = None
    duration_seconds: float | None = None
    completed_at: AwareDatetime | None = None
    completed: int = 0
    failed: int = 0
    consecutive_failures: int = 0
    last_failure: str | None = None
    in_progress: list[int] = Field(default_factory=list)
    under_way: list[CheckpointProgress] = Field(default_factory=list)
    history: list[CheckpointEntry] = Field(default_factory=list)


class SavepointStatus(TolerantModel):
    name: str
    state: SavepointState
    path: str | None = None
    checkpoint_id: int | None = None
    requested_at: AwareDatetime | None = None
    completed_at: AwareDatetime | None = None
    error: str | None = None


class RestartEntry(TolerantModel):
    """One restart of one region, newest first in a list."""

    region: str
    cause: str
    message: str = ""
    failed_at: AwareDatetime
    attempt: int = 0
    """The attempt that took over."""
    checkpoint_id: int | None = None
    """What it was restored from."""
    phases: dict[str, float] = Field(default_factory=dict)
    """Seconds, in the order in which they passed: detect, cancel, wait, schedule, restore, first_output."""
    seconds: float | None = None
    """From the last word of the slot that failed until rows left the region again; None if it has not come to that."""


class VertexStatus(TolerantModel):
    """What passes through a vertex, over all its subtasks."""

    name: str
    parallelism: int = 0
    records_in: int = 0
    records_out: int = 0
    records_in_per_second: float = 0.0
    records_out_per_second: float = 0.0
    busy: float = 0.0
    """Share of the time, as the following two; 1 is all subtasks all the time."""
    backpressured: float = 0.0
    idle: float = 0.0
    state_keys: int = 0
    state_bytes: int = 0
    watermark: AwareDatetime | None = None
    source_lag: int | None = None
    """Records that wait to be read."""
    late_rows: int = 0
    """Too late for all that wants rows in time: dropped, or sent to a late output."""


class ExecutorStatus(TolerantModel):
    """An executor that the JobMaster counts on. Without a live pod of this executor id it is lost."""

    executor_id: str
    pod_name: str | None = None
    pod_uid: str | None = None
    host: str | None = None
    regions: list[str] = Field(default_factory=list)
    slots: int = 0
    standby: bool = False


class SlotStatus(TolerantModel):
    total: int = 0
    used: int = 0
    needed: int = 0
    """More needed than total means that regions wait for executors."""


class SlotPlace(TolerantModel):
    """The process in which a slot of a region runs now."""

    region: str
    slot: int
    attempt: int = 0
    executor_id: str
    pod_name: str | None = None
    host: str | None = None
    pid: int
    """As the executor's machine or container numbers it."""


class JobStatus(TolerantModel):
    version: int = STATUS_VERSION
    name: str
    namespace: str = "default"
    uid: str | None = None
    generation: int = 0
    """The driver's generation, which fences older drivers."""
    application_id: str | None = None
    """Spark's id of this driver's application; part of what names an executor."""
    phase: Phase = Phase.UNKNOWN
    started_at: AwareDatetime | None = None
    regions: list[RegionStatus] = Field(default_factory=list)
    checkpoint: CheckpointStatus = Field(default_factory=CheckpointStatus)
    savepoints: list[SavepointStatus] = Field(default_factory=list)
    executors: list[ExecutorStatus] = Field(default_factory=list)
    slots: SlotStatus = Field(default_factory=SlotStatus)
    slot_places: list[SlotPlace] = Field(default_factory=list)
    restarts: int = 0
    restart_history: list[RestartEntry] = Field(default_factory=list)
    vertices: list[VertexStatus] = Field(default_factory=list)
    error: str | None = None


class ExitCode(IntEnum):
    """The driver process's exit code. Any other code is a crash, which a new driver answers.

    Codes from 64 on, so that they are not taken for a shell's, Python's or a signal's.
    """

    FINISHED = 0
    """A bounded job ended, or the job was stopped as asked; the termination report says which."""
    RESTARTS_EXHAUSTED = 64
    """The restart budget is spent: a new driver would not help."""
    INVALID_PIPELINE = 65
    """The pipeline's code could not be imported or planned."""
    FOREIGN_STATE = 66
    """The storage holds another job's state, or state that this job may not take."""
    FENCED = 67
    """A driver of a higher generation owns the storage."""
    UNREADABLE_STATE = 68
    """The state to restore from is missing or corrupt, and no other may be taken without consent."""


TERMINATION_MESSAGE_PATH = "/dev/termination-log"
MAX_TERMINATION_MESSAGE_BYTES = 4096


class TerminationReport(TolerantModel):
    """What a driver writes to its termination message as its last act; Kubernetes keeps it with the pod."""

    version: int = STATUS_VERSION
    generation: int = 0
    phase: Phase
    last_completed_checkpoint: int | None = None
    checkpoint_path: str | None = None
    savepoint_path: str | None = None
    restarts: int = 0
    error: str | None = None
