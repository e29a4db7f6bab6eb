"""Runs a StreamingJob manifest in this process: the same JobMaster, regions and recovery as on Kubernetes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry

from snapshot_engine.connectors.protocols import SweptJob
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.runtime.commits import Committer
from snapshot_engine.runtime.http_api import HttpApi
from snapshot_engine.runtime.job_events import EventFan, JobEvents
from snapshot_engine.runtime.job_master import JobMaster
from snapshot_engine.runtime.job_metrics import JobMetrics
from snapshot_engine.runtime.job_result import JobResult, Outcome
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.runtime.metric_labels import MetricLabels
from snapshot_engine.runtime.restart_history import RestartHistory, recall_restarts
from snapshot_engine.runtime.starting_checkpoint import goes_on, readable_manifests
from snapshot_engine.runtime.status_board import StatusBoard
from snapshot_engine.runtime.vertex_figures import VertexFigures
from snapshot_engine.runtime.vertex_metrics import VertexMetrics
from snapshot_engine.storage import layout
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.errors import StorageError
from snapshot_engine.wire.spec import StreamingJob

log = logging.getLogger(__name__)

DEFAULT_STORAGE = ".streamingjob/checkpoints"


@dataclass
class RunningJob:
    """What can be watched and steered while a job runs."""

    master: JobMaster
    board: StatusBoard
    api: HttpApi
    token: str


def storage_uri_of(job: StreamingJob, folder: Path) -> str:
    """A relative path is relative to the manifest; without any storage, checkpoints lie beside it."""
    storage = job.spec.checkpoint.storage
    uri = storage.uri if storage is not None and storage.uri else DEFAULT_STORAGE
    if "://" in uri:
        return uri
    return str((folder / uri).resolve())


def open_job_store(settings: JobSettings) -> CheckpointStore:
    return CheckpointStore(settings.storage.open(), settings.namespace, settings.name, restore_id=settings.restore_id)


def slots_of(graph: ExecutionGraph) -> int:
    return sum(len(region.slots()) for region in graph.regions)


def launch_on_spark(graph: JobGraph, execution: ExecutionGraph, conf: dict[str, str]) -> SlotLauncher:
    """An embedded Spark with room for all regions. Takes some seconds."""
    from snapshot_engine.runtime.spark import SparkLauncher, embedded_context

    ship_local_modules(graph)
    return SparkLauncher(embedded_context(graph.name, slots_of(execution), conf))


def ship_local_modules(graph: JobGraph) -> None:
    """Code that the slots cannot import goes to them with their tasks."""
    from snapshot_engine.runtime.spark import ship_by_value

    for name in graph.options.get("local_modules", ()):
        ship_by_value(importlib.import_module(name))


def materialise_sources(graph: JobGraph, settings: JobSettings, restored: bool) -> None:
    """Rows that only the driver has, those of a DataFrame, are put where the slots can read them."""
    for vertex in graph.vertices.values():
        for node in vertex.operators:
            if hasattr(node.source, "materialise"):
                place = settings.storage.where.absolute(layout.source_folder(node.uid))
                node.source.materialise(f"{settings.storage.uri.rstrip('/')}/{place}", restored)


async def tidy_up(end: JobResult, settings: JobSettings, graph: JobGraph, store: CheckpointStore) -> None:
    """After an end in good order nobody will commit what slots have staged that were killed on the way: their
    successors have written it again. Else a checkpoint may just be completing, and the next driver sweeps.
    """
    if end.outcome not in (Outcome.FINISHED, Outcome.STOPPED) or end.cut_short:
        return
    lineage = store.lineage
    try:
        kept = await asyncio.to_thread(readable_manifests, store)
    except (StorageError, OSError) as error:
        log.warning("what slots have staged is left to the next driver: %s", error)
        return
    committer = Committer(graph, SweptJob(settings.name, lineage.id, lineage.since))
    await committer.sweep(store.generation + 1, kept)


@asynccontextmanager
async def running_job(
    settings: JobSettings,
    graph: ExecutionGraph,
    launcher: SlotLauncher,
    *observers: JobEvents,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
) -> AsyncIterator[tuple[RunningJob, asyncio.Task[JobResult]]]:
    """The job, started, with its control API. It is over when the task is."""
    store = open_job_store(settings)
    await asyncio.to_thread(
        store.acquire, settings.uid, settings.take_over, driver=settings.driver, restore_id=settings.restore_id
    )
    await asyncio.to_thread(materialise_sources, graph.graph, settings, goes_on(settings, store))
    registry = CollectorRegistry()
    figures = VertexFigures(graph.graph)
    board = StatusBoard(settings, graph, figures, settings.driver or store.generation, launcher.application_id)
    board.recall(store.history(), recall_restarts(store.restarts()))
    metrics = JobMetrics(settings, graph, registry, store.generation)
    registry.register(VertexMetrics(settings.name, MetricLabels(graph), figures))
    restarts = RestartHistory(
        begun=[board.restart_begun, metrics.regions.restart_begun],
        settled=[metrics.regions.restart_settled, lambda entry: store.note_restart(entry.to_wire())],
    )
    events = EventFan(figures, board, metrics, restarts, *observers)
    master = JobMaster(settings, graph, store, launcher, secrets.token_bytes(32), events)
    chosen = token or secrets.token_urlsafe(24)
    api = HttpApi(master, board, registry, chosen)
    await api.start(host, port)
    task = asyncio.create_task(master.run(), name="job")
    try:
        yield RunningJob(master, board, api, chosen), task
    finally:
        if not task.done():
            master.cancel()
        await asyncio.wait({task})
        await api.close()
        if not task.cancelled() and task.exception() is None:
            await tidy_up(task.result(), settings, graph.graph, store)
        with contextlib.suppress(StorageError, OSError):  # the ids it would give back are only a gap otherwise
            await asyncio.to_thread(store.release)


def run_to_end(
    settings: JobSettings,
    graph: ExecutionGraph,
    launcher: SlotLauncher,
    *observers: JobEvents,
    meanwhile: Callable[[RunningJob], object] | None = None,
) -> JobResult:
    """Run a job until it has ended; `meanwhile` is called (and awaited, if it is a coroutine) once it has started.

    What `meanwhile` raises ends the job, and is raised here. It is cancelled if the job ends before it.
    """

    async def run() -> JobResult:
        async with running_job(settings, graph, launcher, *observers) as (job, task):
            outcome = meanwhile(job) if meanwhile is not None else None
            if asyncio.iscoroutine(outcome):
                await _beside(task, asyncio.create_task(outcome))
            return await task

    return asyncio.run(run())


async def _beside(job: asyncio.Task[JobResult], side: asyncio.Task[object]) -> None:
    """Until the job has ended, or `side` has raised."""
    await asyncio.wait({job, side}, return_when=asyncio.FIRST_COMPLETED)
    if side.done():
        side.result()
    else:
        side.cancel()
