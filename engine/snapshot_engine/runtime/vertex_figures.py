"""What subtasks say with their heartbeats, summed up by vertex, so that parallelism does not multiply anything."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.protocol.elements import MAX_WATERMARK, MIN_WATERMARK, Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.slot_task import parse_subtask

COUNTED = ("rows_in", "bytes_in", "rows_out", "bytes_out", "busy", "blocked", "idle", "late_rows")
"""These only grow; a new attempt begins at zero again, and the vertex goes on from where it was."""
SUMMED = ("state_keys", "state_bytes", "lag", "kept_bytes", "kept_budget", "loop_log_bytes", "loop_queue_bytes")
"""These are what they are now. A subtask that does not know one leaves it out, or says None."""
RATE_SECONDS = 1.0


@dataclass
class Totals:
    """One vertex, over all its subtasks. What no subtask has told is not in `summed`."""

    counted: dict[str, float] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0.0))
    summed: dict[str, float] = field(default_factory=dict)
    watermark: int | None = None
    """Of the slowest subtask, in epoch milliseconds."""
    fullest: float = 0.0
    """The share of its budget that the subtask with the fullest exchange keeps."""


@dataclass(frozen=True)
class _Known:
    """One subtask. Replaced as a whole: who sums up in another thread must not count an attempt twice."""

    region: int
    attempt: Attempt
    figures: Mapping[str, Any]
    before: Mapping[str, float]
    """What earlier attempts had counted."""


class VertexFigures(JobEvents):
    def __init__(self, graph: JobGraph, clock: Callable[[], float] = time.monotonic) -> None:
        self.graph = graph
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._vertex_of: dict[str, str] = {}
        self._down: set[int] = set()
        self._rated: tuple[float, dict[str, dict[str, float]]] | None = None
        self._rates: dict[str, dict[str, float]] = {}

    def heartbeat(self, connection: SlotConnection, subtasks: dict[str, dict[str, Any]]) -> None:
        for key, told in subtasks.items():
            known = self._known.get(key)
            if known is None:
                self._vertex_of[key] = parse_subtask(key).vertex
            before: Mapping[str, float] = {} if known is None else known.before
            if known is not None and known.attempt != connection.attempt:
                before = {name: before.get(name, 0.0) + known.figures.get(name, 0.0) for name in COUNTED}
            figures = _only_counted(told) if connection.region in self._down else told
            self._known[key] = _Known(connection.region, connection.attempt, figures, before)

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        for region in attempts:
            self._forget_what_was(region)
            self._down.discard(region)

    def region_stopping(self, run: RegionRun) -> None:
        self._forget_what_was(run.region)

    def region_finished(self, run: RegionRun) -> None:
        self._forget_what_was(run.region)

    def _forget_what_was(self, region: int) -> None:
        """State, lag and watermark of slots that are gone are nobody's any more; what was counted stays."""
        self._down.add(region)
        for key, known in self._known.items():
            if known.region == region:
                self._known[key] = replace(known, figures=_only_counted(known.figures))

    def totals(self) -> dict[str, Totals]:
        """By vertex, in the order of the graph. May be called from any thread."""
        found: dict[str, Totals] = defaultdict(Totals)
        for key, known in list(self._known.items()):
            _add(found[self._vertex_of[key]], known)
        return {vertex: found[vertex] for vertex in self.graph.vertices if vertex in found}

    def rates(self, totals: Mapping[str, Totals]) -> dict[str, dict[str, float]]:
        """How much of each of COUNTED comes per second, measured over at least a second."""
        now, counted = self._clock(), {vertex: dict(known.counted) for vertex, known in totals.items()}
        if self._rated is None:
            self._rated = (now, counted)
        then, before = self._rated
        if now - then >= RATE_SECONDS:
            for vertex, values in counted.items():
                old = before.get(vertex, {})
                self._rates[vertex] = {
                    name: max(0.0, value - old.get(name, 0.0)) / (now - then) for name, value in values.items()
                }
            self._rated = (now, counted)
        return self._rates


def _only_counted(figures: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: figures[name] for name in COUNTED if name in figures}


def _add(total: Totals, known: _Known) -> None:
    figures = known.figures
    for name in COUNTED:
        total.counted[name] += known.before.get(name, 0.0) + figures.get(name, 0.0)
    for name in SUMMED:
        if figures.get(name) is not None:
            total.summed[name] = total.summed.get(name, 0.0) + figures[name]
    watermark = figures.get("watermark")
    if watermark is not None and MIN_WATERMARK < watermark < MAX_WATERMARK:  # neither end of event time is a time
        total.watermark = watermark if total.watermark is None else min(total.watermark, watermark)
    if figures.get("kept_budget"):
        share = figures.get("kept_bytes", 0) / figures["kept_budget"]
        total.fullest = max(total.fullest, share)
