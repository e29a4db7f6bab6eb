"""The operator's own metrics: the one place that names them.

What is about one job has the labels `streamingjob` and `streamingjob_namespace`; `namespace` is the scraper's, and says
where the operator runs.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics

from snapshot_engine.wire.control import LossReason
from streamingjob_operator.resource import Job, JobPhase, StreamingJobStatus

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RECOVERY_BUCKETS = (0.1, 0.25, 0.5, 1, 1.5, 2.5, 5, 10, 30, 60, 120)
_JOB = ["streamingjob", "streamingjob_namespace"]
_AT_REST = (JobPhase.SUSPENDED, JobPhase.FINISHED, JobPhase.FAILED)
PREFIX = "streamingjob_operator_"

# When each counter began would be as many series again, and Prometheus makes nothing of it.
disable_created_metrics()  # type: ignore[no-untyped-call]


def _now() -> datetime:
    return datetime.now(UTC)


class OperatorMetrics:
    """What is counted of a job is there from the first look at it: an increase from nothing is not seen."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], datetime] = _now) -> None:
        self._clock = clock

        def named(name: str) -> str:
            return PREFIX + name

        self.jobs = Gauge(named("jobs"), "StreamingJobs by phase", ["phase"], registry=registry)
        self.reconciles = Histogram(
            named("reconcile_seconds"),
            "Time from taking a job off the queue to the last action",
            buckets=_SECONDS,
            registry=registry,
        )
        self.reconcile_errors = Counter(
            named("reconcile_errors"), "Reconciles that failed and are retried", registry=registry
        )
        self.queue_length = Gauge(named("queue_length"), "Jobs that wait to be looked at", registry=registry)
        self.api_calls = Counter(
            named("api_calls"), "Requests to the API server", ["verb", "resource", "code"], registry=registry
        )
        self.status_writes = Counter(named("status_writes"), "Status updates written", registry=registry)
        self.pod_losses = Counter(
            named("pod_losses"), "Executor pods reported as lost", [*_JOB, "reason"], registry=registry
        )
        self.pod_loss_recovery = Histogram(
            named("pod_loss_recovery_seconds"),
            "From the event that told of a lost pod until all regions that had slots there run again",
            buckets=_RECOVERY_BUCKETS,
            registry=registry,
        )
        self.recovery_seconds = Histogram(
            named("region_recovery_seconds"),
            "From a region's failure to its processing again, as its driver tells it",
            buckets=_RECOVERY_BUCKETS,
            registry=registry,
        )
        self.drivers_replaced = Counter(
            named("drivers_replaced"), "Drivers that a new one took over from", _JOB, registry=registry
        )
        self.namespaces_left_out = Gauge(
            named("namespaces_left_out"),
            "Watched namespaces that are not looked after, because nothing can be listed there",
            registry=registry,
        )
        self.leader = Gauge(named("leader"), "1 while this process holds the lease", registry=registry)
        self._last_checkpoint = Gauge(
            named("last_checkpoint_timestamp_seconds"),
            "When the latest checkpoint was completed; stays when the driver is gone",
            _JOB,
            registry=registry,
        )
        self._progress = Gauge(
            named("progress_timestamp_seconds"),
            "When the job last made progress: its latest checkpoint, or its start if that was later",
            _JOB,
            registry=registry,
        )
        self._created = Gauge(
            named("job_created_timestamp_seconds"), "When the job was created", _JOB, registry=registry
        )
        self._phase = Gauge(named("job_phase"), "1 for the phase that a job is in", [*_JOB, "phase"], registry=registry)
        self._progress_window = Gauge(
            named("progress_window_seconds"),
            "A job that completes no checkpoint for this long makes no progress",
            _JOB,
            registry=registry,
        )
        self._driver_up = Gauge(
            named("driver_up"),
            "1 while the job's driver answers and all regions have run once",
            _JOB,
            registry=registry,
        )
        self._restarts = Gauge(
            named("job_restarts"), "Restarts of the job's regions and drivers so far", _JOB, registry=registry
        )
        self._phases: dict[tuple[str, str], JobPhase] = {}
        self._wanted_since: dict[tuple[str, str], datetime] = {}

    def show_job(self, job: Job, status: StreamingJobStatus) -> None:
        """What is known of a job after a look at it; all of it is gone when the job is."""
        labels = (job.name, job.namespace)
        self._created.labels(*labels).set(job.created_at.timestamp())
        self._restarts.labels(*labels).set(status.restarts)
        self._show_counters(labels)
        driver = status.driver
        answers = driver is not None and driver.ready_at is not None and status.silent_since is None
        self._driver_up.labels(*labels).set(answers)
        if job.spec is not None:
            self._progress_window.labels(*labels).set(job.spec.progress_window)
        self._show_progress(labels, job, status)
        self._show_phase(labels, status.phase)

    def _show_counters(self, labels: tuple[str, str]) -> None:
        """There from the start, so that their first increase shows."""
        self.drivers_replaced.labels(*labels)
        for reason in LossReason:
            self.pod_losses.labels(*labels, reason)

    def _show_progress(self, labels: tuple[str, str], job: Job, status: StreamingJobStatus) -> None:
        """One that was at rest is not late because of that. A driver that is replaced is no new start."""
        progress = self._wanted_since.get(labels)
        if progress is None or self._phases.get(labels) in _AT_REST:
            progress = self._clock() if labels in self._phases else _started_at(job, status)
            self._wanted_since[labels] = progress
        completed = status.checkpoint.completed_at
        if completed is not None:
            self._last_checkpoint.labels(*labels).set(completed.timestamp())
            progress = max(progress, completed)
        self._progress.labels(*labels).set(progress.timestamp())

    def forget_job(self, name: str, namespace: str) -> None:
        labels = (name, namespace)
        for family in (
            self.drivers_replaced,
            self.pod_losses,
            self._last_checkpoint,
            self._progress,
            self._created,
            self._progress_window,
            self._driver_up,
            self._restarts,
        ):
            family.remove_by_labels(dict(zip(_JOB, labels, strict=True)))
        self._wanted_since.pop(labels, None)
        self._show_phase(labels, None)

    def _show_phase(self, labels: tuple[str, str], phase: JobPhase | None) -> None:
        before = self._phases.pop(labels, None)
        if before is not None and before is not phase:
            self._phase.remove(*labels, before.value)
            self.jobs.labels(before.value).dec()
        if phase is not None:
            self._phases[labels] = phase
            self._phase.labels(*labels, phase.value).set(1)
            if before is not phase:
                self.jobs.labels(phase.value).inc()


def _started_at(job: Job, status: StreamingJobStatus) -> datetime:
    """As far as an operator can tell that has just begun: the driver that it finds was the first one."""
    if status.driver is not None:
        return status.driver.launched_at
    return status.launch.since if status.launch is not None else job.created_at
