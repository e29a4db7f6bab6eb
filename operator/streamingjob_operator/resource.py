"""The StreamingJob as Kubernetes holds it: the spec of the wire, and the status that the operator writes.

The status is the operator's write-ahead log: an intent is recorded here before anything is done about it, so
that another operator process can go on where this one stopped. The CRD is generated from these classes.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field

from snapshot_engine.wire.model import TolerantModel
from snapshot_engine.wire.spec import StreamingJobSpec
from snapshot_engine.wire.status import RegionStatus, SavepointState

MAX_STATUS_REGIONS = 32
MAX_STATUS_SAVEPOINTS = 20
MAX_MESSAGE_LENGTH = 2000


class _OpenEnum(StrEnum):
    """An enum that takes every value: one that a newer operator wrote is none of the members, and stays as it is."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        unknown = str.__new__(cls, value)
        unknown._name_ = unknown._value_ = value
        return unknown


class JobPhase(_OpenEnum):
    PENDING = "Pending"
    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    UPGRADING = "Upgrading"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"
    FAILED = "Failed"
    DELETING = "Deleting"


class ConditionType(StrEnum):
    READY = "Ready"
    """The job is what the spec asks for: running with all its regions, suspended, or finished."""
    RECONCILING = "Reconciling"
    """The operator is on its way to what the spec asks for (kstatus)."""
    STALLED = "Stalled"
    """It cannot get there without somebody's help (kstatus)."""
    DEGRADED = "Degraded"
    """The job runs, but not as it should."""
    CHECKPOINTS_HEALTHY = "CheckpointsHealthy"
    """Checkpoints complete within the progress window."""
    COMPLETED = "Completed"
    """A bounded job has ended and committed all of its output."""


class Reason(_OpenEnum):
    """Every reason that a condition or an event of a StreamingJob may carry."""

    STARTING = "Starting"
    RUNNING = "Running"
    RECOVERING = "Recovering"
    UPGRADING = "Upgrading"
    SUSPENDING = "Suspending"
    SUSPENDED = "Suspended"
    FINISHED = "Finished"
    DELETING = "Deleting"
    INVALID_SPEC = "InvalidSpec"
    """The spec, or a pod made from its templates, was refused; what ran before goes on."""
    INVALID_PIPELINE = "InvalidPipeline"
    """The pipeline's code could not be imported or planned."""
    UPGRADE_REFUSED = "UpgradeRefused"
    """The changed spec could not be planned; what ran before goes on."""
    ROLLED_BACK = "RolledBack"
    """The changed spec was not ready in time, or failed before it ever was; the last good one runs again."""
    NOT_READY_IN_TIME = "NotReadyInTime"
    """The job was not ready in time, and there is nothing to roll back to."""
    DRIVER_CANNOT_START = "DriverCannotStart"
    """Kubernetes cannot start the driver pod (image, quota, scheduling, missing Secret or volume)."""
    REFUSED_BY_CLUSTER = "RefusedByCluster"
    """The cluster refuses something that the job needs: rights, a policy, a webhook that does not answer, a missing
    service account, a name that is taken. Asked for again until it is given."""
    OPERATOR_ERROR = "OperatorError"
    """Something that the job needs failed in the operator itself, in a way that nobody foresaw; its log has the
    details. Tried again until it works."""
    UNKNOWN_STEP = "UnknownStep"
    """A newer operator has begun an operation that this one does not know how to go on with. The job is looked after
    as it is; run the newer operator again."""
    EXECUTORS_CANNOT_START = "ExecutorsCannotStart"
    """Kubernetes cannot start executor pods, or a quota or an admission rule keeps them from being made, so regions
    wait for slots."""
    TOO_FEW_SLOTS = "TooFewSlots"
    """Regions need more slots than the executors have, although all executor pods are there."""
    DRIVER_LOST = "DriverLost"
    """The driver pod failed, was deleted or evicted; a new one takes over."""
    DRIVER_SILENT = "DriverSilent"
    """The driver does not answer on its control API."""
    EXECUTOR_LOST = "ExecutorLost"
    """An executor pod is gone; the regions that had slots there restart."""
    REGION_RECOVERED = "RegionRecovered"
    NODE_SUSPECT = "NodeSuspect"
    """A node with pods of this job is not ready."""
    NO_PROGRESS = "NoProgress"
    """No checkpoint was completed within the progress window."""
    CHECKPOINTS_COMPLETE = "CheckpointsComplete"
    CHECKPOINT_PENDING = "CheckpointPending"
    """The first checkpoint has not been completed yet, or no driver is at work that could complete one."""
    RESTARTS_EXHAUSTED = "RestartsExhausted"
    """More restarts than recovery.maxRestarts within recovery.window."""
    FOREIGN_STATE = "ForeignState"
    """The storage holds another job's state; restoreFrom says whether to take it."""
    UNREADABLE_STATE = "UnreadableState"
    """The state to restore from is missing or corrupt."""
    SAVEPOINT_REQUESTED = "SavepointRequested"
    SAVEPOINT_COMPLETED = "SavepointCompleted"
    SAVEPOINT_FAILED = "SavepointFailed"
    SAVEPOINT_TIMED_OUT = "SavepointTimedOut"
    """The savepoint took too long; the latest completed checkpoint is used instead, or the job is left
    alone."""
    CLEANUP_FAILED = "CleanupFailed"
    """The checkpoints of a deleted job, or a savepoint that the operator had taken for itself, could not be removed."""
    HEALTHY = "Healthy"
    NOT_FINISHED = "NotFinished"


class Condition(TolerantModel):
    type: str
    status: str
    """True, False or Unknown."""
    reason: str
    message: str = ""
    last_transition_time: AwareDatetime
    observed_generation: int | None = None
    """The spec's generation that this was said of."""


class RestorePoint(TolerantModel):
    """What a lineage of drivers starts from instead of the job's latest completed checkpoint.

    Every driver of the lineage is given the same one. The engine keeps the id of the one it has applied with
    the checkpoints, so that a driver that comes after the lineage's first checkpoint does not go back.
    """

    id: str
    path: str | None = None
    """A savepoint or checkpoint; none with ignoreState."""
    ignore_state: bool = False
    """Start with no state."""


class CompletedCheckpoint(TolerantModel):
    """The last one that a driver of this job is known to have completed itself, rather than started from."""

    line: str
    """Which line of drivers completed it: the id of its restore point."""
    path: str


class LaunchIntent(TolerantModel):
    """A driver to be launched as soon as no other lives and the backoff is over."""

    spec_hash: str
    restore: RestorePoint | None = None
    not_before: AwareDatetime | None = None
    """The backoff's end."""
    since: AwareDatetime


class JobSize(TolerantModel):
    """What a driver was made for."""

    parallelism: int
    executors: int
    """Standby ones as well."""


class DriverRecord(TolerantModel):
    """The driver that the operator has decided on. Recorded before its pod is made."""

    generation: int
    """Grows with every driver; the storage refuses drivers of a lower one."""
    pod_name: str
    pod_uid: str | None = None
    """Empty until the pod is known to exist."""
    spec_hash: str
    """Names the stored spec that this driver runs."""
    restore: RestorePoint | None = None
    """What it starts from; the latest completed checkpoint if not given."""
    expected_checkpoint: str | None = None
    """One that its line has completed: it does not start if the storage holds none at all."""
    launched_at: AwareDatetime
    ready_at: AwareDatetime | None = None
    """When all of its regions first ran."""
    image: str | None = None
    """Image of driver and executors, resolved when the spec was accepted and pinned until it changes."""
    render_version: int | None = None
    """Version of the operator's pod rendering, pinned as well."""
    size: JobSize | None = None
    """Of the spec that it runs, which need not be the live one."""


class OperationKind(_OpenEnum):
    UPGRADE = "Upgrade"
    SUSPEND = "Suspend"
    RESTART = "Restart"
    RESTORE = "Restore"
    ROLLBACK = "Rollback"
    DELETE = "Delete"


class OperationStep(_OpenEnum):
    PLAN = "Plan"
    """The new spec is planned by a pod of its own, while the old driver runs on."""
    WAIT = "Wait"
    """The new spec can be planned, and the old driver cannot take the savepoint that must not be missing."""
    STOP = "Stop"
    """The old driver has been told to stop."""
    KILL = "Kill"
    """The old driver pod is being deleted."""
    START = "Start"
    """The new driver has been launched and is not ready yet."""
    CLEAN = "Clean"
    """A pod removes the checkpoints of a deleted job."""


class Operation(TolerantModel):
    """A change under way. Each step is recorded before it is taken."""

    kind: OperationKind
    step: OperationStep
    started_at: AwareDatetime
    step_started_at: AwareDatetime
    target_hash: str | None = None
    """The stored spec to run afterwards; none for a suspension."""
    savepoint_name: str | None = None
    """The savepoint that the stop takes; none when it stops with a checkpoint, or at once."""
    restore: RestorePoint | None = None
    """What the new driver starts from; the latest completed checkpoint if not given."""


class RestartBudget(TolerantModel):
    """Counts driver restarts within recovery.window, in a size that does not grow with recovery.maxRestarts."""

    spent: int = 0
    """Driver restarts of the present spec since windowStartedAt."""
    spent_before: int = 0
    """Those of the window before; they count for less the older the present one is."""
    window_started_at: AwareDatetime | None = None
    last_restart_at: AwareDatetime | None = None


class ConsumedNonces(TolerantModel):
    """Nonces that have been acted on; those present at creation trigger nothing."""

    restart: int | None = None
    savepoint: int | None = None
    restore: int | None = None
    restore_from_used: bool = False
    restore_from: str | None = None


class CheckpointSummary(TolerantModel):
    last_completed_id: int | None = None
    path: str | None = None
    size_bytes: int | None = None
    full_size_bytes: int | None = None
    duration_seconds: float | None = None
    completed_at: AwareDatetime | None = None
    failed: int = 0
    last_failure: str | None = None


class SavepointTrigger(StrEnum):
    USER = "User"
    UPGRADE = "Upgrade"
    SUSPEND = "Suspend"
    DELETION = "Deletion"

    @classmethod
    def _missing_(cls, value: object) -> "SavepointTrigger | None":
        """What a newer operator has added is kept as carefully as a user's: the operator deletes none of those."""
        return cls.USER if isinstance(value, str) else None


class SavepointRecord(TolerantModel):
    name: str
    trigger: SavepointTrigger
    state: SavepointState = SavepointState.PENDING
    path: str | None = None
    requested_at: AwareDatetime
    completed_at: AwareDatetime | None = None
    error: str | None = None


class ExecutorCounts(TolerantModel):
    ready: int = 0
    desired: int = 0
    short_since: AwareDatetime | None = None
    """Since when fewer executor pods exist than are wanted."""


class StreamingJobStatus(TolerantModel):
    phase: JobPhase = JobPhase.PENDING
    observed_generation: int | None = None
    """The spec's generation that this status was written for."""
    conditions: list[Condition] = Field(default_factory=list)
    driver_generation: int = 0
    """The highest driver generation ever given out."""
    driver: DriverRecord | None = None
    """The driver that runs, or is to run."""
    launch: LaunchIntent | None = None
    """A driver to be launched."""
    operation: Operation | None = None
    """A change under way."""
    regions_ready: str | None = None
    """Running regions of all, such as 3/3."""
    regions: list[RegionStatus] = Field(default_factory=list)
    """At most 32 of them, those in trouble first."""
    checkpoint: CheckpointSummary = Field(default_factory=CheckpointSummary)
    completed: CompletedCheckpoint | None = None
    """The last checkpoint that was completed, and by which line of drivers; tells a lost storage from a first start."""
    savepoints: list[SavepointRecord] = Field(default_factory=list)
    """The latest 20, newest first."""
    executors: ExecutorCounts = Field(default_factory=ExecutorCounts)
    replicas: int = 0
    """Parallelism of the running spec, for the scale subresource."""
    selector: str | None = None
    """Selects this job's executor pods, for the scale subresource."""
    restarts: int = 0
    """Restarts of regions and of the driver."""
    region_restarts: int = 0
    """As the running driver counts them."""
    past_restarts: int = 0
    """Restarts under earlier drivers, and of drivers."""
    restart_budget: RestartBudget = Field(default_factory=RestartBudget)
    consumed: ConsumedNonces | None = None
    """Nonces that have been acted on."""
    last_good_hash: str | None = None
    """The stored spec that was last ready; what a rollback runs."""
    last_good_restore: RestorePoint | None = None
    """What its drivers go on from when a change is rolled back that took no state, or another one."""
    left_good_state: bool = False
    """Whether what was launched since began with no state, or another one."""
    refused_hash: str | None = None
    """A stored spec that will not be tried again until it changes, or the way to it."""
    refusal: str | None = None
    """Why."""
    refusal_reason: str | None = None
    refused_attempt: str | None = None
    """Hash of the fields that say how to get to the refused spec: when one of them changes it is tried again."""
    resume: RestorePoint | None = None
    """What a suspended job goes on from."""
    failure_reason: str | None = None
    """Why the phase is Failed, as a reason."""
    error: Annotated[str, Field(max_length=MAX_MESSAGE_LENGTH)] | None = None
    """For people: what went wrong, with the last log lines of a failed driver."""
    silent_since: AwareDatetime | None = None
    """Since when the driver has not answered."""
    reported_at: AwareDatetime | None = None
    """When the driver's status was last taken over."""

    def condition(self, kind: ConditionType) -> Condition | None:
        return next((condition for condition in self.conditions if condition.type == kind), None)


@dataclass(frozen=True)
class Job:
    """One StreamingJob as read from the API server."""

    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: str
    deleting_since: datetime | None
    finalizers: tuple[str, ...]
    spec: StreamingJobSpec | None
    spec_error: str | None
    """Why the spec cannot be used, when it cannot."""
    raw_spec: dict[str, Any]
    status: StreamingJobStatus
    created_at: datetime

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"
