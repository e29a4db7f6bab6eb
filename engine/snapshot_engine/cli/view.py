"""What `run` shows while a job runs: a live table on a terminal, plain lines otherwise, JSON lines for scripts."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click
from rich.live import Live
from rich.text import Text

from snapshot_engine.cli.status_table import human_bytes, human_seconds, status_table
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.status_board import StatusBoard
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.status import JobStatus

REFRESH_SECONDS = 0.25


def view_for(output: str, plain: bool) -> View:
    if output == "json":
        return JsonView()
    return LiveView() if sys.stdout.isatty() and not plain else LineView()


class View(JobEvents):
    def __init__(self) -> None:
        self.restored: Manifest | None = None

    def restoring(self, manifest: Manifest) -> None:
        self.restored = manifest

    def savepoint_of(self, checkpoint: int | None) -> str | None:
        """The name of the savepoint that was asked for, where that is what `checkpoint` is."""
        known = self.restored
        return known.savepoint if known is not None and known.checkpoint == checkpoint else None

    def say(self, text: str, good: bool = True) -> None:
        """Something that is no event of the job: how it was started, how it ended."""
        click.secho(text, fg=None if good else "red", err=not good)

    @contextmanager
    def showing(self, board: StatusBoard, port: int) -> Iterator[None]:
        """For as long as the job runs."""
        yield


class LineView(View):
    """One line for each thing that happens."""

    @contextmanager
    def showing(self, board: StatusBoard, port: int) -> Iterator[None]:
        _line(f"control API and metrics: http://127.0.0.1:{port}")
        yield

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        regions = ", ".join(f"{region} (attempt {attempt.number})" for region, attempt in attempts.items())
        _line(f"starting region {regions} from {_from(checkpoint, self.savepoint_of(checkpoint))}")

    def all_running(self) -> None:
        _line("all regions run")

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        _line(f"region {run.region} failed: {cause}: {message}")
        if traceback:
            click.echo(traceback.rstrip())

    def all_failed(self, reason: str) -> None:
        _line(f"all regions failed: {reason}")

    def commit_failed(self, operator: str, message: str) -> None:
        _line(message)

    def region_finished(self, run: RegionRun) -> None:
        _line(f"region {run.region} has finished")

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        what = f"savepoint {outcome.savepoint}" if outcome.savepoint else f"checkpoint {outcome.checkpoint}"
        took = human_seconds(outcome.completed_at - outcome.triggered_at)
        slowest = f", slowest {path.slowest.subtask} ({path.slowest.longest_part})" if path.slowest else ""
        _line(f"{what} completed in {took}, {human_bytes(written)} of {human_bytes(manifest.size())} new{slowest}")

    def checkpoint_aborted(self, action: Abort) -> None:
        _line(f"checkpoint {action.checkpoint} aborted: {action.reason}")


class LiveView(View):
    """A table that is drawn anew a few times each second; failures stay above it."""

    def __init__(self) -> None:
        super().__init__()
        self._live: Live | None = None
        self._pen = threading.Lock()
        self._over = False

    @contextmanager
    def showing(self, board: StatusBoard, port: int) -> Iterator[None]:
        url = f"http://127.0.0.1:{port}"
        with Live(auto_refresh=False, transient=False) as live:
            self._live = live
            drawing = asyncio.ensure_future(self._draw(live, board, url))
            try:
                yield
            finally:
                drawing.cancel()
                with self._pen:  # whoever has it draws an older status
                    self._over = True
                    live.update(status_table(board.status, url), refresh=True)

    async def _draw(self, live: Live, board: StatusBoard, url: str) -> None:
        """Looks in the job's own loop, and draws beside it: a terminal may take its time."""

        def draw(status: JobStatus) -> None:
            with self._pen:
                if not self._over:
                    live.update(status_table(status, url), refresh=True)

        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            await asyncio.to_thread(draw, board.snapshot())

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        self._above(f"region {run.region} failed: {cause}: {message}")
        if traceback:
            self._above(traceback.rstrip(), style="dim")

    def all_failed(self, reason: str) -> None:
        self._above(f"all regions failed: {reason}")

    def commit_failed(self, operator: str, message: str) -> None:
        self._above(message)

    def _above(self, text: str, style: str = "red") -> None:
        if self._live is not None:
            self._live.console.print(Text(text, style=style))


class JsonView(View):
    """One JSON object per line for each thing that happens; `event` and `at` are always there."""

    def say(self, text: str, good: bool = True) -> None:
        _event("said" if good else "error", message=text)

    @contextmanager
    def showing(self, board: StatusBoard, port: int) -> Iterator[None]:
        _event("listening", url=f"http://127.0.0.1:{port}")
        yield
        _event("ended", status=board.status.to_wire())

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        regions = {str(region): attempt.number for region, attempt in attempts.items()}
        _event("starting", attempts=regions, checkpoint=checkpoint, savepoint=self.savepoint_of(checkpoint))

    def all_running(self) -> None:
        _event("running")

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        _event("regionFailed", region=str(run.region), cause=cause, message=message, traceback=traceback)

    def all_failed(self, reason: str) -> None:
        _event("allFailed", message=reason)

    def commit_failed(self, operator: str, message: str) -> None:
        _event("commitFailed", operator=operator, message=message)

    def region_finished(self, run: RegionRun) -> None:
        _event("regionFinished", region=str(run.region))

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        _event(
            "checkpointCompleted",
            id=outcome.checkpoint,
            savepoint=outcome.savepoint,
            durationSeconds=outcome.completed_at - outcome.triggered_at,
            sizeBytes=written,
            fullSizeBytes=manifest.size(),
            path=uri,
            slowest={"subtask": str(path.slowest.subtask), "part": path.slowest.longest_part} if path.slowest else None,
        )

    def checkpoint_aborted(self, action: Abort) -> None:
        _event("checkpointAborted", id=action.checkpoint, reason=action.reason, failed=action.failed)


def _line(text: str) -> None:
    click.echo(f"{datetime.now():%H:%M:%S} {text}")


def _event(name: str, **fields: Any) -> None:
    click.echo(json.dumps({"event": name, "at": datetime.now(UTC).isoformat(), **fields}))


def _from(checkpoint: int | None, savepoint: str | None) -> str:
    if checkpoint is None:
        return "the beginning"
    return f"savepoint {savepoint} (checkpoint {checkpoint})" if savepoint else f"checkpoint {checkpoint}"
