"""What `run` shows while a job runs: a live table on a terminal, plain lines otherwise."""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.status_board import StatusBoard
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.status import JobStatus

SHOWN_CHECKPOINTS = 5
REFRESH_SECONDS = 0.25


def wants_live_view() -> bool:
    return sys.stdout.isatty()


class View(JobEvents):
    @contextmanager
    def showing(self, board: StatusBoard, port: int) -> Iterator[None]:
        """For as long as the job runs."""
        yield


class LineView(View):
    """One line for each thing that happens."""

    @contextmanager
    def showing(self, board: StatusBoard, port: int) -> Iterator[None]:
        _say(f"control API and metrics: http://127.0.0.1:{port}")
        yield

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        regions = ", ".join(f"{region} (attempt {attempt.number})" for region, attempt in attempts.items())
        _say(f"starting region {regions} from {_from(checkpoint)}")

    def all_running(self) -> None:
        _say("all regions run")

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str) -> None:
        _say(f"region {run.region} failed: {cause}: {message}")
        if traceback:
            click.echo(traceback.rstrip())

    def region_finished(self, run: RegionRun) -> None:
        _say(f"region {run.region} has finished")

    def checkpoint_completed(self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str) -> None:
        what = f"savepoint {outcome.savepoint}" if outcome.savepoint else f"checkpoint {outcome.checkpoint}"
        milliseconds = 1000 * (outcome.completed_at - outcome.triggered_at)
        slowest = f", slowest {path.slowest.subtask}" if path.slowest else ""
        _say(f"{what} completed in {milliseconds:.0f} ms, {human_bytes(manifest.size())}{slowest}")

    def checkpoint_aborted(self, action: Abort) -> None:
        _say(f"checkpoint {action.checkpoint} aborted: {action.reason}")


class LiveView(View):
    """A table that is drawn anew a few times each second; failures stay above it."""

    def __init__(self) -> None:
        self._rates = Rates()
        self._live: Live | None = None

    @contextmanager
    def showing(self, board: StatusBoard, port: int) -> Iterator[None]:
        stop = threading.Event()
        with Live(auto_refresh=False, transient=False) as live:
            self._live = live

            def draw() -> None:
                while not stop.wait(REFRESH_SECONDS):
                    live.update(status_table(board.status, self._rates.of(board.figures), port), refresh=True)

            thread = threading.Thread(target=draw, daemon=True)
            thread.start()
            try:
                yield
            finally:
                stop.set()
                thread.join(1.0)
                live.update(status_table(board.status, self._rates.of(board.figures), port), refresh=True)

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str) -> None:
        if self._live is not None:
            self._live.console.print(Text(f"region {run.region} failed: {cause}: {message}", style="red"))
            if traceback:
                self._live.console.print(Text(traceback.rstrip(), style="dim"))


class Rates:
    """Rows per second of each vertex, from what its subtasks say with their heartbeats."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, int, int]] = {}
        self._shown: dict[str, tuple[float, float]] = {}

    def of(self, figures: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float]]:
        """(rows in per second, rows out per second) by vertex."""
        now = time.monotonic()
        for vertex, (rows_in, rows_out) in _by_vertex(figures).items():
            then, before_in, before_out = self._before.get(vertex, (now, rows_in, rows_out))
            if now - then >= 1.0:
                passed = now - then
                self._shown[vertex] = ((rows_in - before_in) / passed, (rows_out - before_out) / passed)
            if now - then >= 1.0 or vertex not in self._before:
                self._before[vertex] = (now, rows_in, rows_out)
        return self._shown


def _by_vertex(figures: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for key, figure in list(figures.items()):
        vertex = key.rpartition("#")[0]
        rows_in, rows_out = sums[vertex]
        sums[vertex] = (rows_in + figure["rows_in"], rows_out + figure["rows_out"])
    return dict(sums)


def status_table(status: JobStatus, rates: Mapping[str, tuple[float, float]], port: int) -> Group:
    head = Text(f"{status.name}  {status.phase.value}  restarts {status.restarts}", style="bold")
    head.append(f"   http://127.0.0.1:{port}/status", style="dim")
    return Group(head, _regions(status), _vertices(rates), _checkpoints(status))


def _regions(status: JobStatus) -> Table:
    table = Table("Region", "State", "Attempt", "From checkpoint", "Vertices", box=None, header_style="dim")
    for region in status.regions[:12]:
        restored = "" if region.last_restored_checkpoint is None else str(region.last_restored_checkpoint)
        table.add_row(region.id, region.state.value, str(region.attempt), restored, ", ".join(region.vertices))
    return table


def _vertices(rates: Mapping[str, tuple[float, float]]) -> Table:
    table = Table("Vertex", "Rows in/s", "Rows out/s", box=None, header_style="dim")
    for vertex, (rows_in, rows_out) in rates.items():
        table.add_row(vertex, f"{rows_in:,.0f}", f"{rows_out:,.0f}")
    return table


def _checkpoints(status: JobStatus) -> Table:
    table = Table("Checkpoint", "Outcome", "Duration", "Size", "Slowest", box=None, header_style="dim")
    for entry in status.checkpoint.history[:SHOWN_CHECKPOINTS]:
        took = f"{1000 * entry.duration_seconds:.0f} ms" if entry.duration_seconds is not None else ""
        size = human_bytes(entry.full_size_bytes) if entry.full_size_bytes is not None else ""
        slowest = max(entry.critical_path, key=lambda step: step.start_delay + step.sync + step.async_, default=None)
        table.add_row(
            str(entry.id), entry.reason or entry.outcome.value, took, size, slowest.subtask if slowest else ""
        )
    return table


def _say(text: str) -> None:
    click.echo(f"{datetime.now():%H:%M:%S} {text}")


def _from(checkpoint: int | None) -> str:
    return "the beginning" if checkpoint is None else f"checkpoint {checkpoint}"


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
