"""The operator's own metrics: the one place that names them.

What is about one job has the labels `streamingjob` and `streamingjob_namespace`; `namespace` is the scraper's, and says
where the operator runs.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from snapshot_engine.wire.control import LossReason
from streamingjob_operator.resource import Job, JobPhase, StreamingJobStatus

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_RECOVERY_BUCKETS = (0.1, 0.25, 0.5, 1, 1.5, 2.5, 5, 10, 30, 60, 120)
_JOB = ["streamingjob", "streamingjob_namespace"]
PREFIX = "streamingjob_operator_"


class OperatorMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
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
        self.leader = Gauge(named("leader"), "1 while this process holds the lease", registry=registry)
        self._last_checkpoint = Gauge(
            named("last_checkpoint_timestamp_seconds"),
            "When the latest checkpoint was completed; stays when the driver is gone",
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
            self._progress_window.labels(*labels).set(job.spec.recovery.progress_window)
        if status.checkpoint.completed_at is not None:
            self._last_checkpoint.labels(*labels).set(status.checkpoint.completed_at.timestamp())
        self._show_phase(labels, status.phase)

    def _show_counters(self, labels: tuple[str, str]) -> None:
        """There from the start, so that their first increase shows."""
        self.drivers_replaced.labels(*labels)
        for reason in LossReason:
            self.pod_losses.labels(*labels, reason)

    def forget_job(self, name: str, namespace: str) -> None:
        labels = (name, namespace)
        self._show_counters(labels)  # what is not there cannot be removed
        self.drivers_replaced.remove(*labels)
        for reason in LossReason:
            self.pod_losses.remove(*labels, reason)
        for gauge in (self._last_checkpoint, self._created, self._progress_window, self._driver_up, self._restarts):
            gauge.labels(*labels)
            gauge.remove(*labels)
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
