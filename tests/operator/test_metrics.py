"""What the operator's metrics say of a job, from its first phase until it is deleted."""

from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry

from snapshot_engine.wire.spec import PipelineSpec, StreamingJobSpec
from streamingjob_operator.metrics import OperatorMetrics
from streamingjob_operator.resource import CheckpointSummary, Job, JobPhase, StreamingJobStatus

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
LABELS = {"streamingjob": "orders", "streamingjob_namespace": "shop"}


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> OperatorMetrics:
    return OperatorMetrics(registry)


def job() -> Job:
    spec = StreamingJobSpec(pipeline=PipelineSpec(source="pass"))
    return Job(
        name="orders",
        namespace="shop",
        uid="u",
        generation=1,
        resource_version="1",
        created_at=CREATED,
        deleting_since=None,
        finalizers=(),
        spec=spec,
        spec_error=None,
        raw_spec={},
        status=StreamingJobStatus(),
    )


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"streamingjob_operator_{name}", labels)


def test_a_job_is_counted_in_its_phase_only(registry, metrics):
    metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.PENDING))
    metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.RUNNING))
    metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.RUNNING))
    assert value(registry, "jobs", phase="Pending") == 0
    assert value(registry, "jobs", phase="Running") == 1
    assert value(registry, "job_phase", **LABELS, phase="Running") == 1
    assert value(registry, "job_phase", **LABELS, phase="Pending") is None


def test_the_last_checkpoint_is_a_timestamp_that_stays(registry, metrics):
    done = StreamingJobStatus(phase=JobPhase.RUNNING, checkpoint=CheckpointSummary(completed_at=CREATED))
    metrics.show_job(job(), done)
    metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.RUNNING))
    assert value(registry, "last_checkpoint_timestamp_seconds", **LABELS) == CREATED.timestamp()
    assert value(registry, "progress_window_seconds", **LABELS) == 600


def test_a_deleted_job_leaves_no_series(registry, metrics):
    metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.RUNNING))
    metrics.forget_job("orders", "shop")
    left = [s for family in registry.collect() for s in family.samples if "streamingjob" in s.labels]
    assert left == []
    assert value(registry, "jobs", phase="Running") == 0


def test_counters_of_a_job_begin_at_nought_and_go_with_it(registry, metrics):
    metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.RUNNING))
    assert value(registry, "pod_losses_total", **LABELS, reason="PodGone") == 0
    assert value(registry, "drivers_replaced_total", **LABELS) == 0
    metrics.forget_job("orders", "shop")
    assert value(registry, "pod_losses_total", **LABELS, reason="PodGone") is None
    assert value(registry, "drivers_replaced_total", **LABELS) is None
