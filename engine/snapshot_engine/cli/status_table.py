"""A job's status as people read it: tables for a terminal, drawn from nothing but what the status API says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from snapshot_engine.cli.fitting_table import Column, FittingTable
from snapshot_engine.wire.status import (
    CheckpointEntry,
    JobStatus,
    Phase,
    RegionState,
    RegionStatus,
    RestartEntry,
    SlotPlace,
    VertexStatus,
)

SHOWN_REGIONS = 8
SHOWN_CHECKPOINTS = 5
SHOWN_RESTARTS = 3
SHOWN_PROCESSES = 4
EMBEDDED = "driver"
"""What Spark calls the executor that is this machine's own process."""
BAR_WIDTH = 30
DAY, YEAR = 86_400, 365.25 * 86_400
AT_WORK = (RegionState.RUNNING, RegionState.FINISHED)
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
    up = sum(region.state in AT_WORK for region in status.regions)
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


def _regions(status: JobStatus) -> FittingTable:
    table = FittingTable(
        [
            Column("Region"),
            Column("State", text=True),
            Column("Attempt"),
            Column("From checkpoint", spare=1),
            Column("Vertices", text=True),
            Column("Processes", spare=2),
            Column("Last failure"),
        ]
    )
    places = _by_region(status.slot_places)
    in_trouble_first = sorted(status.regions, key=lambda region: (region.state in AT_WORK, -region.restarts))
    for region in in_trouble_first[:SHOWN_REGIONS]:
        table.add(*_region_row(region, status.phase, _processes(places.get(region.id, []))))
    rest = Counter(_state_of(region, status.phase) for region in in_trouble_first[SHOWN_REGIONS:])
    if rest:
        states = ", ".join(f"{count} {state}" for state, count in rest.items())
        table.add("…", f"and {states}")
    return table


def _state_of(region: RegionStatus, phase: Phase) -> str:
    """With its job a region ends as well, though nobody says so of each."""
    over = phase in (Phase.STOPPED, Phase.FAILED) and region.state is not RegionState.FINISHED
    return phase.value if over else region.state.value


def _region_row(region: RegionStatus, phase: Phase, processes: str) -> tuple[str, ...]:
    restored = "" if region.last_restored_checkpoint is None else str(region.last_restored_checkpoint)
    failure = region.last_failure.cause if region.last_failure is not None else ""
    vertices = ", ".join(region.vertices)
    return region.id, _state_of(region, phase), str(region.attempt), restored, vertices, processes, failure


def _by_region(places: list[SlotPlace]) -> dict[str, list[SlotPlace]]:
    found: dict[str, list[SlotPlace]] = {}
    for place in sorted(places, key=lambda place: place.slot):
        found.setdefault(place.region, []).append(place)
    return found


def _processes(places: list[SlotPlace]) -> str:
    """The pids of a region's slots, in their order, each behind its executor where that is another machine's."""
    shown = ", ".join(_process(place) for place in places[:SHOWN_PROCESSES])
    return f"{shown}, … {len(places)} in all" if len(places) > SHOWN_PROCESSES else shown


def _process(place: SlotPlace) -> str:
    return f"pid {place.pid}" if place.executor_id == EMBEDDED else f"executor {place.executor_id} pid {place.pid}"


def _vertices(vertices: list[VertexStatus], now: datetime) -> FittingTable:
    any_late = any(vertex.late_rows for vertex in vertices)
    table = FittingTable(
        [
            Column("Vertex", text=True),
            Column("Subtasks", spare=4),
            Column("In/s"),
            Column("Out/s"),
            Column("Busy"),
            Column("Back-pressured", spare=1),
            Column("Behind"),
            Column("Keys", spare=3),
            Column("State", spare=2),
            *([Column("Late", spare=1)] if any_late else []),
        ]
    )
    for vertex in vertices:
        table.add(
            vertex.name,
            str(vertex.parallelism),
            human_count(vertex.records_in_per_second),
            human_count(vertex.records_out_per_second),
            f"{vertex.busy:.0%}",
            f"{vertex.backpressured:.0%}",
            _behind(vertex, now),
            human_count(vertex.state_keys),
            human_bytes(vertex.state_bytes),
            *([human_count(vertex.late_rows)] if any_late else []),
        )
    return table


def _behind(vertex: VertexStatus, now: datetime) -> str:
    """Records that a source has not read yet, or how far event time is behind the clock."""
    if vertex.source_lag is not None:
        return f"{human_count(vertex.source_lag)} records"
    return "" if vertex.watermark is None else human_seconds((now - vertex.watermark).total_seconds())


def _checkpoints(history: list[CheckpointEntry]) -> FittingTable:
    table = FittingTable(
        [
            Column("Checkpoint"),
            Column("Outcome"),
            Column("Duration"),
            Column("Written", spare=2),
            Column("Full size", spare=1),
            Column("Slowest", text=True, least=36),
        ]
    )
    for entry in history[:SHOWN_CHECKPOINTS]:
        table.add(
            str(entry.id),
            entry.outcome.value,
            "" if entry.duration_seconds is None else human_seconds(entry.duration_seconds),
            "" if entry.size_bytes is None else human_bytes(entry.size_bytes),
            "" if entry.full_size_bytes is None else human_bytes(entry.full_size_bytes),
            entry.reason or slowest_of(entry),
        )
    return table


def slowest_of(entry: CheckpointEntry) -> str:
    """Which subtask made the checkpoint slow, and in which of its four times."""
    step = entry.slowest
    return "" if step is None else f"{step.subtask} ({step.part.replace('_', ' ')}, {human_seconds(step.seconds)})"


def _restarts(history: list[RestartEntry]) -> FittingTable:
    table = FittingTable(
        [
            Column("Restart"),
            Column("Cause"),
            Column("When", spare=1),
            Column("Took"),
            Column("Phases", text=True, wraps=True),
        ]
    )
    for entry in history[:SHOWN_RESTARTS]:
        phases = ", ".join(f"{phase.replace('_', ' ')} {human_seconds(s)}" for phase, s in entry.phases.items())
        took = "" if entry.seconds is None else human_seconds(entry.seconds)
        table.add(f"region {entry.region}", entry.cause, f"{entry.failed_at:%H:%M:%S}", took, phases)
    return table


def human_count(count: float) -> str:
    """Three digits and a unit: short enough for a column, exact enough to compare."""
    for unit in ("", " k", " M", " G"):
        if count < 999.5 or unit == " G":
            return f"{count:.0f}{unit}" if not unit or count >= 99.95 else f"{count:.1f}{unit}"
        count /= 1000
    raise AssertionError


def human_seconds(seconds: float) -> str:
    if abs(seconds) < 1:
        return f"{1000 * seconds:.0f} ms"
    if abs(seconds) < 120:
        return f"{seconds:.1f} s"
    if abs(seconds) < 2 * 3600:
        return f"{seconds / 60:.0f} min"
    if abs(seconds) < 2 * DAY:
        return f"{seconds / 3600:.0f} h"
    return f"{seconds / DAY:.0f} days" if abs(seconds) < 2 * YEAR else f"{seconds / YEAR:.0f} years"


def human_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError
