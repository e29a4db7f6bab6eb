"""The driver's side of loops: asks for counts, and tells heads when a round or the loop is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.loop_end import (
    AskWave,
    BeginRound,
    EndLoop,
    EndRound,
    FinalWatermark,
    LoopCounts,
    LoopEnd,
    LoopEndAction,
    OpenRound,
)
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.slot_task import parse_subtask

PAUSE_SECONDS = 0.05
"""Between two waves while something still moves."""

COUNT, END_ROUND, OPEN_ROUND, BEGIN_ROUND = "count", "end-round", "open-round", "begin-round"
FINAL_WATERMARK, END = "final-watermark", "end"


class Loops:
    """All loops of the job: one `LoopEnd` for each region that has some, new with every attempt."""

    def __init__(
        self, graph: ExecutionGraph, send: Callable[[int, m.Message], None], clock: Callable[[], float]
    ) -> None:
        self._send = send
        self._clock = clock
        self._subtasks = {
            region.id: region.subtasks
            for region in graph.regions
            if any(graph.graph.vertices[uid].loop is not None for uid in region.vertices())
        }
        self._ends: dict[int, LoopEnd] = {}
        self._timer: asyncio.TimerHandle | None = None

    def region_starts(self, region: int, attempt: Attempt) -> None:
        if region in self._subtasks:
            self._ends[region] = LoopEnd(self._subtasks[region], attempt, PAUSE_SECONDS)

    def region_finished(self, region: int) -> None:
        self._ends.pop(region, None)

    def inputs_ended(self, region: int) -> None:
        """A head of the region's current attempt has nothing more to read from outside the loop."""
        if region in self._ends:
            self._ends[region].inputs_ended(self._clock())
            self._set_timer()

    def counted(self, region: int, attempt: Attempt, message: m.LoopCounted) -> None:
        end = self._ends.get(region)
        for key, counts in message.counts.items() if end is not None else ():
            assert end is not None
            answer = LoopCounts(*counts)
            self._tell(region, end.report(parse_subtask(key), attempt, message.wave, answer, self._clock()))
        self._set_timer()

    def close(self) -> None:
        self._ends = {}
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakeups = [wakeup for end in self._ends.values() if (wakeup := end.next_wakeup()) is not None]
        if wakeups:
            delay = max(0.0, min(wakeups) - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for region, end in list(self._ends.items()):
            self._tell(region, end.tick(self._clock()))
        self._set_timer()

    def _tell(self, region: int, actions: list[LoopEndAction]) -> None:
        for action in actions:
            self._send(region, _message(action))


def _message(action: LoopEndAction) -> m.SteerLoop:
    match action:
        case AskWave():
            return m.SteerLoop(COUNT, action.wave)
        case EndRound():
            return m.SteerLoop(END_ROUND, action.round)
        case OpenRound():
            return m.SteerLoop(OPEN_ROUND, action.round)
        case BeginRound():
            return m.SteerLoop(BEGIN_ROUND, action.round)
        case FinalWatermark():
            return m.SteerLoop(FINAL_WATERMARK, 0)
        case EndLoop():
            return m.SteerLoop(END, 0)
