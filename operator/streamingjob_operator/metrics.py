"""The operator's own metrics: the one place that names them."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_RECOVERY_BUCKETS = (0.1, 0.25, 0.5, 1, 1.5, 2.5, 5, 10, 30, 60, 120)


class OperatorMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        def named(name: str) -> str:
            return f"streamingjob_operator_{name}"

        self.jobs = Gauge(named("jobs"), "StreamingJobs by phase", ["phase"], registry=registry)
        self.reconciles = Histogram(
            named("reconcile_seconds"), "Time from taking a job off the queue to the last action", registry=registry
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
            named("pod_losses"), "Executor pods reported as lost", ["streamingjob", "reason"], registry=registry
        )
        self.recovery_seconds = Histogram(
            named("region_recovery_seconds"),
            "From a region's failure to its processing again",
            buckets=_RECOVERY_BUCKETS,
            registry=registry,
        )
        self.drivers_replaced = Counter(
            named("drivers_replaced"), "Drivers that a new one took over from", ["streamingjob"], registry=registry
        )
        self.last_checkpoint = Gauge(
            named("last_checkpoint_timestamp_seconds"),
            "When the latest checkpoint was completed; stays when the driver is gone",
            ["streamingjob", "streamingjob_namespace"],
            registry=registry,
        )
        self.leader = Gauge(named("leader"), "1 while this process holds the lease", registry=registry)
