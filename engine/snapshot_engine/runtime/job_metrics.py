"""The driver's Prometheus metrics. Every name is here, or in `vertex_metrics` where it has a label `vertex` only.

Labels: `streamingjob`, and `vertex` or `region` where it helps; both are bounded (see `metric_labels`). Never `job` or
`namespace`, which the scraper sets. Counters start anew with each driver, as Prometheus expects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import PARTS, CriticalPath, Timings
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.restart_history import PHASES
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.status import RestartEntry

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_result import JobResult

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
PREFIX = "streamingjob_"


class JobMetrics(JobEvents):
    def __init__(
        self, settings: JobSettings, graph: ExecutionGraph, registry: CollectorRegistry, generation: int
    ) -> None:
        self._labels = MetricLabels(graph)
        self._graph = graph
        self._running: set[int] = set()
        self._connected: dict[int, set[int]] = {}
        self._make = _Families(settings.name, registry)
        self._make_checkpoint_families()
        self._make_recovery_families()
        self._make_sink_families()
        self._configured(settings, generation)

    def _make_checkpoint_families(self) -> None:
        make = self._make
        self._checkpoints = make.counter(
            "checkpoints",
            "Checkpoints by outcome: completed, failed, or aborted because a failover or a newer one took their place",
            "outcome",
        )
        for outcome in ("completed", "failed", "aborted"):
            self._checkpoints.labels(make.job, outcome)
        self._in_progress = make.gauge("checkpoints_in_progress", "Checkpoints triggered and not over")
        self._last_id = make.gauge("last_checkpoint_id", "Id of the newest completed checkpoint")
        self._last_time = make.gauge(
            "last_checkpoint_timestamp_seconds", "When the newest completed checkpoint was complete, in epoch seconds"
        )
        self._last_duration = make.gauge(
            "last_checkpoint_duration_seconds", "From trigger to completion of the newest completed checkpoint"
        )
        self._last_written = make.gauge(
            "last_checkpoint_written_bytes", "What the newest completed checkpoint wrote itself"
        )
        self._last_size = make.gauge(
            "last_checkpoint_full_size_bytes", "All that a restore from the newest completed checkpoint reads"
        )
        self._duration = make.histogram("checkpoint_duration_seconds", "From trigger to completion of a checkpoint")
        self._written = make.counter("checkpoint_written_bytes", "Bytes written by completed checkpoints")
        self._times = make.histogram(
            "snapshot_seconds",
            "The longest start_delay, alignment, sync and async time that any subtask had, once per checkpoint",
            "part",
        )
        self._critical = make.gauge(
            "checkpoint_critical_seconds",
            "What each vertex on the last checkpoint's critical path added to it, by which of its four times it was",
            "vertex",
            "part",
        )
        self._slowest = make.counter(
            "checkpoint_slowest",
            "How often a vertex added most to a checkpoint, by the longest of its four times",
            "vertex",
            "part",
        )

    def _make_recovery_families(self) -> None:
        make = self._make
        self._restarts = make.counter("region_restarts", "Restarts of regions by cause", "region", "cause")
        self._recovery = make.histogram(
            "recovery_seconds",
            "From the last word of a slot that failed until rows left its region again "
            "(until the region ran, where there was nothing to put out)",
        )
        self._phases = make.histogram(
            "recovery_phase_seconds", "The phases of each recovery, one after the other", "phase"
        )
        for phase in PHASES:
            self._phases.labels(make.job, phase)
        self._restore = make.histogram("restore_seconds", "How long slots take to restore their state")
        self._regions = make.gauge("regions", "Regions of the job")
        self._regions_running = make.gauge("regions_running", "Regions that run")
        self._slots = make.gauge("slots", "Slots that the job needs")
        self._slots_connected = make.gauge("slots_connected", "Slots of current attempts that are connected")
        self._regions.labels(make.job).set(len(self._graph.regions))
        self._slots.labels(make.job).set(sum(len(region.slots()) for region in self._graph.regions))
        for region in self._labels.regions():
            self._restarts.labels(make.job, region, "SlotLost")

    def _make_sink_families(self) -> None:
        make = self._make
        self._commits = make.counter("sink_commits", "Sink transactions committed", "vertex")
        self._commit_failures = make.counter(
            "sink_commit_failures", "Commits that a sink refused and that are tried again", "vertex"
        )
        self._aborts = make.counter(
            "sink_aborts", "Open sink transactions given up because their attempt ended", "vertex"
        )
        for vertex in self._labels.sink_vertices():
            for family in (self._commits, self._commit_failures, self._aborts):
                family.labels(make.job, vertex)

    def _configured(self, settings: JobSettings, generation: int) -> None:
        make, config = self._make, settings.checkpoint
        timeout = make.gauge("checkpoint_timeout_seconds", "A checkpoint that takes longer is aborted")
        timeout.labels(make.job).set(config.timeout)
        if config.interval is not None:
            interval = make.gauge("checkpoint_interval_seconds", "Time between the triggers of two checkpoints")
            interval.labels(make.job).set(config.interval)
        objective = make.gauge("recovery_objective_seconds", "How long a recovery may take")
        objective.labels(make.job).set(settings.recovery_objective)
        started = make.gauge("driver_generation", "How many drivers the job has had, this one included")
        started.labels(make.job).set(generation)

    # Regions.

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        self._running -= attempts.keys()
        for region, attempt in attempts.items():
            self._connected.pop(region, None)
            if attempt.number > 1:
                for vertex in self._labels.sinks_of(region):
                    self._aborts.labels(self._make.job, vertex).inc()
        self._count_regions()

    def region_running(self, run: RegionRun) -> None:
        self._running.add(run.region)
        self._count_regions()

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        self._running.discard(run.region)
        self._connected.pop(run.region, None)
        self._count_regions()

    def restart_begun(self, entry: RestartEntry) -> None:
        self._restarts.labels(self._make.job, self._labels.region(int(entry.region)), entry.cause).inc()

    def restart_settled(self, entry: RestartEntry) -> None:
        for phase, seconds in entry.phases.items():
            self._phases.labels(self._make.job, phase).observe(seconds)
        if entry.seconds is not None:
            self._recovery.labels(self._make.job).observe(entry.seconds)

    def slot_restored(self, connection: SlotConnection, seconds: float) -> None:
        self._restore.labels(self._make.job).observe(seconds)

    def heartbeat(self, connection: SlotConnection, subtasks: object) -> None:
        self._connected.setdefault(connection.region, set()).add(connection.slot)
        self._count_regions()

    def ended(self, result: JobResult) -> None:
        self._running.clear()
        self._connected.clear()
        self._count_regions()

    def _count_regions(self) -> None:
        self._regions_running.labels(self._make.job).set(len(self._running))
        connected = sum(len(slots) for slots in self._connected.values())
        self._slots_connected.labels(self._make.job).set(connected)

    # Checkpoints.

    def checkpoint_triggered(self, checkpoint: int) -> None:
        self._in_progress.labels(self._make.job).inc()

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        job, duration = self._make.job, outcome.completed_at - outcome.triggered_at
        self._in_progress.labels(job).dec()
        self._checkpoints.labels(job, "completed").inc()
        self._duration.labels(job).observe(duration)
        self._written.labels(job).inc(written)
        if outcome.commits:
            self._last_id.labels(job).set(outcome.checkpoint)
            self._last_time.labels(job).set(outcome.completed_at)
            self._last_duration.labels(job).set(duration)
            self._last_written.labels(job).set(written)
            self._last_size.labels(job).set(manifest.size())
        for part, seconds in _longest(list(outcome.timings.values())).items():
            self._times.labels(job, part).observe(seconds)
        self._show_path(path)

    def _show_path(self, path: CriticalPath) -> None:
        job = self._make.job
        self._critical.clear()
        for step in path.steps:
            for part, seconds in step.parts.items():
                self._critical.labels(job, self._labels.vertex(step.subtask.vertex), part).inc(seconds)
        if path.slowest is not None:
            vertex = self._labels.vertex(path.slowest.subtask.vertex)
            self._slowest.labels(job, vertex, path.slowest.longest_part).inc()

    def checkpoint_aborted(self, action: Abort) -> None:
        self._in_progress.labels(self._make.job).dec()
        self._checkpoints.labels(self._make.job, "failed" if action.failed else "aborted").inc()

    def committed(self, operator: str, count: int) -> None:
        self._commits.labels(self._make.job, self._labels.vertex_of_operator(operator)).inc(count)

    def commit_failed(self, operator: str) -> None:
        self._commit_failures.labels(self._make.job, self._labels.vertex_of_operator(operator)).inc()


class _Families:
    """Makes families that all begin with the same prefix and the same label."""

    def __init__(self, job: str, registry: CollectorRegistry) -> None:
        self.job = job
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, ["streamingjob", *labels], registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, ["streamingjob", *labels], registry=self._registry)

    def histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(PREFIX + name, text, ["streamingjob", *labels], buckets=SECONDS, registry=self._registry)


def _longest(timings: list[Timings]) -> dict[str, float]:
    return {part: max(times) for part, times in zip(PARTS, zip(*timings, strict=True), strict=True)} if timings else {}
