"""The metrics of sinks: transactions that were committed, refused, or given up."""

from __future__ import annotations

from collections.abc import Mapping

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.metric_families import Families
from snapshot_engine.runtime.metric_labels import MetricLabels


class SinkMetrics(JobEvents):
    def __init__(self, make: Families, labels: MetricLabels) -> None:
        self._job = make.job
        self._labels = labels
        self._commits = make.counter("sink_commits", "Sink transactions committed", "vertex")
        self._commit_failures = make.counter(
            "sink_commit_failures", "Commits that a sink refused and that are tried again", "vertex"
        )
        self._aborts = make.counter(
            "sink_aborts", "Sink subtasks whose attempt ended early; what each had open is given up", "vertex"
        )
        for vertex in labels.sink_vertices():
            for family in (self._commits, self._commit_failures, self._aborts):
                family.labels(make.job, vertex)

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        for region, attempt in attempts.items():
            if attempt.number > 1:
                for vertex in self._labels.sinks_of(region):
                    self._aborts.labels(self._job, vertex).inc()

    def committed(self, operator: str, count: int) -> None:
        self._commits.labels(self._job, self._labels.vertex_of_operator(operator)).inc(count)

    def commit_failed(self, operator: str, message: str) -> None:
        self._commit_failures.labels(self._job, self._labels.vertex_of_operator(operator)).inc()
