"""The driver's Prometheus metrics. Those that have a label `vertex` only are in `vertex_metrics`."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.runtime.checkpoint_metrics import CheckpointMetrics
from snapshot_engine.runtime.job_events import EventFan
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.metric_families import Families
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.region_metrics import RegionMetrics
from snapshot_engine.runtime.sink_metrics import SinkMetrics


class JobMetrics(EventFan):
    def __init__(
        self, settings: JobSettings, graph: ExecutionGraph, registry: CollectorRegistry, generation: int
    ) -> None:
        make, labels = Families(settings.name, registry), MetricLabels(graph)
        self.checkpoints = CheckpointMetrics(make, labels)
        self.regions = RegionMetrics(make, labels, graph)
        super().__init__(self.checkpoints, self.regions, SinkMetrics(make, labels))
        _show_settings(make, settings, generation)


def _show_settings(make: Families, settings: JobSettings, generation: int) -> None:
    config = settings.checkpoint
    timeout = make.gauge("checkpoint_timeout_seconds", "A checkpoint that takes longer is aborted")
    timeout.labels(make.job).set(config.timeout)
    if config.interval is not None:
        interval = make.gauge("checkpoint_interval_seconds", "Time between the triggers of two checkpoints")
        interval.labels(make.job).set(config.interval)
    objective = make.gauge("recovery_objective_seconds", "How long a recovery may take")
    objective.labels(make.job).set(settings.recovery_objective)
    started = make.gauge("driver_generation", "How many drivers the job has had, this one included")
    started.labels(make.job).set(generation)
