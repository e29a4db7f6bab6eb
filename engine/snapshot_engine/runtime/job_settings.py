"""A StreamingJob's spec as the JobMaster acts on it."""

from __future__ import annotations

from dataclasses import dataclass, field

from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.protocol.failover import Strategy
from snapshot_engine.protocol.restarts import RestartConfig
from snapshot_engine.runtime.clocks import Clock, clock_ms
from snapshot_engine.runtime.slot_task import DEFAULT_EXCHANGE_BUDGET
from snapshot_engine.storage import layout
from snapshot_engine.storage.current import OF_MANIFEST
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.pieces import PieceOptions, StorageConfig
from snapshot_engine.wire.spec import StateBackend, StreamingJob, StreamingJobSpec


@dataclass(frozen=True)
class JobSettings:
    name: str
    namespace: str
    uid: str
    storage: StorageConfig
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    restarts: RestartConfig = field(default_factory=RestartConfig)
    strategy: Strategy = Strategy.REGION
    retained: int = 3
    incremental: bool = False
    driver: int | None = None
    """This driver's number where drivers are numbered, as on Kubernetes: what others know it by."""
    restore_id: str | None = None
    """Names the restore below; a driver that finds that it has led to a checkpoint goes on from the latest one."""
    restore_from: str | None = None
    ignore_state: bool = False
    """Start with no state although there may be some."""
    expected_checkpoint: str | None = None
    """One that earlier drivers have completed: storage that holds none is not the job's, or has lost its state."""
    slot_port: int = 0
    """Where slots reach the JobMaster; any free port if 0."""
    take_over: bool = False
    """Take storage that holds another job's state."""
    allow_non_restored_state: bool = False
    allow_older_checkpoint: bool = False
    clock: Clock = clock_ms
    """Processing time, as operators see it; tests have one that they move."""
    heartbeat_seconds: float = 0.5
    heartbeat_timeout: float = 5.0
    exchange_budget: int = DEFAULT_EXCHANGE_BUDGET
    """What a memory or durable exchange may keep per producer subtask where the edge does not say."""
    recovery_objective: float = 10.0
    stop_grace_seconds: float = 1.0
    """How long slots have to stop by themselves before Spark is asked to end them."""


JOB_BUDGET_FACTOR = 3
"""A job may restart regions so many times as often as one region may restart; with more regions, once for each."""


def settings_of(job: StreamingJob, storage_uri: str) -> JobSettings:
    """`storage_uri` is resolved by the caller: a mounted claim, a uri, or a folder beside the manifest."""
    spec, meta = job.spec, job.metadata
    checkpoint, recovery = spec.checkpoint, spec.recovery
    if checkpoint.state_backend is StateBackend.ROCKSDB:
        raise Unsupported(
            "checkpoint.stateBackend rocksdb can be written in a manifest but not yet run: use filesystem, with "
            "incremental: true where the state is large"
        )
    pieces = PieceOptions(all_inline=checkpoint.state_backend is StateBackend.MEMORY)
    return JobSettings(
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid or f"embedded-{meta.namespace}-{meta.name}",
        storage=StorageConfig(storage_uri, Layout(meta.namespace, meta.name), {}, pieces, _is_elsewhere(storage_uri)),
        checkpoint=CheckpointConfig(
            interval=checkpoint.interval,
            min_pause=checkpoint.min_pause,
            timeout=checkpoint.timeout,
            max_concurrent=checkpoint.max_concurrent,
            tolerable_failures=checkpoint.tolerable_failures,
            mode=Mode(checkpoint.mode.value),
        ),
        restarts=RestartConfig(
            first_delay=recovery.backoff.initial,
            max_delay=recovery.backoff.max,
            factor=recovery.backoff.multiplier,
            jitter=recovery.backoff.jitter,
            per_region=recovery.max_restarts,
            per_job=JOB_BUDGET_FACTOR * recovery.max_restarts,
            quiet_time=recovery.window,
        ),
        strategy=Strategy(recovery.strategy.value),
        heartbeat_timeout=recovery.heartbeat_timeout,
        recovery_objective=recovery.objective,
        retained=checkpoint.retained,
        incremental=checkpoint.incremental,
        restore_id=_restore_id(spec),
        restore_from=savepoint_path(spec.restore_from) if spec.restore_from else None,
        take_over=spec.restore_from is not None,
        allow_non_restored_state=spec.allow_non_restored_state,
        allow_older_checkpoint=recovery.allow_older_checkpoint,
    )


def savepoint_path(named: str) -> str:
    """A bare name means a savepoint of this job."""
    return named if named.isdigit() or "/" in named else layout.savepoint_folder(named)


def _restore_id(spec: StreamingJobSpec) -> str | None:
    """`restoreFrom` is used once: a value left in the manifest must not rewind the job at each start."""
    return None if spec.restore_from is None else f"{OF_MANIFEST} {spec.restore_nonce or ''} {spec.restore_from}"


def _is_elsewhere(uri: str) -> bool:
    """Whether reading a checkpoint goes over the network: then slots keep copies on their own disk."""
    return "://" in uri and not uri.startswith("file://")


class Unsupported(Exception):
    """The manifest is sound, but the runtime does not carry this yet."""
