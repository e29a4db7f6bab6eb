"""`streamingjob driver`: what a driver pod runs. Its exit code and its termination report are for the operator."""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from pathlib import Path

import click

from snapshot_engine.cli.errors import exit_code_of
from snapshot_engine.runtime import driver
from snapshot_engine.runtime.job_result import JobResult
from snapshot_engine.wire.status import (
    MAX_TERMINATION_MESSAGE_BYTES,
    TERMINATION_MESSAGE_PATH,
    ExitCode,
    JobStatus,
    Phase,
    TerminationReport,
)

log = logging.getLogger(__name__)

CRASH = 1
LONGEST_ERROR = 2000
MOST_BYTES_OF_A_CHARACTER = 6
"""As in \\u0001."""


def drive() -> int:
    """Runs the job of the mounted manifest; returns the exit code."""
    launch = driver.Launch.from_environment(os.environ)
    seen = driver.LastSeen()
    try:
        job = driver.load_job()
        result = driver.run_driver(job, launch, seen)
    except Exception as error:
        return _fail(error, launch.generation, seen.status)
    _leave(_report_of(result, launch.generation, seen.status))
    log.info("%s", result.sentence)
    return int(result.exit_code)


def check() -> int:
    """Plans the job of the mounted manifest and runs nothing."""
    try:
        driver.check_plan(driver.load_job())
    except Exception as error:
        return _fail(error, 0, None)
    _leave(TerminationReport(phase=Phase.FINISHED))
    return int(ExitCode.FINISHED)


def clean() -> int:
    try:
        driver.delete_state(driver.load_job())
    except Exception as error:
        return _fail(error, 0, None)
    _leave(TerminationReport(phase=Phase.FINISHED))
    return int(ExitCode.FINISHED)


def _fail(error: Exception, generation: int, status: JobStatus | None) -> int:
    code = exit_code_of(error)
    if code is None:
        traceback.print_exception(error)
    click.secho(f"error: {error}", fg="red", err=True)
    message = str(error) if code is not None else f"{type(error).__name__}: {error}"
    _leave(_describe(Phase.FAILED, generation, status, message))
    return code if code is not None else CRASH


def _report_of(result: JobResult, generation: int, status: JobStatus | None) -> TerminationReport:
    phase = driver.phase_of(result)
    error = "\n".join([result.message, *result.history]) if phase is Phase.FAILED else None
    report = _describe(phase, generation, status, error)
    report.savepoint_path = result.savepoint
    return report


def _describe(phase: Phase, generation: int, status: JobStatus | None, error: str | None) -> TerminationReport:
    checkpoint = status.checkpoint if status is not None else None
    return TerminationReport(
        generation=generation,
        phase=phase,
        last_completed_checkpoint=checkpoint.last_completed_id if checkpoint else None,
        checkpoint_path=checkpoint.path if checkpoint else None,
        restarts=status.restarts if status is not None else 0,
        error=error[:LONGEST_ERROR] if error else None,
    )


def _leave(report: TerminationReport) -> None:
    """Kubernetes keeps what is written there with the pod."""
    with contextlib.suppress(OSError):  # not in a pod
        Path(TERMINATION_MESSAGE_PATH).write_bytes(_as_much_as_is_kept(report))


def _as_much_as_is_kept(report: TerminationReport) -> bytes:
    text = report.model_dump_json(by_alias=True, exclude_none=True).encode()
    excess = len(text) - MAX_TERMINATION_MESSAGE_BYTES
    if excess <= 0 or not report.error:
        return text
    # Never too much at once: no character takes more bytes in JSON.
    end = len(report.error) - max(excess // MOST_BYTES_OF_A_CHARACTER, 1)
    return _as_much_as_is_kept(report.model_copy(update={"error": report.error[:end]}))
