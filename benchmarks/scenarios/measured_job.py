"""A job of this engine alone, run for some seconds and watched: what the scenarios in this folder have in common.

Figures come from what slots say with their heartbeats and from the checkpoints' own times, the same that `/status`
and `/metrics` show. Run scenarios in the project's own environment, on a machine that does nothing else.
"""

from __future__ import annotations

import asyncio
import bisect
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from snapshot_engine.api import Environment
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.runtime.embedded import RunningJob, run_to_end, slots_of
from snapshot_engine.runtime.forked import ForkedLauncher
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.pieces import PieceOptions, StorageConfig

HEARTBEAT_SECONDS = 0.25


@dataclass
class Checkpoint:
    """One completed checkpoint; times in milliseconds."""

    duration: float
    longest_sync: float
    longest_alignment: float
    longest_delay: float
    longest_async: float
    bytes: int
    written: int


@dataclass
class Figures(JobEvents):
    """Rows over time by vertex, and every checkpoint that completed while the job was being measured."""

    source: str
    warm_up: float
    checkpoints: list[Checkpoint] = field(default_factory=list)
    aborted: int = 0
    restarts: int = 0
    _began: float = 0.0
    _rows: dict[str, list[tuple[float, int]]] = field(default_factory=dict)
    _processor: dict[int, list[tuple[float, int]]] = field(default_factory=dict)

    def all_running(self) -> None:
        self._began = time.monotonic()

    def region_failed(self, run: Any, cause: str, message: str, traceback: str, silent: float) -> None:
        self.restarts += 1
        print(f"region {run.region} failed: {cause}: {message}\n{traceback}", file=sys.stderr)

    def heartbeat(self, connection: Any, subtasks: dict[str, dict[str, Any]]) -> None:
        if self._is_measured():
            now = time.monotonic()
            mine = {key: figures["rows_out"] for key, figures in subtasks.items() if self._is_source(key)}
            for key, rows in mine.items():
                self._rows.setdefault(key, []).append((now, rows))
            pid = connection.hello.pid
            self._processor.setdefault(pid, []).append((_processor_seconds(pid), sum(mine.values())))

    def checkpoint_completed(self, manifest: Any, outcome: Any, path: Any, uri: str, written: int) -> None:
        if self._is_measured():
            times = list(outcome.timings.values())
            self.checkpoints.append(
                Checkpoint(
                    1000 * (outcome.completed_at - outcome.triggered_at),
                    1000 * max(timing.synchronous for timing in times),
                    1000 * max(timing.alignment for timing in times),
                    1000 * max(timing.start_delay for timing in times),
                    1000 * max(timing.asynchronous for timing in times),
                    manifest.size(),
                    written,
                )
            )

    def checkpoint_aborted(self, action: Any) -> None:
        self.aborted += 1

    def rows_per_second(self) -> float:
        """Of the source, over all its subtasks."""
        return sum(map(_slope, self._rows.values()))

    def rate_between(self, start: float, end: float) -> float:
        """Rows per second of the source, by the heartbeats within."""
        rate = 0.0
        for points in self._rows.values():
            times = [moment for moment, _ in points]
            first, last = bisect.bisect_left(times, start), bisect.bisect_right(times, end) - 1
            if last > first:
                rate += (points[last][1] - points[first][1]) / (times[last] - times[first])
        return rate

    def ratios(self, changed: Sequence[tuple[float, bool]]) -> list[float]:
        """The rate while something was on by that while it was off, of each two neighbouring stretches.

        `changed` are moments, and whether it was on from then on. A machine that changes its speed, or a job whose
        sources drift apart, changes both sides.
        """
        measured = [change for change in changed if change[0] >= self._began + self.warm_up]
        stretches = [(self.rate_between(start, end), on) for (start, on), (end, _) in pairwise(measured)]
        return [
            (first / second if on else second / first)
            for (first, on), (second, _) in pairwise(stretches)
            if first > 0 and second > 0
        ]

    def rows_per_core_second(self) -> float:
        """Of the source, by the processor time of the slots: what a busy machine distorts least."""
        ends = [(points[0], points[-1]) for points in self._processor.values()]
        seconds = sum(last[0] - first[0] for first, last in ends)
        return sum(last[1] - first[1] for first, last in ends) / seconds if seconds else float("nan")

    def median(self, name: str) -> float:
        values = [getattr(checkpoint, name) for checkpoint in self.checkpoints]
        return statistics.median(values) if values else float("nan")

    def highest(self, name: str) -> float:
        return max((getattr(checkpoint, name) for checkpoint in self.checkpoints), default=float("nan"))

    def _is_source(self, key: str) -> bool:
        return key.rpartition("#")[0] == self.source

    def _is_measured(self) -> bool:
        return self._began > 0 and time.monotonic() - self._began > self.warm_up


def _processor_seconds(pid: int) -> float:
    """User and system time of a process and its threads so far."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _slope(points: list[tuple[float, int]]) -> float:
    if len(points) < 2:
        return 0.0
    (first, rows), (last, more) = points[0], points[-1]
    return (more - rows) / (last - first)


@contextmanager
def launcher(kind: str, slots: int = 4) -> Iterator[SlotLauncher]:
    """`spark`: slots as tasks of an embedded Spark, as `streamingjob run` has them; `forked`: plain processes."""
    made: SlotLauncher
    if kind == "forked":
        made = ForkedLauncher()
    else:
        from snapshot_engine.runtime.spark import SparkLauncher, embedded_context

        made = SparkLauncher(embedded_context("scenario", slots, {}))
    try:
        yield made
    finally:
        made.close()


def measure(
    pipeline: Callable[[Environment], None],
    on: SlotLauncher,
    *,
    seconds: float,
    warm_up: float = 3.0,
    interval: float | None = 1.0,
    parallelism: int = 2,
    source: str = "bids",
    incremental: bool = False,
    mode: Mode = Mode.EXACTLY_ONCE,
    meanwhile: Callable[[RunningJob], None] | None = None,
    **checkpoint: Any,
) -> Figures:
    """Run `pipeline` for `warm_up` and then for `seconds`. `meanwhile` is called each quarter of a second."""
    options = PlanOptions(job="scenario", parallelism=parallelism, mode=mode)
    graph = ExecutionGraph(plan_pipeline(pipeline, None, parallelism, options))
    figures = Figures(source, warm_up)
    folder = tempfile.mkdtemp(prefix="scenario-")

    async def stop_in_time(job: RunningJob) -> None:
        while not figures._began:
            await asyncio.sleep(0.05)
        until = figures._began + warm_up + seconds
        while time.monotonic() < until:
            await asyncio.sleep(HEARTBEAT_SECONDS)
            if meanwhile is not None:
                meanwhile(job)
        job.master.cancel()

    settings = JobSettings(
        name="scenario",
        namespace="benchmarks",
        uid="scenario",
        storage=StorageConfig(folder, Layout("benchmarks", "scenario"), {}, PieceOptions()),
        checkpoint=CheckpointConfig(interval=interval, mode=mode, tolerable_failures=1000, **checkpoint),
        incremental=incremental,
        heartbeat_seconds=HEARTBEAT_SECONDS,
    )
    try:
        run_to_end(settings, graph, on, figures, meanwhile=stop_in_time)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert slots_of(graph) > 0
    return figures
