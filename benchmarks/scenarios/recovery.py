"""Recovery of a connected job, region by region, and what the exchanges that make it possible cost.

Each figure stands beside its counterpart of the same run: Region beside All, a cut job beside a pipelined one, the
regions that were not hit beside themselves before the kill. Run it in the project's own environment, on a machine that
does nothing else:

    .venv/bin/python -m benchmarks.scenarios.recovery --parts recovery,price,absence
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.scenarios.cut_pipeline import Pipeline, TimedSink
from benchmarks.scenarios.figures import keep_figures
from benchmarks.scenarios.measured_job import launcher, measure
from snapshot_engine.api import Environment
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.failover import Strategy
from snapshot_engine.protocol.restarts import RestartConfig
from snapshot_engine.runtime.embedded import RunningJob, run_to_end
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import OnEnd, SlotLauncher
from snapshot_engine.runtime.slot_task import SlotTask
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.pieces import PieceOptions, StorageConfig

HEARTBEAT_SECONDS = 0.02
CUTS = ("memory", "durable", "committed")
AT_ONCE = RestartConfig(first_delay=0.0, max_delay=0.0, per_region=None, per_job=None)


class Watch(JobEvents):
    """When each vertex of each attempt gave its first rows, and how many rows each subtask has given over time."""

    def __init__(self) -> None:
        self.running = asyncio.Event()
        self.first_output: dict[tuple[int, int], float] = {}
        self.rows: dict[str, list[tuple[float, int, int]]] = {}
        self.kept: dict[str, tuple[int, int]] = {}
        self.checkpoints = 0

    def all_running(self) -> None:
        self.running.set()

    def checkpoint_completed(self, *_: Any) -> None:
        self.checkpoints += 1

    def heartbeat(self, connection: Any, subtasks: dict[str, dict[str, Any]]) -> None:
        now = time.monotonic()
        attempt = (connection.region, connection.attempt.number)
        for key, figures in subtasks.items():
            if figures["rows_out"]:
                self.first_output.setdefault(attempt, now)
            self.rows.setdefault(key, []).append((now, figures["rows_out"], figures["rows_in"]))
            self.kept[key] = (figures["kept_bytes"], figures["kept_budget"])


def run_watched(
    pipeline: Callable[[Environment], None],
    on: SlotLauncher,
    meanwhile: Callable[[RunningJob, Watch], Any],
    *,
    interval: float = 0.2,
    strategy: Strategy = Strategy.REGION,
    parallelism: int = 2,
    watch: Watch | None = None,
) -> None:
    graph = plan_pipeline(pipeline, None, parallelism, PlanOptions(job="recovery", parallelism=parallelism))
    folder = tempfile.mkdtemp(prefix="scenario-")
    watch = watch or Watch()
    settings = JobSettings(
        name="recovery",
        namespace="benchmarks",
        uid="recovery",
        storage=StorageConfig(folder, Layout("benchmarks", "recovery"), {}, PieceOptions()),
        checkpoint=CheckpointConfig(interval=interval, tolerable_failures=1000),
        restarts=AT_ONCE,
        strategy=strategy,
        heartbeat_seconds=HEARTBEAT_SECONDS,
    )

    async def side(job: RunningJob) -> None:
        await watch.running.wait()
        await meanwhile(job, watch)
        job.master.cancel()

    try:
        run_to_end(settings, ExecutionGraph(graph), on, watch, meanwhile=side)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Kill to first new output of the region.


@dataclass
class Recovered:
    seconds: list[float] = field(default_factory=list)
    untouched: list[float] = field(default_factory=list)
    """The rate of the source, which was not hit, from the kill to the recovery: share of that before."""

    def row(self) -> dict[str, Any]:
        return {
            "kill_to_first_output_median_seconds": round(statistics.median(self.seconds), 3),
            "all_seconds": [round(seconds, 3) for seconds in sorted(self.seconds)],
            "untouched_rate_share_median": round(statistics.median(self.untouched), 3) if self.untouched else None,
        }


def recovery(on: SlotLauncher, exchange: str, strategy: Strategy, kills: int, rate: float) -> Recovered:
    found = Recovered()

    async def kill(job: RunningJob, watch: Watch) -> None:
        middle = next(region.id for region in job.master.graph.regions if "middle" in region.vertices())
        for _ in range(kills):
            done = watch.checkpoints
            while watch.checkpoints < done + 3:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.5)
            await _one_kill(job, watch, middle, strategy, found)

    often = max(1, int(rate) // 10_000)  # a window ends ten times a second, so that output is not waited for
    run_watched(Pipeline(exchange, rate, rows_per_ms=often), on, kill, strategy=strategy)
    return found


async def _one_kill(job: RunningJob, watch: Watch, region: int, strategy: Strategy, found: Recovered) -> None:
    shell = job.master.regions[region]
    attempt = shell.run.attempt.number
    victim = next(iter(shell.connections.values()))
    killed = time.monotonic()
    os.kill(victim.hello.pid, signal.SIGKILL)
    while (region, attempt + 1) not in watch.first_output:
        await asyncio.sleep(0.002)
    found.seconds.append(watch.first_output[region, attempt + 1] - killed)
    if strategy is Strategy.REGION:
        await asyncio.sleep(0.3)  # heartbeats of what came meanwhile
        length = max(0.5, found.seconds[-1])
        during = _rate(watch, "rows", killed, killed + length)
        found.untouched.append(during / _rate(watch, "rows", killed - 1.0, killed))


def _rate(watch: Watch, vertex: str, since: float, until: float) -> float:
    """Rows per second given by the vertex between two moments."""
    total = 0.0
    for key, points in watch.rows.items():
        inside = [point for point in points if since <= point[0] <= until]
        if key.rpartition("#")[0] == vertex and len(inside) > 1:
            (first, rows, _), (last, more, _) = inside[0], inside[-1]
            total += (more - rows) / (last - first)
    return total


# The price of a cut.


def price(on: SlotLauncher, exchange: str, seconds: float, interval: float) -> dict[str, float]:
    """Rows per second flat out, and the median latency at a rate that is far below that."""
    flat_out = measure(Pipeline(exchange, None), on, seconds=seconds, interval=interval, source="rows")
    sink = TimedSink()
    measure(Pipeline(exchange, 20_000, sink, windows=False), on, seconds=seconds, interval=interval, source="rows")
    return {
        "rows_per_second": flat_out.rows_per_second(),
        "latency_ms": 1000 * statistics.median(sink.latencies),
    }


# Absence.


class SlowToStart:
    """A launcher that lets one region wait before it starts again: nothing else about it is different."""

    def __init__(self, launcher: SlotLauncher) -> None:
        self._launcher = launcher
        self.waits: dict[int, float] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)

    def launch(self, task: SlotTask, on_end: OnEnd) -> None:
        wait = self.waits.pop(task.region, 0.0)
        if wait:
            asyncio.get_running_loop().call_later(wait, self._launcher.launch, task, on_end)
        else:
            self._launcher.launch(task, on_end)


def absence(on: SlotLauncher, exchange: str, seconds: float, rate: float) -> dict[str, float]:
    """A region is away for `seconds`: how long until it has read all that it missed, and what was kept for it."""
    slow = SlowToStart(on)
    found: dict[str, float] = {}

    async def stay_away(job: RunningJob, watch: Watch) -> None:
        middle = next(region.id for region in job.master.graph.regions if "middle" in region.vertices())
        await asyncio.sleep(2.0)
        steady = _lag(watch)
        slow.waits[middle] = seconds
        shell = job.master.regions[middle]
        attempt = shell.run.attempt.number
        os.kill(next(iter(shell.connections.values())).hello.pid, signal.SIGKILL)
        await asyncio.sleep(seconds - 0.5)
        kept = sum(kept for key, (kept, _) in watch.kept.items() if key.startswith("rows#"))
        budget = sum(budget for key, (_, budget) in watch.kept.items() if key.startswith("rows#"))
        while (middle, attempt + 1) not in watch.first_output:
            await asyncio.sleep(0.005)
        back = watch.first_output[middle, attempt + 1]
        before = _received(watch, "middle", back)
        sent = _sent_while(watch, back - seconds, back)
        while _received(watch, "middle", time.monotonic()) - before < sent:
            await asyncio.sleep(0.01)
        found["catch_up_seconds"] = time.monotonic() - back
        if budget:
            found["kept_bytes_per_second"] = kept / seconds
            found["budget_bytes"] = budget
            found["longest_absence_seconds"] = budget / (kept / seconds)
        found["rows_missed"] = sent
        found["lag_before"] = steady

    run_watched(Pipeline(exchange, rate, windows=False), slow, stay_away, interval=0.5)  # type: ignore[arg-type]
    return found


def _lag(watch: Watch) -> float:
    now = time.monotonic()
    return _total(watch, "rows", now, 1) - _total(watch, "middle", now, 2)


def _received(watch: Watch, vertex: str, at: float) -> int:
    return _total(watch, vertex, at, 2)


def _sent_while(watch: Watch, since: float, until: float) -> int:
    return _total(watch, "rows", until, 1) - _total(watch, "rows", since, 1)


def _total(watch: Watch, vertex: str, at: float, column: int) -> int:
    """What the newest heartbeats before `at` said, over the vertex's subtasks."""
    total = 0
    for key, points in watch.rows.items():
        if key.rpartition("#")[0] == vertex:
            total += next((point[column] for point in reversed(points) if point[0] <= at), 0)
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="recovery,price,absence")
    parser.add_argument("--launcher", default="spark", choices=("spark", "forked"))
    parser.add_argument("--kills", type=int, default=9)
    parser.add_argument("--rate", type=float, default=20_000, help="rows per second while slots are killed")
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--away", type=float, default=10.0)
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with launcher(chosen.launcher, 8) as on:
        for part in chosen.parts.split(","):
            found = PARTS[part](on, chosen)
            print(json.dumps({part: found}, indent=1), flush=True)
            rows += [{"case": f"{part}, {case}", **figures} for case, figures in found.items()]
            keep_figures("recovery", rows)


def _recovery_part(on: SlotLauncher, chosen: argparse.Namespace) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for exchange, strategy in (
        ("committed", Strategy.REGION),
        ("durable", Strategy.REGION),
        ("committed", Strategy.ALL),
    ):
        found = recovery(on, exchange, strategy, chosen.kills, chosen.rate)
        rows[f"{exchange}, {strategy.value}"] = found.row()
    return rows


def _price_part(on: SlotLauncher, chosen: argparse.Namespace) -> dict[str, Any]:
    rows = {exchange: price(on, exchange, chosen.seconds, 0.2) for exchange in ("pipelined", *CUTS)}
    base = rows["pipelined"]["rows_per_second"]
    return {exchange: {**row, "of_pipelined": row["rows_per_second"] / base} for exchange, row in rows.items()}


def _absence_part(on: SlotLauncher, chosen: argparse.Namespace) -> dict[str, Any]:
    return {exchange: absence(on, exchange, chosen.away, 10 * chosen.rate) for exchange in CUTS}


PARTS = {"recovery": _recovery_part, "price": _price_part, "absence": _absence_part}

if __name__ == "__main__":
    sys.exit(main())
