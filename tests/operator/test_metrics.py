"""What the operator's metrics say of a job, from its first phase until it is deleted."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from snapshot_engine.wire.control import LossReason
from snapshot_engine.wire.spec import PipelineSpec, StreamingJobSpec
from streamingjob_operator.config import OperatorConfig
from streamingjob_operator.controller import Controller
from streamingjob_operator.metrics import OperatorMetrics
from streamingjob_operator.resource import CheckpointSummary, DriverRecord, Job, JobPhase, StreamingJobStatus

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


def test_a_job_that_was_resumed_is_not_late_and_one_whose_driver_was_replaced_is(registry):
    now = [datetime(2026, 1, 1, tzinfo=UTC)]
    metrics = OperatorMetrics(registry, clock=lambda: now[0])

    def look(day: int, phase: JobPhase, **status: object) -> datetime:
        now[0] = datetime(2026, 1, day, tzinfo=UTC)
        checkpoint = CheckpointSummary(completed_at=datetime(2026, 1, 2, tzinfo=UTC))
        metrics.show_job(job(), StreamingJobStatus(phase=phase, checkpoint=checkpoint, **status))
        return datetime.fromtimestamp(value(registry, "progress_timestamp_seconds", **LABELS) or 0, UTC)

    assert look(3, JobPhase.RUNNING).day == 2
    look(4, JobPhase.SUSPENDED)
    assert look(20, JobPhase.STARTING).day == 20
    replaced = DriverRecord(generation=9, pod_name="p", spec_hash="h", launched_at=datetime(2026, 1, 22, tzinfo=UTC))
    assert look(22, JobPhase.RECOVERING, driver=replaced).day == 20


def test_an_operator_that_has_just_begun_takes_the_drivers_start_for_the_jobs(registry, metrics):
    for day in (5, 7):  # the second one has replaced the first
        launched = datetime(2026, 1, day, tzinfo=UTC)
        driver = DriverRecord(generation=day, pod_name="p", spec_hash="h", launched_at=launched)
        metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.STARTING, driver=driver))
        assert value(registry, "progress_timestamp_seconds", **LABELS) == datetime(2026, 1, 5, tzinfo=UTC).timestamp()


def test_a_deleted_job_leaves_no_series(registry, metrics):
    metrics.show_job(job(), StreamingJobStatus(phase=JobPhase.RUNNING))
    metrics.pod_losses.labels("orders", "shop", LossReason.EVICTED).inc()
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


async def test_a_job_that_is_deleted_while_it_is_looked_at_leaves_no_series(registry, metrics):
    controller = Controller(kube=None, session=None, config=OperatorConfig(image="x"), metrics=metrics)
    observation = SimpleNamespace(job=job(), silent_since=None)
    decision = SimpleNamespace(status=StreamingJobStatus(phase=JobPhase.RUNNING), recoveries=[])
    controller.store.jobs["u"] = {"metadata": {"name": "orders", "namespace": "shop", "uid": "u"}}
    controller._measure(observation, decision)
    assert value(registry, "job_phase", **LABELS, phase="Running") == 1
    controller.job_seen({"metadata": {"uid": "u"}}, deleted=True)
    controller._measure(observation, decision)  # the look had begun before
    assert value(registry, "job_phase", **LABELS, phase="Running") is None
