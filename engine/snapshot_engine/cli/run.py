"""`streamingjob run`: a manifest on an embedded Spark, watched in the terminal."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import click

from snapshot_engine.cli import running
from snapshot_engine.cli.leaving import stopping_signals
from snapshot_engine.cli.view import View
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan
from snapshot_engine.runtime.embedded import launch_on_spark, open_job_store, running_job, slots_of, storage_uri_of
from snapshot_engine.runtime.job_master import JobMaster
from snapshot_engine.runtime.job_result import JobResult, Outcome
from snapshot_engine.runtime.job_settings import JobSettings, savepoint_path, settings_of
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.runtime.restore import Restore
from snapshot_engine.runtime.starting_checkpoint import starting_checkpoint
from snapshot_engine.storage.probe import refuse_unusable
from snapshot_engine.wire.manifest import load_manifest


def run_manifest(
    manifest: Path,
    overrides: Sequence[str],
    restore: str | None,
    seconds: float | None,
    port: int,
    view: View,
) -> int:
    """Returns the exit code."""
    job = load_manifest(manifest, overrides)
    graph = plan(job, folder=manifest.resolve().parent)
    for warning in graph.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    execution = ExecutionGraph(graph)
    settings = settings_of(job, storage_uri_of(job, manifest.resolve().parent))
    if restore is not None:
        settings = dataclasses.replace(settings, restore_id=None, restore_from=savepoint_path(restore), take_over=True)
    # Told before Spark takes its seconds to start.
    running.refuse_second(job, manifest)
    running.refuse_taken_port(port)
    refuse_unusable(settings.storage)
    start = starting_checkpoint(settings, open_job_store(settings), view.say)
    Restore(start, execution, settings.allow_non_restored_state)
    slots, regions = slots_of(execution), len(execution.regions)
    view.say(f"{job.metadata.name}: {regions} region(s) on {slots} slot(s); starting Spark …")
    launcher = launch_on_spark(graph, execution, job.spec.spark_conf)
    file = running.address_file(job, manifest)
    try:
        result = asyncio.run(_run(settings, execution, launcher, view, seconds, port, file))
    finally:
        for number in stopping_signals():  # the job is over: nothing is left to be stopped, and the rest is tidying up
            signal.signal(number, signal.SIG_IGN)
        running.withdraw(file)
        launcher.close()
    return _tell(result, view)


async def _run(
    settings: JobSettings,
    graph: ExecutionGraph,
    launcher: SlotLauncher,
    view: View,
    seconds: float | None,
    port: int,
    file: Path,
) -> JobResult:
    async with running_job(settings, graph, launcher, view, port=port) as (job, task):
        running.announce(file, job.api.port, job.token)
        _stop_on_signals(job.master)
        if seconds is not None:
            asyncio.get_running_loop().call_later(seconds, job.master.stop)
        with view.showing(job.board, job.api.port):
            result = await task
            # While the job can still be asked: who waits for its end shall not find neither it nor its last word.
            running.leave_word(file, job.token, result)
            return result


def _stop_on_signals(master: JobMaster) -> None:
    """The first Ctrl-C asks for a last checkpoint, the second one does not wait for it."""
    terminals = [file for file in (1, 2) if os.isatty(file)]

    def stop() -> None:
        _let_go([file for file in terminals if not os.isatty(file)])
        if master.stopping:
            master.cancel("stopped without a last checkpoint")
        else:
            master.stop()

    for number in stopping_signals():
        asyncio.get_running_loop().add_signal_handler(number, stop)


def _let_go(closed: Sequence[int]) -> None:
    """What is written to a terminal that was closed is an error, and would be how the job ended."""
    for file in closed:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, file)
        os.close(nowhere)


def _tell(result: JobResult, view: View) -> int:
    good = result.outcome in (Outcome.FINISHED, Outcome.STOPPED)
    view.say(result.sentence, good)
    if result.savepoint:
        view.say(f"savepoint: {result.savepoint}")
    for entry in result.history:
        view.say(f"  {entry}", good=False)
    return running.code_of(result)
