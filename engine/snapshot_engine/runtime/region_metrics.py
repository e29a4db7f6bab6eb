"""The metrics of regions: which of them run, how often and why they restart, what each phase of a recovery takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.metric_families import Families
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.restart_history import CHECKPOINTS_FAILED, PHASES, TAKEN_ALONG
from snapshot_engine.wire.status import RestartEntry

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_result import JobResult

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


class RegionMetrics(JobEvents):
    def __init__(self, make: Families, labels: MetricLabels, graph: ExecutionGraph) -> None:
        self._job = make.job
        self._labels = labels
        self._slots_of = {region.id: len(region.slots()) for region in graph.regions}
        self._running: set[int] = set()
        self._finished: set[int] = set()
        self._down: set[int] = set()
        self._connected: dict[int, set[int]] = {}
        self._most_attempts: dict[str, int] = dict.fromkeys(labels.regions(), 1)
        self._make_restarts(make)
        self._make_gauges(make)

    def _make_restarts(self, make: Families) -> None:
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

    def _make_gauges(self, make: Families) -> None:
        regions = make.gauge("regions", "Regions of the job")
        regions.labels(make.job).set(len(self._slots_of))
        self._regions_running = make.gauge("regions_running", "Regions that run")
        self._regions_finished = make.gauge("regions_finished", "Regions that have come to their end")
        self._slots = make.gauge("slots", "Slots that the job needs: those of all regions that have not finished")
        self._slots_connected = make.gauge("slots_connected", "Slots of regions that start or run, and are connected")
        self._count_regions()

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        for region, attempt in attempts.items():
            self._is_down(region)
            self._finished.discard(region)
            self._down.discard(region)
            if attempt.number > 1:
                self._show_attempt(region, attempt.number)
        self._count_regions()

    def _show_attempt(self, region: int, number: int) -> None:
        label = self._labels.region(region)
        self._most_attempts[label] = max(number, self._most_attempts[label])
        self._attempts.labels(self._job, label).set(self._most_attempts[label])

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
        self._restarts.labels(self._job, self._labels.region(int(entry.region)), entry.cause).inc()

    def restart_settled(self, entry: RestartEntry) -> None:
        if entry.seconds is None:  # it failed again on its way up
            return
        self._recovery.labels(self._job).observe(entry.seconds)
        for phase, seconds in entry.phases.items():
            self._phases.labels(self._job, phase).observe(seconds)

    def slot_restored(self, connection: SlotConnection, seconds: float) -> None:
        self._restore.labels(self._job).observe(seconds)

    def heartbeat(self, connection: SlotConnection, subtasks: object) -> None:
        known = self._connected.setdefault(connection.region, set())
        if connection.region not in self._down and connection.slot not in known:
            known.add(connection.slot)
            self._count_regions()

    def ended(self, result: JobResult) -> None:
        self._running.clear()
        self._connected.clear()
        self._count_regions()

    def _count_regions(self) -> None:
        self._regions_running.labels(self._job).set(len(self._running))
        self._regions_finished.labels(self._job).set(len(self._finished))
        needed = sum(slots for region, slots in self._slots_of.items() if region not in self._finished)
        self._slots.labels(self._job).set(needed)
        connected = sum(len(slots) for slots in self._connected.values())
        self._slots_connected.labels(self._job).set(connected)
