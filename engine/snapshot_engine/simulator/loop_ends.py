"""A driver's side of the end of loops: asks in waves, and passes on what is found out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from snapshot_engine.protocol.elements import Attempt, SubtaskId
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

if TYPE_CHECKING:
    from snapshot_engine.simulator.driver import Driver

PATIENCE = 8.0  # seconds, much for a simulated message


class LoopEnds:
    """For each region with a loop, how the end of its current attempt is found out."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._world = driver.world
        self._ends: dict[int, LoopEnd] = {}

    def started(self, region: int, attempt: Attempt) -> None:
        if region in self._world.topology.loop_regions():
            subtasks, pause = self._world.topology.regions[region], self._world.config.wave_pause
            self._ends[region] = self._world.parts.loop_end(subtasks, attempt, pause, PATIENCE)

    def inputs_ended(self, region: int) -> None:
        if region in self._ends:
            self._ends[region].inputs_ended(self._world.now)

    def hear_counts(self, region: int, attempt: Attempt, subtask: SubtaskId, wave: int, counts: LoopCounts) -> None:
        if region in self._ends:
            self._tell(region, self._ends[region].report(subtask, attempt, wave, counts, self._world.now))

    def wakeups(self) -> Sequence[float | None]:
        return [end.next_wakeup() for end in self._ends.values()]

    def tick(self, finished: Collection[int]) -> None:
        self._ends = {region: end for region, end in self._ends.items() if region not in finished}
        for region, end in self._ends.items():
            self._tell(region, end.tick(self._world.now))

    def _tell(self, region: int, actions: Sequence[LoopEndAction]) -> None:
        for action in actions:
            match action:
                case AskWave():
                    self._say(region, "wave", action.wave)
                case EndRound():
                    self._say(region, "round_end", action.round)
                case OpenRound():
                    self._say(region, "open_round", action.round)
                case BeginRound():
                    self._say(region, "round", action.round)
                case FinalWatermark():
                    self._say(region, "final_watermark")
                case EndLoop():
                    self._say(region, "end_loop")

    def _say(self, region: int, kind: str, *arguments: object) -> None:
        self._world.post.tell_region(self._driver, region, kind, *arguments)
