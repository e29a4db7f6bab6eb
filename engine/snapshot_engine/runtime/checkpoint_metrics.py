"""The metrics of checkpoints: how they ended, how long they took and why, how large they are."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import PARTS, CriticalPath, Timings
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.metric_families import Families
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.storage.manifest import Manifest

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_result import JobResult


class CheckpointMetrics(JobEvents):
    def __init__(self, make: Families, labels: MetricLabels) -> None:
        self._job = make.job
        self._labels = labels
        self._under_way: set[int] = set()
        self._path: set[tuple[str, str]] = set()
        self._make_outcomes(make)
        self._make_last_one(make)
        self._make_times(make)

    def _make_outcomes(self, make: Families) -> None:
        self._checkpoints = make.counter(
            "checkpoints",
            "Checkpoints by outcome: completed, failed, or aborted because a failover or a newer one took their place",
            "outcome",
        )
        for outcome in ("completed", "failed", "aborted"):
            self._checkpoints.labels(make.job, outcome)
        self._in_progress = make.gauge("checkpoints_in_progress", "Checkpoints triggered and not over")
        self._in_progress.labels(make.job)
        self._written = make.counter("checkpoint_written_bytes", "Bytes written by completed checkpoints")
        self._written.labels(make.job)

    def _make_last_one(self, make: Families) -> None:
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

    def _make_times(self, make: Families) -> None:
        self._duration = make.histogram("checkpoint_duration_seconds", "From trigger to completion of a checkpoint")
        self._duration.labels(make.job)
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
        self._in_progress.labels(self._job).set(len(self._under_way))

    def _show_last(self, manifest: Manifest, completed_at: float) -> None:
        self._last_id.labels(self._job).set(manifest.checkpoint)
        self._last_time.labels(self._job).set(completed_at)
        self._last_size.labels(self._job).set(manifest.size())

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        job, duration = self._job, outcome.completed_at - outcome.triggered_at
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
        job, added = self._job, defaultdict[tuple[str, str], float](float)
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
        self._checkpoints.labels(self._job, "failed" if action.failed else "aborted").inc()

    def ended(self, result: JobResult) -> None:
        self._under_way.clear()
        self._count_checkpoints()


def _longest(timings: list[Timings]) -> dict[str, float]:
    return {part: max(times) for part, times in zip(PARTS, zip(*timings, strict=True), strict=True)} if timings else {}
