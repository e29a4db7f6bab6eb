"""What subtasks say with their heartbeats, summed up by vertex, so that parallelism does not multiply anything."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.protocol.elements import MAX_WATERMARK, MIN_WATERMARK, Attempt
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.slot_task import parse_subtask

COUNTED = ("rows_in", "bytes_in", "rows_out", "bytes_out", "busy", "blocked", "idle")
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


class VertexFigures(JobEvents):
    def __init__(self, graph: JobGraph, clock: Callable[[], float] = time.monotonic) -> None:
        self.graph = graph
        self._clock = clock
        self._latest: dict[str, tuple[Attempt, Mapping[str, Any]]] = {}
        self._vertex_of: dict[str, str] = {}
        self._before: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(COUNTED, 0.0))
        self._rated: tuple[float, dict[str, dict[str, float]]] | None = None
        self._rates: dict[str, dict[str, float]] = {}

    def heartbeat(self, connection: SlotConnection, subtasks: dict[str, dict[str, Any]]) -> None:
        for key, figures in subtasks.items():
            known = self._latest.get(key)
            if known is None:
                self._vertex_of[key] = parse_subtask(key).vertex
            elif known[0] != connection.attempt:
                before = self._before[self._vertex_of[key]]
                for name in COUNTED:
                    before[name] += known[1].get(name, 0.0)
            self._latest[key] = (connection.attempt, figures)

    def totals(self) -> dict[str, Totals]:
        """By vertex, in the order of the graph. May be called from any thread."""
        found: dict[str, Totals] = defaultdict(Totals)
        for key, (_, figures) in list(self._latest.items()):
            _add(found[self._vertex_of[key]], figures)
        for vertex, before in list(self._before.items()):
            for name in COUNTED:
                found[vertex].counted[name] += before[name]
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


def _add(total: Totals, figures: Mapping[str, Any]) -> None:
    for name in COUNTED:
        total.counted[name] += figures.get(name, 0.0)
    for name in SUMMED:
        if figures.get(name) is not None:
            total.summed[name] = total.summed.get(name, 0.0) + figures[name]
    watermark = figures.get("watermark")
    if watermark is not None and MIN_WATERMARK < watermark < MAX_WATERMARK:  # neither end of event time is a time
        total.watermark = watermark if total.watermark is None else min(total.watermark, watermark)
    if figures.get("kept_budget"):
        share = figures.get("kept_bytes", 0) / figures["kept_budget"]
        total.fullest = max(total.fullest, share)
