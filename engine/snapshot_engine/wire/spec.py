"""The StreamingJob: what a user writes, the same on Kubernetes and on an embedded Spark.

The CRD and its reference page are generated from these classes, so the docstring under each field is what
users read. Changes to v1alpha1 are additive only.
"""

import re
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, JsonValue, ValidationInfo, field_validator, model_validator

from snapshot_engine.wire.control import DRIVER_CONTAINER_NAME, EXECUTOR_CONTAINER_NAME
from snapshot_engine.wire.model import StrictModel, TolerantModel
from snapshot_engine.wire.pod_template import find_ignored, find_misshapen
from snapshot_engine.wire.quantities import ByteSize, Duration, PositiveDuration, was_accepted_before
from snapshot_engine.wire.spark_conf import why_refused

GROUP = "streamingjob.dev"
VERSION = "v1alpha1"
API_VERSION: Literal["streamingjob.dev/v1alpha1"] = "streamingjob.dev/v1alpha1"
KIND: Literal["StreamingJob"] = "StreamingJob"
PLURAL = "streamingjobs"

# 63 characters of a label value, less the longest suffix the operator adds to a job's name.
MAX_NAME_LENGTH = 45
# A Service's name (DNS-1035) must begin with a letter, and the driver's service is named after the job.
NAME_PATTERN = r"^[a-z]([-a-z0-9]*[a-z0-9])?$"
PROGRESS_TOLD_WITHIN_SECONDS = 20.0
"""The operator lets a driver hold mere progress back for 15 s, and then has to hear and see it."""
ENTRYPOINT_PATTERN = r"^[A-Za-z0-9_./-]+:[A-Za-z_][A-Za-z0-9_]*$"
FUNCTION_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"

# Where a PersistentVolumeClaim with checkpoints is mounted in driver and executors.
CHECKPOINT_MOUNT = "/var/lib/streamingjob/checkpoints"
# Schemes of the uris of storage that every machine can reach.
OBJECT_STORES = ("s3", "s3a", "gs", "az", "abfs", "abfss")

MIB = 2**20
GIB = 2**30

# As the API server judges a pod's mounts; here it can be told before the storage cannot be changed any more.
OUTSIDE_OF_VOLUME_PATTERN = r"^/|(^|/)[.][.](/|$)"
OUTSIDE_OF_VOLUME = "must be a directory inside the volume, such as jobs/orders: no leading '/', and no '..' in it"

MIN_HEARTBEAT_TIMEOUT = 1.0
# MiB. Spark refuses a heap that shows as less than 450 MiB, which one of 512 does not.
MIN_EXECUTOR_HEAP = 512
MIN_MEMORY_OF_SLOTS = 384
MIN_EXECUTOR_MEMORY = MIN_EXECUTOR_HEAP + MIN_MEMORY_OF_SLOTS
TOO_LITTLE_EXECUTOR_MEMORY = (
    f"must be at least {MIN_EXECUTOR_MEMORY}Mi: it is the memory of the whole pod, of which the JVM needs "
    f"{MIN_EXECUTOR_HEAP}Mi and the slots {MIN_MEMORY_OF_SLOTS}Mi"
)
# MiB. The heap is the smallest that Spark takes; the JVM's own needs and the JobMaster's process are the rest.
MIN_DRIVER_HEAP = 512
MIN_MEMORY_OF_JOBMASTER = 384
MIN_DRIVER_MEMORY = MIN_DRIVER_HEAP + MIN_MEMORY_OF_JOBMASTER
TOO_LITTLE_DRIVER_MEMORY = (
    f"must be at least {MIN_DRIVER_MEMORY}Mi: it is the memory of the whole pod, of which the JVM needs "
    f"{MIN_DRIVER_HEAP}Mi and the JobMaster {MIN_MEMORY_OF_JOBMASTER}Mi"
)


def _merged_into(container: str) -> AfterValidator:
    """A pod template can be merged into the pod whose engine runs in `container`."""

    def check(template: dict[str, JsonValue], info: ValidationInfo) -> dict[str, JsonValue]:
        problems = find_misshapen(template)
        if not problems and not was_accepted_before(info):
            problems = find_ignored(template, container)
        if problems:
            raise ValueError("; ".join(problems))
        return template

    return AfterValidator(check)


ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
Nonce = Annotated[int, Field(ge=0, le=2**53)]
PodTemplate = dict[str, JsonValue]


class ImagePullPolicy(StrEnum):
    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class JobState(StrEnum):
    RUNNING = "Running"
    SUSPENDED = "Suspended"


class CheckpointMode(StrEnum):
    EXACTLY_ONCE = "ExactlyOnce"
    AT_LEAST_ONCE = "AtLeastOnce"


class StateBackend(StrEnum):
    MEMORY = "memory"
    FILESYSTEM = "filesystem"
    ROCKSDB = "rocksdb"


class RecoveryStrategy(StrEnum):
    REGION = "Region"
    ALL = "All"
    INDIVIDUAL = "Individual"


class NoProgressPolicy(StrEnum):
    REPORT = "Report"
    RESTART = "Restart"


class UpgradeMode(StrEnum):
    SAVEPOINT = "Savepoint"
    LAST_STATE = "LastState"
    STATELESS = "Stateless"


class SavepointFallback(StrEnum):
    LAST_STATE = "LastState"
    KEEP_RUNNING = "KeepRunning"


class DeletionPolicy(StrEnum):
    RETAIN = "Retain"
    DELETE = "Delete"


class ConfigMapKey(StrictModel):
    name: ObjectName
    """Name of a ConfigMap in the job's namespace. Read when a driver starts: give changed code another name."""
    key: ObjectName = "pipeline.py"
    """The key in it that holds the Python source."""


class PipelineSpec(StrictModel):
    """Where the pipeline's code is: exactly one of entrypoint, source and configMap."""

    entrypoint: Annotated[str, Field(max_length=512, pattern=ENTRYPOINT_PATTERN)] | None = None
    """`module:function` in the image, or for an embedded run also `file.py:function`, relative to the
    manifest."""
    path: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """A directory to import the entrypoint's module from; relative to the manifest in an embedded run."""
    source: Annotated[str, Field(min_length=1, max_length=262144)] | None = None
    """Python source, inline, for jobs that need no image of their own."""
    config_map: ConfigMapKey | None = None
    """A ConfigMap key that holds the Python source."""
    function: Annotated[str, Field(max_length=256, pattern=FUNCTION_PATTERN)] = "pipeline"
    """The function to call in `source` or `configMap`."""
    args: dict[str, JsonValue] = Field(default_factory=dict)
    """Handed to the pipeline function as keyword arguments."""

    @model_validator(mode="after")
    def _has_one_origin(self) -> Self:
        given = [name for name, value in self.origins().items() if value is not None]
        if len(given) != 1:
            found = "none of them" if not given else " and ".join(given)
            raise ValueError(f"give exactly one of entrypoint, source and configMap; found {found}")
        if self.path is not None and self.entrypoint is None:
            raise ValueError("path goes with entrypoint only")
        return self

    def origins(self) -> dict[str, object]:
        return {"entrypoint": self.entrypoint, "source": self.source, "configMap": self.config_map}


class SecretRef(StrictModel):
    name: ObjectName
    """Name of a Secret in the job's namespace; its keys become environment variables of driver and
    executors."""


class PvcRef(StrictModel):
    claim_name: ObjectName
    """A PersistentVolumeClaim in the job's namespace that driver and executors can all mount (ReadWriteMany,
    or one node)."""
    sub_path: Annotated[str, Field(max_length=1024)] | None = None
    """A directory inside the volume; the volume's root if not given."""

    @field_validator("sub_path")
    @classmethod
    def _is_inside(cls, path: str | None) -> str | None:
        if path is not None and re.search(OUTSIDE_OF_VOLUME_PATTERN, path):
            raise ValueError(OUTSIDE_OF_VOLUME)
        return path


class StorageSpec(StrictModel):
    """Where checkpoints go: a uri, or a PersistentVolumeClaim. Cannot be changed while the job exists."""

    uri: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """`s3://bucket/prefix`, `gs://…`, `az://…`, `file:///path` (on Kubernetes of a volume that both pod templates
    mount); in an embedded run also a path relative to the manifest."""
    secret_ref: SecretRef | None = None
    """Credentials for the uri."""
    pvc: PvcRef | None = None
    """A PersistentVolumeClaim to keep checkpoints on (Kubernetes only)."""

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if (self.uri is None) == (self.pvc is None):
            raise ValueError("give exactly one of uri and pvc")
        return self

    @property
    def root(self) -> str:
        """The uri to use, for a volume as well."""
        return self.uri or f"file://{CHECKPOINT_MOUNT}"


class CheckpointSpec(StrictModel):
    interval: PositiveDuration = 10.0
    """Time from the start of one checkpoint to the start of the next."""
    min_pause: Duration = 0.0
    """Least time between the end of one checkpoint and the start of the next."""
    timeout: PositiveDuration = 600.0
    """A checkpoint that takes longer is aborted."""
    mode: CheckpointMode = CheckpointMode.EXACTLY_ONCE
    """ExactlyOnce aligns barriers; AtLeastOnce does not wait, and may process records again after a
    failure."""
    max_concurrent: Annotated[int, Field(ge=1, le=64)] = 1
    """How many checkpoints may be in flight at once."""
    tolerable_failures: Annotated[int, Field(ge=0, le=10_000)] = 3
    """More aborted checkpoints in a row than this make the job fail over."""
    retained: Annotated[int, Field(ge=1, le=100)] = 3
    """How many completed checkpoints are kept."""
    storage: StorageSpec | None = None
    """Where checkpoints go. Required on Kubernetes; an embedded run defaults to a directory beside the
    manifest."""
    state_backend: StateBackend = StateBackend.FILESYSTEM
    """memory (small state, kept in the manifest), filesystem (columnar state in memory) or rocksdb (larger
    than memory)."""
    incremental: bool = False
    """Write only what changed since the last completed checkpoint."""


class BackoffSpec(StrictModel):
    initial: Duration = 1.0
    """Wait before the second restart; the first one is at once."""
    max: PositiveDuration = 60.0
    """The longest wait."""
    multiplier: Annotated[float, Field(ge=1, le=100)] = 1.5
    """Each wait is this many times the one before."""
    jitter: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Random share added to or taken from each wait, so that many jobs do not restart in step."""

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.max < self.initial:
            raise ValueError("max must not be shorter than initial")
        return self


class RecoverySpec(StrictModel):
    strategy: RecoveryStrategy = RecoveryStrategy.REGION
    """Region restarts what the failure affects, All the whole job, Individual only the failed slot where that
    is sound."""
    backoff: BackoffSpec = Field(default_factory=BackoffSpec)
    """Waits between restarts."""
    max_restarts: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """More restarts than this within the window fail the job: of the driver, or of one region by failures of its own.
    All regions together may restart three times as often, or this often each."""
    window: PositiveDuration = 600.0
    """Driver restarts older than this no longer count. A region's restarts count until it has run for this long
    without a failure."""
    heartbeat_timeout: PositiveDuration = 5.0
    """A slot that says nothing for this long is taken for hung and restarted: longer than any single call of a function
    of the pipeline takes, 1s at least."""
    objective: PositiveDuration = 10.0
    """How long a recovery may take; slower ones raise an alert."""
    progress_window: PositiveDuration = 600.0
    """Without a completed checkpoint for this long, the job is reported as not making progress; twice the checkpoint
    interval at least."""
    on_no_progress: NoProgressPolicy = NoProgressPolicy.REPORT
    """What else happens then: Report (condition and event only) or Restart (a new driver)."""
    allow_older_checkpoint: bool = False
    """Consent to fall back to an older checkpoint when the latest is unreadable: output since then is written
    again."""

    @field_validator("heartbeat_timeout")
    @classmethod
    def _leaves_time_for_heartbeats(cls, seconds: float) -> float:
        if seconds < MIN_HEARTBEAT_TIMEOUT:
            raise ValueError(f"must be at least {MIN_HEARTBEAT_TIMEOUT:g}s: slots say that they are alive every 500ms")
        return seconds


class DriverSpec(StrictModel):
    cores: Annotated[int, Field(ge=1, le=256)] = 1
    """CPU request of the driver pod, in cores."""
    memory: ByteSize = 1 * GIB
    """Memory of the whole driver pod."""
    pod_template: Annotated[PodTemplate, _merged_into(DRIVER_CONTAINER_NAME)] | None = None
    """A pod template (metadata, spec) merged into the driver pod; containers are matched by name
    (`driver`)."""

    @field_validator("memory")
    @classmethod
    def _is_enough(cls, memory: int, info: ValidationInfo) -> int:
        if memory < MIN_DRIVER_MEMORY * MIB and not was_accepted_before(info):
            raise ValueError(TOO_LITTLE_DRIVER_MEMORY)
        return memory


class ExecutorSpec(StrictModel):
    instances: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Executor pods that regions are placed on; as many as the job's regions need if not given. Fewer than they need
    are refused."""
    cores: Annotated[int, Field(ge=1, le=256)] = 1
    """Slots per executor pod, one core each."""
    standby: Annotated[int, Field(ge=0, le=256)] = 0
    """Executor pods kept free, so that recovery need not wait for a new pod."""
    memory: ByteSize = 2 * GIB
    """Memory of the whole executor pod; the engine splits it between the JVM and its slots."""
    pod_template: Annotated[PodTemplate, _merged_into(EXECUTOR_CONTAINER_NAME)] | None = None
    """A pod template (metadata, spec) merged into the executor pods; containers are matched by name
    (`executor`)."""

    @field_validator("memory")
    @classmethod
    def _can_be_split(cls, memory: int, info: ValidationInfo) -> int:
        if memory < MIN_EXECUTOR_MEMORY * MIB and not was_accepted_before(info):
            raise ValueError(TOO_LITTLE_EXECUTOR_MEMORY)
        return memory


class MonitoringSpec(StrictModel):
    scrape: bool = True
    """Annotate the driver pod so that Prometheus scrapes its /metrics."""


class StreamingJobSpec(StrictModel):
    image: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """Image of driver and executors; the operator's own if not given."""
    image_pull_policy: ImagePullPolicy = ImagePullPolicy.IF_NOT_PRESENT
    """When the kubelet pulls the image."""
    service_account_name: ObjectName | None = None
    """A ServiceAccount made beforehand for the driver; the operator makes one with least rights if not
    given."""
    pipeline: PipelineSpec
    """The job's code."""
    parallelism: Annotated[int, Field(ge=1, le=4096)] = 1
    """Default number of subtasks of each operator."""
    state: JobState = JobState.RUNNING
    """Suspended stops the job with a savepoint and keeps it resumable."""
    checkpoint: CheckpointSpec = Field(default_factory=CheckpointSpec)
    """Snapshots: how often, how, and where they go."""
    recovery: RecoverySpec = Field(default_factory=RecoverySpec)
    """What happens after a failure."""
    upgrade_mode: UpgradeMode = UpgradeMode.SAVEPOINT
    """How a changed spec takes over: with a savepoint, from the latest completed checkpoint, or with no
    state."""
    savepoint_fallback: SavepointFallback = SavepointFallback.LAST_STATE
    """When the savepoint of an upgrade fails, takes too long or cannot be taken: go on from the latest checkpoint, or
    keep the old job."""
    savepoint_timeout: PositiveDuration = 300.0
    """How long an upgrade, a suspension or a deletion waits for its savepoint."""
    ready_timeout: PositiveDuration = 600.0
    """A changed spec that is not ready within this time is rolled back."""
    rollback: bool = True
    """Run the last good spec again when a changed one is not ready in time, or fails before it ever was."""
    restore_from: Annotated[str, Field(min_length=1, max_length=1024)] | None = None
    """A savepoint's name, or the path of a checkpoint or savepoint, to start from; used once."""
    restore_nonce: Nonce | None = None
    """Change it to use restoreFrom again."""
    allow_non_restored_state: bool = False
    """Start even if the restored state has parts that no operator of the pipeline takes."""
    savepoint_nonce: Nonce | None = None
    """Change it to take a savepoint."""
    restart_nonce: Nonce | None = None
    """Change it to restart the job, or to try a spec again that was refused."""
    deletion_policy: DeletionPolicy = DeletionPolicy.RETAIN
    """Whether checkpoints stay when the StreamingJob is deleted. Savepoints always stay."""
    savepoint_on_deletion: bool = False
    """Take a savepoint before the StreamingJob goes."""
    driver: DriverSpec = Field(default_factory=DriverSpec)
    """The driver pod."""
    executor: ExecutorSpec = Field(default_factory=ExecutorSpec)
    """The executor pods."""
    spark_conf: dict[str, str] = Field(default_factory=dict)
    """Further Spark settings. What the engine owns is refused, with what to set instead."""
    monitoring: MonitoringSpec = Field(default_factory=MonitoringSpec)
    """Metrics."""

    @field_validator("spark_conf")
    @classmethod
    def _refuse_owned_settings(cls, conf: dict[str, str]) -> dict[str, str]:
        refused = [f"{key} is set by the engine: {why}" for key in conf if (why := why_refused(key))]
        if refused:
            raise ValueError("; ".join(refused))
        return conf

    @property
    def progress_window(self) -> float:
        """In seconds. One that is shorter than the interval, with what a driver may hold mere progress back, would find
        every job to make no progress."""
        interval = self.checkpoint.interval
        return max(self.recovery.progress_window, 2 * interval, interval + PROGRESS_TOLD_WITHIN_SECONDS)

    @property
    def executor_instances(self) -> int:
        """Executors that regions are placed on, without the standby ones. If none are given, as far as can be said
        without the pipeline: the driver asks for more where its regions need more."""
        return self.executor.instances or -(-self.parallelism // self.executor.cores)

    @property
    def executor_pods(self) -> int:
        """The standby ones as well."""
        return self.executor_instances + self.executor.standby


class ObjectMeta(TolerantModel):
    """As much of Kubernetes' metadata as the engine reads; the rest may be there and is ignored."""

    name: Annotated[str, Field(min_length=1)]
    namespace: str = "default"
    uid: str | None = None
    generation: int | None = None
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if len(name) > MAX_NAME_LENGTH:
            raise ValueError(f"{name!r} has {len(name)} characters; at most {MAX_NAME_LENGTH} are allowed")
        if not re.fullmatch(NAME_PATTERN, name):
            raise ValueError(
                f"{name!r} is not a name: begin with a lower-case letter, "
                "then lower-case letters, digits and '-', the last one not '-'"
            )
        return name


class StreamingJob(StrictModel):
    api_version: Literal["streamingjob.dev/v1alpha1"] = API_VERSION
    kind: Literal["StreamingJob"] = KIND
    metadata: ObjectMeta
    spec: StreamingJobSpec
    status: dict[str, Any] | None = Field(default=None, exclude=True)
    """Ignored: it is there when the manifest was read back from a cluster."""
