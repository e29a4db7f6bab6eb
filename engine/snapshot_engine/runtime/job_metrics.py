"""The driver's Prometheus metrics. Every name is here.

Labels: `streamingjob`, and `vertex` or `region` where it helps; both are bounded. Counters start anew with each driver.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.slot_task import parse_subtask
from snapshot_engine.storage.manifest import Manifest

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_master import JobResult

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 600)
PREFIX = "streamingjob_"


class JobMetrics(JobEvents):
    def __init__(self, job: str, graph: ExecutionGraph, registry: CollectorRegistry) -> None:
        self._started: dict[int, float] = {}
        self._failed_at: dict[int, float] = {}
        label = ["streamingjob"]
        self._checkpoints = Counter(
            PREFIX + "checkpoints", "Checkpoints by outcome", ["streamingjob", "outcome"], registry=registry
        )
        self._duration = Histogram(
            PREFIX + "checkpoint_duration_seconds",
            "From trigger to completion",
            label,
            buckets=SECONDS,
            registry=registry,
        )
        self._last_id = Gauge(
            PREFIX + "last_checkpoint_id", "The newest completed checkpoint", label, registry=registry
        )
        self._last_time = Gauge(
            PREFIX + "last_checkpoint_timestamp_seconds",
            "When it was completed, in epoch seconds",
            label,
            registry=registry,
        )
        self._last_size = Gauge(
            PREFIX + "last_checkpoint_size_bytes", "All that a restore would read", label, registry=registry
        )
        self._in_progress = Gauge(
            PREFIX + "checkpoints_in_progress", "Triggered and not over", label, registry=registry
        )
        self._times = Histogram(
            PREFIX + "snapshot_seconds",
            "Where subtasks' snapshots spend their time, by the critical path",
            ["streamingjob", "part"],
            buckets=SECONDS,
            registry=registry,
        )
        self._critical = Gauge(
            PREFIX + "checkpoint_critical_seconds",
            "What each vertex on the last checkpoint's critical path added to it",
            ["streamingjob", "vertex"],
            registry=registry,
        )
        self._restarts = Counter(
            PREFIX + "region_restarts", "Restarts of regions by cause", ["streamingjob", "cause"], registry=registry
        )
        self._recovery = Histogram(
            PREFIX + "recovery_seconds",
            "From a region's failure until it runs again",
            label,
            buckets=SECONDS,
            registry=registry,
        )
        self._restore = Histogram(
            PREFIX + "restore_seconds",
            "How long slots take to restore their state",
            label,
            buckets=SECONDS,
            registry=registry,
        )
        self._commits = Counter(PREFIX + "sink_commits", "Transactions committed", label, registry=registry)
        self._regions = Gauge(PREFIX + "regions_running", "Regions that run", label, registry=registry)
        self._job = job
        self._running: set[int] = set()
        self._vertices = _VertexFigures(job, graph)
        registry.register(self._vertices)

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        self._running -= attempts.keys()
        self._regions.labels(self._job).set(len(self._running))

    def region_running(self, run: RegionRun) -> None:
        self._running.add(run.region)
        self._regions.labels(self._job).set(len(self._running))
        failed = self._failed_at.pop(run.region, None)
        if failed is not None:
            self._recovery.labels(self._job).observe(time.monotonic() - failed)

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str) -> None:
        self._failed_at[run.region] = time.monotonic()
        self._restarts.labels(self._job, cause).inc()
        self._running.discard(run.region)
        self._regions.labels(self._job).set(len(self._running))

    def slot_restored(self, connection: SlotConnection, seconds: float) -> None:
        self._restore.labels(self._job).observe(seconds)

    def heartbeat(self, connection: SlotConnection, subtasks: dict[str, dict[str, Any]]) -> None:
        self._vertices.update(connection.attempt, subtasks)

    def checkpoint_triggered(self, checkpoint: int) -> None:
        self._in_progress.labels(self._job).inc()

    def checkpoint_completed(self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str) -> None:
        job = self._job
        self._in_progress.labels(job).dec()
        self._checkpoints.labels(job, "completed").inc()
        self._duration.labels(job).observe(outcome.completed_at - outcome.triggered_at)
        if outcome.commits:
            self._last_id.labels(job).set(outcome.checkpoint)
            self._last_time.labels(job).set(outcome.completed_at)
            self._last_size.labels(job).set(manifest.size())
        for timings in outcome.timings.values():
            self._times.labels(job, "start_delay").observe(timings.start_delay)
            self._times.labels(job, "alignment").observe(timings.alignment)
            self._times.labels(job, "sync").observe(timings.synchronous)
            self._times.labels(job, "async").observe(timings.asynchronous)
        self._critical.clear()
        for step in path.steps:
            self._critical.labels(job, step.subtask.vertex).set(step.added)

    def checkpoint_aborted(self, action: Abort) -> None:
        self._in_progress.labels(self._job).dec()
        self._checkpoints.labels(self._job, "aborted").inc()

    def committed(self, count: int) -> None:
        self._commits.labels(self._job).inc(count)

    def ended(self, result: JobResult) -> None:
        self._regions.labels(self._job).set(0)


_COUNTERS = {
    "rows_in": ("records_in", "Records that came in"),
    "bytes_in": ("received_bytes", "Bytes that came in"),
    "rows_out": ("records_out", "Records that went out"),
    "bytes_out": ("sent_bytes", "Bytes that went out"),
    "busy": ("busy_seconds", "Time spent processing"),
    "blocked": ("backpressured_seconds", "Time spent waiting for room downstream"),
}


class _VertexFigures(Collector):
    """What subtasks say with their heartbeats, summed up by vertex, so that parallelism does not multiply series."""

    def __init__(self, job: str, graph: ExecutionGraph) -> None:
        self._job = job
        self._graph = graph
        self._latest: dict[str, tuple[Attempt, dict[str, Any]]] = {}
        self._before: dict[tuple[str, str], float] = defaultdict(float)

    def update(self, attempt: Attempt, subtasks: dict[str, dict[str, Any]]) -> None:
        for key, figures in subtasks.items():
            known = self._latest.get(key)
            if known is not None and known[0] != attempt:
                # A new attempt counts from zero again; the vertex goes on from where it was.
                for name in _COUNTERS:
                    self._before[(parse_subtask(key).vertex, name)] += known[1][name]
            self._latest[key] = (attempt, figures)

    def collect(self) -> Iterator[Metric]:
        latest = list(self._latest.items())
        for name, (metric, text) in _COUNTERS.items():
            family = CounterMetricFamily(PREFIX + metric, text, labels=["streamingjob", "vertex"])
            for vertex, value in self._summed(latest, name).items():
                family.add_metric([self._job, vertex], value + self._before[(vertex, name)])
            yield family
        for name, metric, text in (
            ("state_keys", "state_keys", "Keys in state"),
            ("state_bytes", "state_bytes", "Bytes of state in memory"),
        ):
            gauge = GaugeMetricFamily(PREFIX + metric, text, labels=["streamingjob", "vertex"])
            for vertex, value in self._summed(latest, name).items():
                gauge.add_metric([self._job, vertex], value)
            yield gauge
        yield self._watermarks(latest)

    def _summed(self, latest: list[tuple[str, tuple[Attempt, dict[str, Any]]]], name: str) -> dict[str, float]:
        sums: dict[str, float] = defaultdict(float)
        for key, (_, figures) in latest:
            sums[parse_subtask(key).vertex] += figures[name]
        return sums

    def _watermarks(self, latest: list[tuple[str, tuple[Attempt, dict[str, Any]]]]) -> Metric:
        slowest: dict[str, int] = {}
        for key, (_, figures) in latest:
            if figures["watermark"] is not None:
                vertex = parse_subtask(key).vertex
                slowest[vertex] = min(slowest.get(vertex, figures["watermark"]), figures["watermark"])
        family = GaugeMetricFamily(
            PREFIX + "watermark_timestamp_seconds",
            "Event time of the slowest subtask",
            labels=["streamingjob", "vertex"],
        )
        for vertex, watermark in slowest.items():
            if watermark < 2**62:  # the end of event time is no time
                family.add_metric([self._job, vertex], watermark / 1000)
        return family
