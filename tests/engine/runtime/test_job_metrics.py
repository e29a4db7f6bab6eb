"""What a job's metrics say after it has run, failed and recovered; and how many series they can become."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import Completed
from snapshot_engine.protocol.critical_path import PARTS, CriticalPath, Step
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.job_metrics import JobMetrics
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.region_metrics import CAUSES
from snapshot_engine.runtime.restart_history import PHASES
from snapshot_engine.runtime.vertex_figures import COUNTED, SUMMED, VertexFigures
from snapshot_engine.runtime.vertex_metrics import VertexMetrics
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.pieces import StorageConfig
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline
from snapshot_engine.wire.status import RestartEntry


class Scraped:
    """The last answer of a job's /metrics."""

    def __init__(self) -> None:
        self.text = ""

    def scrape(self, job: RunningJob) -> None:
        self.text = generate_latest(job.api.registry).decode()

    def of(self, name: str, **labels: str) -> float:
        """The sum over all series of that name with these labels."""
        found = [
            sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert found, f"no {name} with {labels} in\n{self.text}"
        return sum(found)


def windows(out: CollectSink):
    def pipeline(env: Environment) -> None:
        (
            env.from_source(bids(keys=50, count=10_000_000, rate=10_000, events_per_second=10_000), uid="bids")
            .with_watermark("ts", delay="1s")
            .key_by("auction")
            .window(Tumbling("1s"))
            .aggregate(bids=Count(), total=Sum("price"))
            .uid("windows")
            .sink_to(out, uid="out")
        )

    return pipeline


def test_a_job_that_was_killed_tells_of_checkpoints_records_restarts_and_each_phase_of_recovery(tmp_path: Path) -> None:
    seen, killed = Scraped(), []

    async def kill_and_look(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 3:
            await asyncio.sleep(0.02)
        killed.append(kill_a_slot(job, random.Random(1)))
        while not any("first_output" in entry.phases for entry in job.board.status.restart_history):
            await asyncio.sleep(0.02)
        seen.scrape(job)
        while not seen.of("streamingjob_sink_commits_total") or "\nstreamingjob_watermark_timestamp" not in seen.text:
            await asyncio.sleep(0.1)
            seen.scrape(job)
        job.master.stop()

    result = run_pipeline(
        windows(CollectSink(tmp_path / "out")), storage=tmp_path / "ck", parallelism=2, meanwhile=kill_and_look
    )
    assert result.outcome is Outcome.STOPPED
    assert killed
    assert seen.of("streamingjob_checkpoints_total", outcome="completed") >= 3
    assert seen.of("streamingjob_checkpoint_duration_seconds_count") >= 3
    assert seen.of("streamingjob_last_checkpoint_full_size_bytes") >= seen.of(
        "streamingjob_last_checkpoint_written_bytes"
    )
    assert seen.of("streamingjob_records_out_total", vertex="bids") > 0
    assert seen.of("streamingjob_records_in_total") > 0
    assert seen.of("streamingjob_watermark_timestamp_seconds") > 0
    assert seen.of("streamingjob_source_lag_records", vertex="bids") >= 0
    restarts = seen.of("streamingjob_region_restarts_total", region="0")
    assert restarts >= 1  # a slot that is slow to start on a busy machine may be lost again
    for phase in PHASES:
        assert 1 <= seen.of("streamingjob_recovery_phase_seconds_count", phase=phase) <= restarts, phase
    phases = sum(seen.of("streamingjob_recovery_phase_seconds_sum", phase=phase) for phase in PHASES)
    assert seen.of("streamingjob_recovery_seconds_sum") == pytest.approx(phases)
    assert seen.of("streamingjob_sink_commits_total") > 0
    assert seen.of("streamingjob_sink_aborts_total") == 2
    assert seen.of("streamingjob_checkpoint_slowest_total") >= 3
    assert sum(seen.of("streamingjob_checkpoint_critical_seconds", part=part) for part in PARTS) > 0


def test_rows_that_are_dropped_because_they_are_late_are_told_by_vertex(tmp_path: Path) -> None:
    """Of ten rows one is an hour behind the others."""
    seen, told = Scraped(), []
    times = lambda offsets: np.where(offsets % 10 == 9, offsets, offsets + 3_600_000).astype(np.int64)  # noqa: E731

    def pipeline(env: Environment) -> None:
        source = GeneratorSource({"key": lambda offsets: offsets % 3, "ts": times}, splits=1, rate=2000)
        stream = env.from_source(source, uid="rows").with_watermark("ts").key_by("key").window(Tumbling("10ms"))
        stream.aggregate(n=Count()).uid("windows").sink_to(CollectSink(tmp_path / "out"), uid="out")

    async def look(job: RunningJob) -> None:
        while not any(vertex.late_rows for vertex in job.board.status.vertices):
            await asyncio.sleep(0.02)
        seen.scrape(job)
        told.extend((vertex.name, vertex.late_rows > 0) for vertex in job.board.status.vertices)
        job.master.stop()

    result = run_pipeline(pipeline, storage=tmp_path / "ck", meanwhile=look)
    assert result.outcome is Outcome.STOPPED, result.message
    assert dict(told) == {"rows": False, "windows": True}
    assert seen.of("streamingjob_late_rows_total", vertex="windows") > 0
    assert seen.of("streamingjob_late_rows_total", vertex="rows") == 0


def test_counters_go_on_when_a_region_restarts(tmp_path: Path) -> None:
    counts: list[float] = []

    async def kill_and_look(job: RunningJob) -> None:
        seen = Scraped()
        while job.board.status.checkpoint.completed < 3 or "streamingjob_records_out_total{" not in seen.text:
            seen.scrape(job)  # the first figures come with a heartbeat
            await asyncio.sleep(0.02)
        kill_a_slot(job, random.Random(1))
        while len(counts) < 20 or job.board.status.regions[0].attempt < 2 or counts[-1] == counts[0]:
            seen.scrape(job)
            counts.append(seen.of("streamingjob_records_out_total", vertex="bids"))
            await asyncio.sleep(0.05)
        job.master.stop()

    run_pipeline(
        windows(CollectSink(tmp_path / "out")), storage=tmp_path / "ck", parallelism=2, meanwhile=kill_and_look
    )
    assert counts == sorted(counts)


def forward(env: Environment) -> None:
    for number in range(8):
        stream = env.from_source(bids(keys=10, count=10, rate=None), uid=f"source-{number}")
        for step in range(4):
            stream = stream.filter(lambda row: True).rebalance() if step == 2 else stream.filter(lambda row: True)
        stream.sink_to(CollectSink("unused"), uid=f"sink-{number}")


def straight(env: Environment) -> None:
    env.from_source(bids(keys=10, count=10, rate=None), uid="source").sink_to(CollectSink("unused"), uid="sink")


def wide(env: Environment) -> None:
    for number in range(60):
        source = env.from_source(bids(keys=10, count=10, rate=None), uid=f"source-{number}")
        source.rebalance().sink_to(CollectSink("unused"), uid=f"sink-{number}")


@pytest.mark.parametrize("pipeline", [straight, forward, wide])
def test_parallelism_128_gives_fewer_than_2000_series(pipeline) -> None:
    graph = ExecutionGraph(plan_pipeline(pipeline, None, 128, PlanOptions(job="wide", parallelism=128)))
    registry = CollectorRegistry()
    everything_has_happened(graph, registry)
    series = [sample for family in registry.collect() for sample in family.samples]
    assert len(series) < 2000
    regions = {sample.labels["region"] for sample in series if "region" in sample.labels}
    assert len(regions) <= len(graph.graph.vertices)
    assert not [s for s in series if "region" in s.labels and s.name.endswith("_bucket")]
    assert not [s for s in series if {"job", "namespace"} & s.labels.keys()]


def test_regions_of_a_forward_pipeline_share_one_label() -> None:
    graph = ExecutionGraph(plan_pipeline(straight, None, 128, PlanOptions(job="f", parallelism=128)))
    labels = MetricLabels(graph)
    assert {labels.region(region.id) for region in graph.regions} == {"0-127"}


class Slot:
    """As much of a connection as the figures look at."""

    def __init__(self, region: int, slot: int) -> None:
        self.region, self.slot, self.attempt = region, slot, Attempt(1, 1)


def everything_has_happened(graph: ExecutionGraph, registry: CollectorRegistry) -> None:
    """Every region restarted for every cause, every vertex was the slowest, every figure was told."""
    settings = JobSettings("wide", "default", "uid", StorageConfig("unused", Layout("default", "wide"), {}))
    figures, metrics = VertexFigures(graph.graph), JobMetrics(settings, graph, registry, 1)
    registry.register(VertexMetrics("wide", MetricLabels(graph), figures))
    told = dict.fromkeys((*COUNTED, *SUMMED), 1.0) | {"watermark": 1000}
    for region in graph.regions:
        for slot in region.slots():
            hosted = {f"{subtask.vertex}#{subtask.index}": told for subtask in region.hosted_by(slot)}
            figures.heartbeat(Slot(region.id, slot), hosted)
            metrics.heartbeat(Slot(region.id, slot), hosted)
        for cause in CAUSES:
            entry = RestartEntry(region=str(region.id), cause=cause, failed_at="2026-01-01T00:00:00Z")
            metrics.regions.restart_begun(entry)
            entry.phases, entry.seconds = dict.fromkeys(PHASES, 0.1), 0.6
            metrics.regions.restart_settled(entry)
    for subtask in graph.subtasks:
        metrics.checkpoints._show_path(CriticalPath(0.4, (Step(subtask, 0.1, 0.1, 0.1, 0.1),)))
    path = CriticalPath(1.0, tuple(Step(subtask, 0.1, 0.1, 0.1, 0.1) for subtask in graph.subtasks))
    manifest = Manifest(1, 1, "wide", "uid", 1.0, 2.0, 128, {})
    metrics.checkpoint_completed(manifest, Completed(1, True, 1.0, 2.0, {}), path, "uri", 1)
