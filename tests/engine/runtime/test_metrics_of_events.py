"""What single events do to a job's metrics: everything that begins is over once, and what is gone is not shown."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from snapshot_engine.api import Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import PARTS, CriticalPath, Step
from snapshot_engine.protocol.elements import Attempt, SubtaskId
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.job_metrics import JobMetrics
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.metric_families import SECONDS
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.region_metrics import CAUSES
from snapshot_engine.runtime.restart_history import PHASES
from snapshot_engine.runtime.vertex_figures import VertexFigures
from snapshot_engine.runtime.vertex_metrics import VertexMetrics
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.pieces import StorageConfig

NO_PATH = CriticalPath(0.0, ())


def straight(env: Environment) -> None:
    env.from_source(bids(keys=10, count=10, rate=None), uid="source").sink_to(CollectSink("unused"), uid="sink")


class Watched:
    """A forward pipeline of two regions, its metrics, and what they say."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.graph = ExecutionGraph(plan_pipeline(straight, None, 2, PlanOptions(job="orders", parallelism=2)))
        settings = JobSettings("orders", "default", "uid", StorageConfig("unused", Layout("default", "orders"), {}))
        self.metrics = JobMetrics(settings, self.graph, self.registry, 1)
        self.figures = VertexFigures(self.graph.graph)
        self.registry.register(VertexMetrics("orders", MetricLabels(self.graph), self.figures, clock=lambda: 100.0))
        self.runs = [RegionRun(region.id, region.slots(), 1) for region in self.graph.regions]

    def __getitem__(self, asked: str) -> float | None:
        """`name` or `name label=value …`."""
        name, *labels = asked.split()
        given = dict(label.split("=") for label in labels)
        return self.registry.get_sample_value(f"streamingjob_{name}", {"streamingjob": "orders", **given})

    def start(self, region: int, number: int) -> None:
        for observer in (self.figures, self.metrics):
            observer.starting({region: Attempt(1, number)}, None)
        self.beat(region, number)
        self.metrics.region_running(self.runs[region])

    def beat(self, region: int, number: int, **figures: float) -> None:
        [vertex] = self.graph.graph.vertices
        slot = Slot(region, number)
        for observer in (self.figures, self.metrics):
            observer.heartbeat(slot, {f"{vertex}#{slot.slot}": figures})

    def happens(self, event: str, region: int) -> None:
        for observer in (self.figures, self.metrics):
            getattr(observer, event)(self.runs[region])


class Slot:
    """As much of a connection as the figures look at. The regions of a forward pipeline have one slot each."""

    def __init__(self, region: int, attempt: int) -> None:
        self.region = self.slot = region
        self.attempt = Attempt(1, attempt)


def completed(checkpoint: int) -> tuple[Manifest, Completed, CriticalPath, str, int]:
    manifest = Manifest(checkpoint, 1, "orders", "uid", 1.0, 2.0, 128, {})
    return manifest, Completed(checkpoint, True, 1.0, 2.0, {}), NO_PATH, "uri", 10


@pytest.fixture
def job() -> Watched:
    return Watched()


def test_every_checkpoint_that_was_triggered_is_over_once(job: Watched) -> None:
    for number in (1, 2, 3):
        job.metrics.checkpoint_triggered(number)
    assert job["checkpoints_in_progress"] == 3
    job.metrics.checkpoint_triggered(3)  # again, for the head of a loop whose inputs have ended
    assert job["checkpoints_in_progress"] == 3
    job.metrics.checkpoint_aborted(Abort(1, "a region failed", {}))
    job.metrics.checkpoint_aborted(Abort(2, "too late", {}, failed=True))
    job.metrics.checkpoint_completed(*completed(3))
    assert job["checkpoints_in_progress"] == 0
    for outcome in ("completed", "failed", "aborted"):
        assert job[f"checkpoints_total outcome={outcome}"] == 1


def test_checkpoints_that_are_over_without_a_trigger_are_not_missed_below_zero(job: Watched) -> None:
    """The last one of a bounded job is made of final states; one without an id from the store is aborted at once."""
    job.metrics.checkpoint_completed(*completed(7))
    job.metrics.checkpoint_aborted(Abort(8, "storage gives out no ids", {}, failed=True))
    assert job["checkpoints_in_progress"] == 0


def test_what_is_counted_is_there_before_it_happens(job: Watched) -> None:
    """Prometheus sees no increase in a series that begins with one: the first restart would be no restart."""
    assert job["recovery_seconds_count"] == 0
    assert job["restore_seconds_count"] == 0
    assert job["checkpoint_duration_seconds_count"] == 0
    assert job["checkpoint_written_bytes_total"] == 0
    assert [job[f"region_restarts_total region=0-1 cause={cause}"] for cause in CAUSES] == [0] * len(CAUSES)
    assert [job[f"recovery_phase_seconds_count phase={phase}"] for phase in PHASES] == [0] * len(PHASES)
    assert [job[f"snapshot_seconds_count part={part}"] for part in PARTS] == [0] * len(PARTS)
    assert [job[f"checkpoint_slowest_total vertex=source part={part}"] for part in PARTS] == [0] * len(PARTS)


def test_a_new_driver_tells_of_the_checkpoint_that_it_restores(job: Watched) -> None:
    assert job["last_checkpoint_id"] is None
    job.metrics.restoring(completed(7)[0])
    assert (job["last_checkpoint_id"], job["last_checkpoint_timestamp_seconds"]) == (7, 2.0)
    assert job["last_checkpoint_duration_seconds"] is None


def test_a_region_that_is_taken_along_does_not_run(job: Watched) -> None:
    job.start(0, 1)
    job.start(1, 1)
    assert (job["regions_running"], job["slots_connected"]) == (2, 2)
    job.happens("region_stopping", 1)
    job.beat(1, 1)  # a slot that has not stopped yet
    assert (job["regions_running"], job["slots_connected"]) == (1, 1)
    job.start(1, 2)
    assert (job["regions_running"], job["slots_connected"]) == (2, 2)


def test_a_region_that_has_finished_neither_runs_nor_needs_slots(job: Watched) -> None:
    job.start(0, 1)
    job.start(1, 1)
    job.happens("region_finished", 0)
    assert (job["regions_running"], job["regions_finished"], job["regions"]) == (1, 1, 2)
    assert (job["slots_connected"], job["slots"]) == (1, 1)
    job.start(0, 2)  # what it kept was lost, and somebody needs it
    assert (job["regions_running"], job["regions_finished"], job["slots"]) == (2, 0, 2)


def test_attempts_are_those_of_the_region_that_needed_most(job: Watched) -> None:
    assert job["region_attempts region=0-1"] == 1
    for number in (1, 2, 3):
        job.start(0, number)
    job.start(1, 2)
    assert job["region_attempts region=0-1"] == 3


def test_state_and_lag_of_a_region_go_with_it_and_counters_stay(job: Watched) -> None:
    for region in (0, 1):
        job.start(region, 1)
        job.beat(region, 1, rows_out=100, state_keys=5, lag=7, watermark=(90 - region) * 1000)
    assert job["state_keys vertex=source"] == 10
    assert job["watermark_lag_seconds vertex=source"] == 11
    job.happens("region_finished", 1)
    assert job["records_out_total vertex=source"] == 200
    assert job["state_keys vertex=source"] == 5
    assert job["source_lag_records vertex=source"] == 7
    assert job["watermark_lag_seconds vertex=source"] == 10
    job.happens("region_stopping", 0)
    job.beat(0, 1, rows_out=110, state_keys=5, lag=7)
    assert job["records_out_total vertex=source"] == 210
    assert job["state_keys vertex=source"] == 0
    assert job["source_lag_records vertex=source"] is None


def test_counters_go_on_over_attempts(job: Watched) -> None:
    for number in (1, 2, 3):
        job.start(0, number)
        job.beat(0, number, rows_out=100, late_rows=2)
    assert job["records_out_total vertex=source"] == 300
    assert job["late_rows_total vertex=source"] == 6


def test_the_critical_path_shows_the_last_checkpoint_only(job: Watched) -> None:
    job.metrics.checkpoints._show_path(CriticalPath(1.0, (Step(SubtaskId("source", 0), 0.1, 0.2, 0.3, 0.4),)))
    assert job["checkpoint_critical_seconds vertex=source part=async"] == 0.4
    job.metrics.checkpoints._show_path(NO_PATH)
    assert job["checkpoint_critical_seconds vertex=source part=async"] is None


@pytest.mark.parametrize("seconds", [0.0013, 0.02, 0.05, 1.5, 90.0, 300.0])
def test_buckets_tell_quick_and_slow_checkpoints_apart(seconds: float) -> None:
    """An estimate from buckets is off by no more than their width: three times at most, from 1 ms to half an hour."""
    below = max((edge for edge in SECONDS if edge < seconds), default=0.0)
    above = min(edge for edge in SECONDS if edge >= seconds)
    assert above <= 3 * below
