"""A job's status as people read it: tables for a terminal, drawn from nothing but what the status API says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from snapshot_engine.wire.status import (
    CheckpointEntry,
    JobStatus,
    Phase,
    RegionState,
    RegionStatus,
    RestartEntry,
    VertexStatus,
)

SHOWN_REGIONS = 8
SHOWN_CHECKPOINTS = 5
SHOWN_RESTARTS = 3
BAR_WIDTH = 30
_AT_WORK = (RegionState.RUNNING, RegionState.FINISHED)
_STYLES = {Phase.RUNNING: "green", Phase.FINISHED: "green", Phase.FAILED: "red", Phase.RECOVERING: "yellow"}


def status_table(status: JobStatus, url: str, now: datetime | None = None) -> Group:
    moment = now or datetime.now(UTC)
    parts: list[RenderableType] = [_head(status, url)]
    parts += _progress(status, moment)
    parts.append(_regions(status))
    if status.vertices:
        parts.append(_vertices(status.vertices, moment))
    if status.checkpoint.history:
        parts.append(_checkpoints(status.checkpoint.history))
    if status.restart_history:
        parts.append(_restarts(status.restart_history))
    if status.error:
        parts.append(Text(status.error, style="red"))
    return Group(*parts)


def _head(status: JobStatus, url: str) -> Text:
    head = Text(f"{status.name}  ", style="bold")
    head.append(status.phase.value, style=_STYLES.get(status.phase, ""))
    head.append(f"  restarts {status.restarts}")
    head.append(f"   {url}/status", style="dim")
    return head


def _progress(status: JobStatus, now: datetime) -> Iterator[RenderableType]:
    """A bar for everything that takes a while: regions that come up, checkpoints that are under way."""
    up = sum(region.state in _AT_WORK for region in status.regions)
    if status.phase in (Phase.STARTING, Phase.RECOVERING):
        yield _bar("regions up", up, len(status.regions), "")
    for checkpoint in status.checkpoint.under_way:
        seconds = max(0.0, (now - checkpoint.triggered_at).total_seconds())
        name = f"checkpoint {checkpoint.id}"
        yield _bar(name, checkpoint.acknowledged, checkpoint.subtasks, f"subtasks, {seconds:.1f} s")


def _bar(name: str, done: int, total: int, text: str) -> Table:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(name, ProgressBar(total=max(total, 1), completed=done, width=BAR_WIDTH), f"{done}/{total} {text}")
    return grid


def _regions(status: JobStatus) -> Table:
    table = _plain_table("Region", "State", "Attempt", "From checkpoint", "Vertices", "Last failure")
    in_trouble_first = sorted(status.regions, key=lambda region: (region.state in _AT_WORK, -region.restarts))
    for region in in_trouble_first[:SHOWN_REGIONS]:
        table.add_row(*_region_row(region))
    rest = Counter(region.state.value for region in in_trouble_first[SHOWN_REGIONS:])
    if rest:
        states = ", ".join(f"{count} {state}" for state, count in rest.items())
        table.add_row("…", f"and {states}")
    return table


def _region_row(region: RegionStatus) -> tuple[str, ...]:
    restored = "" if region.last_restored_checkpoint is None else str(region.last_restored_checkpoint)
    failure = region.last_failure.cause if region.last_failure is not None else ""
    return region.id, region.state.value, str(region.attempt), restored, ", ".join(region.vertices), failure


def _vertices(vertices: list[VertexStatus], now: datetime) -> Table:
    table = _plain_table("Vertex", "Subtasks", "In/s", "Out/s", "Busy", "Back-pressured", "Behind", "Keys", "State")
    for vertex in vertices:
        table.add_row(
            vertex.name,
            str(vertex.parallelism),
            f"{vertex.records_in_per_second:,.0f}",
            f"{vertex.records_out_per_second:,.0f}",
            f"{vertex.busy:.0%}",
            f"{vertex.backpressured:.0%}",
            _behind(vertex, now),
            f"{vertex.state_keys:,}",
            human_bytes(vertex.state_bytes),
        )
    return table


def _behind(vertex: VertexStatus, now: datetime) -> str:
    """Records that a source has not read yet, or how far event time is behind the clock."""
    if vertex.source_lag is not None:
        return f"{vertex.source_lag:,} records"
    return "" if vertex.watermark is None else human_seconds((now - vertex.watermark).total_seconds())


def _checkpoints(history: list[CheckpointEntry]) -> Table:
    table = _plain_table("Checkpoint", "Outcome", "Duration", "Written", "Full size", "Slowest")
    for entry in history[:SHOWN_CHECKPOINTS]:
        table.add_row(
            str(entry.id),
            entry.reason or entry.outcome.value,
            "" if entry.duration_seconds is None else human_seconds(entry.duration_seconds),
            "" if entry.size_bytes is None else human_bytes(entry.size_bytes),
            "" if entry.full_size_bytes is None else human_bytes(entry.full_size_bytes),
            slowest_of(entry),
        )
    return table


def slowest_of(entry: CheckpointEntry) -> str:
    """Which subtask made the checkpoint slow, and in which of its four times."""
    step = entry.slowest
    return "" if step is None else f"{step.subtask} ({step.part.replace('_', ' ')}, {human_seconds(step.seconds)})"


def _restarts(history: list[RestartEntry]) -> Table:
    table = _plain_table("Restart", "Cause", "When", "Took", "Phases")
    for entry in history[:SHOWN_RESTARTS]:
        phases = ", ".join(f"{phase.replace('_', ' ')} {human_seconds(s)}" for phase, s in entry.phases.items())
        took = "" if entry.seconds is None else human_seconds(entry.seconds)
        table.add_row(f"region {entry.region}", entry.cause, f"{entry.failed_at:%H:%M:%S}", took, phases)
    return table


def _plain_table(*columns: str) -> Table:
    return Table(*columns, box=None, header_style="dim")


def human_seconds(seconds: float) -> str:
    if abs(seconds) < 1:
        return f"{1000 * seconds:.0f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    if abs(seconds) < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.0f} h"


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
