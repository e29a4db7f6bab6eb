"""The driver's Prometheus metrics. Every name is here, or in `vertex_metrics` where it has a label `vertex` only.

Labels: `streamingjob`, and `vertex` or `region` where it helps; both are bounded (see `metric_labels`). Never `job` or
`namespace`, which the scraper sets. Counters start anew with each driver, as Prometheus expects.

What is counted is there from the start, with zero: Prometheus sees no increase in a series that begins with one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import PARTS, CriticalPath, Timings
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.restart_history import CHECKPOINTS_FAILED, PHASES, TAKEN_ALONG
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.status import RestartEntry

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_result import JobResult

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60, 120, 300, 600, 1800)
"""From a synchronous part of a millisecond to a checkpoint that takes its half hour."""
PREFIX = "streamingjob_"
CAUSES = (
    "ChannelLost",
    "HeartbeatTimeout",
    "NodeLost",
    "PodLost",
    "SlotLost",
    "SparkJobEnded",
    "UserError",
    CHECKPOINTS_FAILED,
    TAKEN_ALONG,
)
"""Why regions restart."""

# When each counter began would be as many series again, and Prometheus makes nothing of it.
disable_created_metrics()  # type: ignore[no-untyped-call]


class JobMetrics(JobEvents):
    def __init__(
        self, settings: JobSettings, graph: ExecutionGraph, registry: CollectorRegistry, generation: int
    ) -> None:
        self._labels = MetricLabels(graph)
        self._slots_of = {region.id: len(region.slots()) for region in graph.regions}
        self._running: set[int] = set()
        self._finished: set[int] = set()
        self._down: set[int] = set()
        self._connected: dict[int, set[int]] = {}
        self._most_attempts: dict[str, int] = dict.fromkeys(self._labels.regions(), 1)
        self._under_way: set[int] = set()
        self._path: set[tuple[str, str]] = set()
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
        self._in_progress.labels(make.job)
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
        self._duration.labels(make.job)
        self._written = make.counter("checkpoint_written_bytes", "Bytes written by completed checkpoints")
        self._written.labels(make.job)
        self._times = make.histogram(
            "snapshot_seconds",
            "The longest start_delay, alignment, sync and async time that any subtask had, once per checkpoint",
            "part",
        )
        for part in PARTS:
            self._times.labels(make.job, part)
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
        for vertex in self._labels.vertices():
            for part in PARTS:
                self._slowest.labels(make.job, vertex, part)

    def _make_recovery_families(self) -> None:
        make = self._make
        self._restarts = make.counter("region_restarts", "Restarts of regions by cause", "region", "cause")
        self._attempts = make.gauge(
            "region_attempts", "Attempts of that one of the regions which needed most under this driver", "region"
        )
        for region in self._labels.regions():
            self._attempts.labels(make.job, region).set(1)
            for cause in CAUSES:
                self._restarts.labels(make.job, region, cause)
        self._recovery = make.histogram(
            "recovery_seconds",
            "From the last word of a slot that failed until rows left its region again "
            "(until the region ran, where there was nothing to put out)",
        )
        self._phases = make.histogram(
            "recovery_phase_seconds", "The phases of each recovery, one after the other", "phase"
        )
        self._recovery.labels(make.job)
        for phase in PHASES:
            self._phases.labels(make.job, phase)
        self._restore = make.histogram("restore_seconds", "How long slots take to restore their state")
        self._restore.labels(make.job)
        regions = make.gauge("regions", "Regions of the job")
        regions.labels(make.job).set(len(self._slots_of))
        self._regions_running = make.gauge("regions_running", "Regions that run")
        self._regions_finished = make.gauge("regions_finished", "Regions that have come to their end")
        self._slots = make.gauge("slots", "Slots that the job needs: those of all regions that have not finished")
        self._slots_connected = make.gauge("slots_connected", "Slots of regions that start or run, and are connected")
        self._count_regions()

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
        for region, attempt in attempts.items():
            self._is_down(region)
            self._finished.discard(region)
            self._down.discard(region)
            if attempt.number > 1:
                self._show_attempt(region, attempt.number)
                for vertex in self._labels.sinks_of(region):
                    self._aborts.labels(self._make.job, vertex).inc()
        self._count_regions()

    def _show_attempt(self, region: int, number: int) -> None:
        label = self._labels.region(region)
        self._most_attempts[label] = max(number, self._most_attempts[label])
        self._attempts.labels(self._make.job, label).set(self._most_attempts[label])

    def region_running(self, run: RegionRun) -> None:
        self._running.add(run.region)
        self._count_regions()

    def region_finished(self, run: RegionRun) -> None:
        self._is_down(run.region)
        self._finished.add(run.region)
        self._count_regions()

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        self._is_down(run.region)
        self._count_regions()

    def region_stopping(self, run: RegionRun) -> None:
        self._is_down(run.region)
        self._count_regions()

    def _is_down(self, region: int) -> None:
        """Slots that are yet to stop may still be heard of."""
        self._down.add(region)
        self._running.discard(region)
        self._connected.pop(region, None)

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
        known = self._connected.setdefault(connection.region, set())
        if connection.region not in self._down and connection.slot not in known:
            known.add(connection.slot)
            self._count_regions()

    def ended(self, result: JobResult) -> None:
        self._running.clear()
        self._connected.clear()
        self._under_way.clear()
        self._count_regions()
        self._count_checkpoints()

    def _count_regions(self) -> None:
        self._regions_running.labels(self._make.job).set(len(self._running))
        self._regions_finished.labels(self._make.job).set(len(self._finished))
        needed = sum(slots for region, slots in self._slots_of.items() if region not in self._finished)
        self._slots.labels(self._make.job).set(needed)
        connected = sum(len(slots) for slots in self._connected.values())
        self._slots_connected.labels(self._make.job).set(connected)

    # Checkpoints.

    def restoring(self, manifest: Manifest) -> None:
        """An earlier driver completed it; it stays the last one until this driver completes one."""
        self._show_last(manifest, manifest.completed_at)

    def checkpoint_triggered(self, checkpoint: int) -> None:
        """May be told twice: a head of a loop is triggered when its inputs have ended."""
        self._under_way.add(checkpoint)
        self._count_checkpoints()

    def _is_over(self, checkpoint: int) -> None:
        """The last checkpoint of a bounded job is made of final states and was never triggered."""
        self._under_way.discard(checkpoint)
        self._count_checkpoints()

    def _count_checkpoints(self) -> None:
        self._in_progress.labels(self._make.job).set(len(self._under_way))

    def _show_last(self, manifest: Manifest, completed_at: float) -> None:
        self._last_id.labels(self._make.job).set(manifest.checkpoint)
        self._last_time.labels(self._make.job).set(completed_at)
        self._last_size.labels(self._make.job).set(manifest.size())

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        job, duration = self._make.job, outcome.completed_at - outcome.triggered_at
        self._is_over(outcome.checkpoint)
        self._checkpoints.labels(job, "completed").inc()
        self._duration.labels(job).observe(duration)
        self._written.labels(job).inc(written)
        if outcome.commits:
            self._show_last(manifest, outcome.completed_at)
            self._last_duration.labels(job).set(duration)
            self._last_written.labels(job).set(written)
        for part, seconds in _longest(list(outcome.timings.values())).items():
            self._times.labels(job, part).observe(seconds)
        self._show_path(path)

    def _show_path(self, path: CriticalPath) -> None:
        """What is gone from the path goes last: whoever scrapes meanwhile finds a whole one."""
        job, added = self._make.job, defaultdict[tuple[str, str], float](float)
        for step in path.steps:
            for part, seconds in step.parts.items():
                added[self._labels.vertex(step.subtask.vertex), part] += seconds
        for labels, seconds in added.items():
            self._critical.labels(job, *labels).set(seconds)
        for labels in self._path - added.keys():
            self._critical.remove(job, *labels)
        self._path = set(added)
        if path.slowest is not None:
            vertex = self._labels.vertex(path.slowest.subtask.vertex)
            self._slowest.labels(job, vertex, path.slowest.longest_part).inc()

    def checkpoint_aborted(self, action: Abort) -> None:
        self._is_over(action.checkpoint)
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
