"""Pauses the sources that feed logs which keep as much as they may.

Not those that feed a producer which is catching up: only a checkpoint empties a log, and it waits for that producer.
What is produced again goes no further than to its consumers, who have seen it, so that no full log grows by it.
"""

from __future__ import annotations

from collections.abc import Mapping

from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.exchanges.region_cuts import RegionCuts
from snapshot_engine.runtime.region_shell import RegionShell


class SourcePauses:
    def __init__(self, cuts: RegionCuts, regions: Mapping[int, RegionShell]) -> None:
        self._cuts = cuts
        self._regions = regions

    def log_full(self, shell: RegionShell, slot: int, full: bool) -> None:
        """The sources of all that feeds a full log pause: its own region's, and those further up."""
        (shell.full.add if full else shell.full.discard)(slot)
        self._tell_upstream(shell)

    def slot_caught_up(self, shell: RegionShell, slot: int) -> None:
        shell.behind.discard(slot)
        self._tell_upstream(shell)

    def region_starts(self, shell: RegionShell) -> None:
        """What its slots kept went with them. New ones say again that they are full, but never that they are not."""
        shell.full.clear()
        self._tell_upstream(shell)

    def slots_came(self, shell: RegionShell) -> None:
        """All slots of the region are there, and have perhaps not heard what those before them were told."""
        shell.paused = False
        self._tell(shell)

    def _tell_upstream(self, shell: RegionShell) -> None:
        for region in self._cuts.upstream_through_logs(shell.run.region):
            self._tell(self._regions[region])

    def _tell(self, shell: RegionShell) -> None:
        """Tell the region's slots whether their sources pause, if that has changed."""
        downstream = [self._regions[region] for region in self._cuts.downstream_through_logs(shell.run.region)]
        paused = any(each.full for each in downstream) and not any(each.behind for each in downstream)
        if paused != shell.paused:
            shell.paused = paused
            for connection in shell.connections.values():
                connection.send(m.PauseSources(paused))
