"""`status`: how a running job is, once or until it has ended; as a table, as lines, or as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import click
from rich.live import Live

from snapshot_engine.cli.console import console
from snapshot_engine.cli.control import JobClient
from snapshot_engine.cli.status_table import AT_WORK, human_bytes, human_seconds, slowest_of, status_table
from snapshot_engine.wire import control
from snapshot_engine.wire.manifest import ManifestError
from snapshot_engine.wire.status import CheckpointOutcome, JobStatus

PAUSE_SECONDS = 0.5


def show_status(client: JobClient, output: str) -> None:
    answer = client.get(control.STATUS_PATH)
    if output == "json":
        click.echo(json.dumps(answer["status"], indent=2))
        return
    console().print(status_table(_status_in(answer), client.url))


def watch_status(client: JobClient, output: str) -> None:
    """Returns when the job does not answer any more, because it has ended."""
    if output == "json":
        for answer in _answers(client):
            click.echo(json.dumps(answer["status"]))
    elif sys.stdout.isatty():
        with Live(auto_refresh=False) as live:
            for answer in _answers(client):
                live.update(status_table(_status_in(answer), client.url), refresh=True)
    else:
        _say_changes(_status_in(answer) for answer in _answers(client))


def _answers(client: JobClient) -> Iterator[Any]:
    yield client.get(control.STATUS_PATH)  # a job that is not there at all is an error
    while True:
        time.sleep(PAUSE_SECONDS)
        try:
            answer = client.get(control.STATUS_PATH)
        except ManifestError:
            return
        yield answer


def _status_in(answer: Any) -> JobStatus:
    return control.StatusResponse.model_validate(answer).status


def _say_changes(statuses: Iterator[JobStatus]) -> None:
    said = ""
    for status in statuses:
        line = _line(status)
        if line != said:
            click.echo(line)
            said = line


def _line(status: JobStatus) -> str:
    up = sum(region.state in AT_WORK for region in status.regions)
    words = [status.name, status.phase.value, f"regions {up}/{len(status.regions)}", f"restarts {status.restarts}"]
    completed = [e for e in status.checkpoint.history if e.outcome is CheckpointOutcome.COMPLETED]
    if completed:
        last = completed[0]
        took, size = human_seconds(last.duration_seconds or 0.0), human_bytes(last.full_size_bytes or 0)
        slowest = f", slowest {slowest_of(last)}" if last.slowest is not None else ""
        words.append(f"checkpoint {last.id} in {took}, {size}{slowest}")
    return "  ".join(words)
