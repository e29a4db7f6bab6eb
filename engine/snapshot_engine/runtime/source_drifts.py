"""The driver's word to sources that keep together in event time: how far the slowest of them has come."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.region_run import ACTIVE
from snapshot_engine.protocol.source_drift import NOBODY_AHEAD, GroupTime
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.region_shell import RegionShell

TELL_SECONDS = 0.01
"""Between two words to one group: event time may run quickly, and a group may be large."""


class SourceDrifts:
    def __init__(
        self,
        graph: ExecutionGraph,
        regions: Mapping[int, RegionShell],
        catches_up: Callable[[int], bool],
        later: Callable[[float, Callable[..., None], int], Any],
    ) -> None:
        """A region that `catches_up` waits for nobody: checkpoints wait for it, and others may wait for those."""
        self._graph = graph
        self._regions = regions
        self._catches_up = catches_up
        self._later = later
        self._groups = [GroupTime(group.drift_ms) for group in graph.drift_groups]
        self._number = {uid: number for number, group in enumerate(graph.drift_groups) for uid in group.vertices}
        self._pausing: set[int] = set()
        """Groups that have heard something just now."""

    def said(self, shell: RegionShell, subtask: SubtaskId, time: int | None) -> None:
        """A subtask has come so far; or, with None, it is idle."""
        number = self._number.get(subtask.vertex)
        if number is not None and shell.run.state in ACTIVE:
            self._groups[number].stands_at(subtask, time)
            self._tell_news(number)

    def ended(self, subtask: SubtaskId) -> None:
        number = self._number.get(subtask.vertex)
        if number is not None:
            self._groups[number].ended(subtask)
            self._tell_news(number)

    def region_away(self, region: int) -> None:
        for number, subtasks in self._members(region).items():
            self._groups[number].away(subtasks)
            self._tell_news(number)

    def tell_region(self, shell: RegionShell) -> None:
        """Its slots have just come and know nothing yet, or it has caught up."""
        for number in self._members(shell.run.region):
            self._tell(shell, number)

    def _members(self, region: int) -> dict[int, list[SubtaskId]]:
        """The region's sources, by their group."""
        members: dict[int, list[SubtaskId]] = {}
        for subtask in self._graph.regions[region].subtasks if self._groups else ():
            if subtask.vertex in self._number:
                members.setdefault(self._number[subtask.vertex], []).append(subtask)
        return members

    def _tell_news(self, number: int) -> None:
        if number in self._pausing or not self._groups[number].has_news:
            return
        self._groups[number].tell()
        for region, shell in self._regions.items():
            if number in self._members(region):
                self._tell(shell, number)
        self._pausing.add(number)
        self._later(TELL_SECONDS, self._pause_is_over, number)

    def _pause_is_over(self, number: int) -> None:
        self._pausing.discard(number)
        self._tell_news(number)

    def _tell(self, shell: RegionShell, number: int) -> None:
        least = NOBODY_AHEAD if self._catches_up(shell.run.region) else self._groups[number].told
        for connection in shell.connections.values():
            connection.send(m.LeastTime(number, least))
