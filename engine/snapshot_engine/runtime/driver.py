"""The driver in its pod, as the operator launches it. Its last word is the termination report."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.graph.job_plan import plan
from snapshot_engine.graph.slots_at_once import slots_at_once
from snapshot_engine.runtime.embedded import RunningJob, open_job_store, running_job, ship_local_modules
from snapshot_engine.runtime.executor_count import executors_for
from snapshot_engine.runtime.job_master import JobMaster
from snapshot_engine.runtime.job_result import JobResult
from snapshot_engine.runtime.job_settings import JobSettings, savepoint_path, settings_of
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.runtime.restore import Restore
from snapshot_engine.runtime.spark_settings import DriverPod, kubernetes_settings
from snapshot_engine.runtime.starting_checkpoint import refuse_lost_checkpoints
from snapshot_engine.storage.probe import refuse_unusable
from snapshot_engine.wire import control
from snapshot_engine.wire.control import Environment
from snapshot_engine.wire.manifest import load_manifest
from snapshot_engine.wire.quantities import ACCEPTED_BEFORE
from snapshot_engine.wire.spec import StorageSpec, StreamingJob, UpgradeMode
from snapshot_engine.wire.status import JobStatus, Phase

LAST_CHECKPOINT_SECONDS = 10.0
"""A pod that is deleted has half a minute; a checkpoint that takes longer is not waited for."""


@dataclass(frozen=True)
class Launch:
    """What the operator tells its driver besides the manifest."""

    generation: int
    pod: DriverPod
    restore_id: str | None = None
    restore_from: str | None = None
    ignore_state: bool = False
    expected_checkpoint: str | None = None

    @classmethod
    def from_environment(cls, given: Mapping[str, str]) -> Launch:
        generation = int(given.get(Environment.GENERATION, "0"))
        pod = DriverPod(given.get(Environment.POD_NAME, ""), given.get(Environment.POD_IP, "127.0.0.1"), generation)
        return cls(
            generation=generation,
            pod=pod,
            restore_id=given.get(Environment.RESTORE_ID),
            restore_from=given.get(Environment.RESTORE_FROM),
            ignore_state=given.get(Environment.IGNORE_STATE) == "true",
            expected_checkpoint=given.get(Environment.EXPECTED_CHECKPOINT),
        )


def load_job() -> StreamingJob:
    """The operator has accepted it, be it one of an earlier release."""
    return load_manifest(control.MANIFEST_PATH, context=ACCEPTED_BEFORE)


def plan_job(job: StreamingJob) -> JobGraph:
    """Raises what a person can act on if the pipeline cannot be run."""
    code = job.spec.pipeline.config_map
    text = (Path(control.PIPELINE_DIRECTORY) / code.key).read_text(encoding="utf-8") if code is not None else None
    return plan(job, folder=None, config_map=text)


def settings_for(job: StreamingJob, launch: Launch) -> JobSettings:
    """What to restore is the operator's decision alone: a value left in the spec must not rewind the job."""
    storage = job.spec.checkpoint.storage or StorageSpec(uri="/nowhere")
    return dataclasses.replace(
        settings_of(job, storage.root),
        driver=launch.generation,
        restore_id=launch.restore_id,
        restore_from=savepoint_path(launch.restore_from) if launch.restore_from else None,
        ignore_state=launch.ignore_state,
        expected_checkpoint=launch.expected_checkpoint,
        take_over=launch.restore_from is not None,
        slot_port=control.SLOT_PORT,
    )


def check_plan(job: StreamingJob) -> None:
    """Before a running job is stopped for it: can the pipeline be planned, can the executors hold it, and does it fit
    the state that it would start from?"""
    graph = ExecutionGraph(plan_job(job))
    executors_for(job.spec, slots_at_once(graph))
    settings = settings_for(job, Launch.from_environment(os.environ))
    if _plans_without_state(job):
        return
    store = open_job_store(settings)
    if settings.restore_from is not None or store.latest() is not None:
        Restore(store.load(settings.restore_from), graph, settings.allow_non_restored_state)


def _plans_without_state(job: StreamingJob) -> bool:
    """The manifest is of the day when its spec was first seen, and the mode may have changed since; only an operator of
    the release before leaves it at that."""
    said = os.environ.get(Environment.IGNORE_STATE)
    return said == "true" if said is not None else job.spec.upgrade_mode is UpgradeMode.STATELESS


def delete_state(job: StreamingJob) -> None:
    """Everything of the job but its savepoints, which are the user's."""
    settings = settings_for(job, Launch.from_environment(os.environ))
    open_job_store(settings).delete_all_but_savepoints(settings.uid)


def run_driver(job: StreamingJob, launch: Launch, seen: LastSeen) -> JobResult:
    graph = ExecutionGraph(plan_job(job))
    instances = executors_for(job.spec, slots_at_once(graph))
    settings = settings_for(job, launch)
    # Told before Spark takes its seconds, and before anything is written that what is put back would meet.
    refuse_unusable(settings.storage)
    refuse_lost_checkpoints(settings, open_job_store(settings))
    launcher = _launch_spark(job, graph.graph, launch, instances)
    try:
        return asyncio.run(_run(settings, graph, launcher, seen))
    finally:
        launcher.close()


def _launch_spark(job: StreamingJob, graph: JobGraph, launch: Launch, instances: int) -> SlotLauncher:
    from snapshot_engine.runtime.spark import SparkLauncher, context_of

    ship_local_modules(graph)
    template: dict[str, Any] = yaml.safe_load(Path(control.EXECUTOR_TEMPLATE_PATH).read_text(encoding="utf-8"))
    context = context_of(kubernetes_settings(job, launch.pod, template, instances))
    return SparkLauncher(context, launch.pod.ip, instances)


@dataclass
class LastSeen:
    """How the job stood when the driver ended: for the termination report."""

    job: RunningJob | None = None

    @property
    def status(self) -> JobStatus | None:
        return self.job.board.status if self.job is not None else None


async def _run(settings: JobSettings, graph: ExecutionGraph, launcher: SlotLauncher, seen: LastSeen) -> JobResult:
    token = (Path(control.SECRETS_DIRECTORY) / control.CONTROL_TOKEN_FILE).read_text(encoding="utf-8").strip()
    running = running_job(settings, graph, launcher, host="0.0.0.0", port=control.CONTROL_PORT, token=token)
    async with running as (job, task):
        seen.job = job
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stop_soon, job.master)
        return await task


def _stop_soon(master: JobMaster) -> None:
    if not master.stopping:
        master.stop()
    asyncio.get_running_loop().call_later(LAST_CHECKPOINT_SECONDS, master.cancel, "ended without a last checkpoint")


def phase_of(result: JobResult) -> Phase:
    return Phase(result.outcome.value.capitalize()) if result.outcome.value != "fenced" else Phase.FAILED
