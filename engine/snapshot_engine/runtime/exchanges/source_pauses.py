"""Pauses the sources that feed logs which keep as much as they may.

Not while a producer further down catches up and needs them: only a checkpoint empties a log, and it waits for that
producer. It needs them when it has read all that the logs on its way keep. Those say that they are full only as long as
it has not, so that they do not overflow meanwhile. Logs behind it do not count: what is produced again goes no further
than to its consumers, who have seen it.
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
        shell.pause = m.PauseSources(False)
        self._tell(shell)

    def _tell_upstream(self, shell: RegionShell) -> None:
        for region in self._cuts.upstream_through_logs(shell.run.region):
            self._tell(self._regions[region])

    def _tell(self, shell: RegionShell) -> None:
        """Tell the region's slots whether their sources pause, if that has changed."""
        downstream = self._cuts.downstream_through_logs(shell.run.region)
        full = {region for region in downstream if self._regions[region].full}
        behind = [region for region in downstream if self._regions[region].behind]
        paused = bool(full) and not any(self._is_needed_by(region, full) for region in behind)
        pause = m.PauseSources(paused, bool(behind))
        if pause != shell.pause:
            shell.pause = pause
            for connection in shell.connections.values():
                connection.send(pause)

    def _is_needed_by(self, behind: int, full: set[int]) -> bool:
        """Whether a region that catches up has no full log on its way to it, from which it could read."""
        return not full & (self._cuts.upstream_through_logs(behind) - {behind})
