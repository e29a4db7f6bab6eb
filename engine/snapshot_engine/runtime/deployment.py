"""What slots are told when all of their region are there: what to restore, and where their peers are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.committed_exchange import Segment
from snapshot_engine.protocol.coordinator import Coordinator
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.region_run import DEPLOYED, RegionState
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.exchanges.manifest_segments import sealed_by
from snapshot_engine.runtime.exchanges.region_cuts import RegionCuts
from snapshot_engine.runtime.exchanges.stored_segments import StreamId
from snapshot_engine.runtime.region_shell import RegionShell
from snapshot_engine.runtime.restore import Restore
from snapshot_engine.runtime.slot_task import channel_key, subtask_key
from snapshot_engine.storage.manifest import SubtaskSnapshot


class Deployment:
    def __init__(
        self,
        graph: ExecutionGraph,
        cuts: RegionCuts,
        regions: Mapping[int, RegionShell],
        coordinator: Coordinator,
    ) -> None:
        self._graph = graph
        self._cuts = cuts
        self._regions = regions
        self._coordinator = coordinator

    def deploy(self, shell: RegionShell, restore: Restore) -> None:
        """Tell each slot what it needs, and consumers in other regions that this attempt is there to be read."""
        region = self._graph.regions[shell.run.region]
        for slot, connection in shell.connections.items():
            hosted = region.hosted_by(slot)
            entries = {subtask_key(each): restore.for_subtask(each, self._results(each)) for each in hosted}
            connection.send(
                m.Deploy(
                    {key: entry for key, entry in entries.items() if entry is not None},
                    self._producers(hosted),
                    self._coordinator.next_id - 1,
                    shell.catching_up,
                    self._finished_consumers(hosted),
                )
            )
        self._connect_consumers(shell)

    def _results(self, subtask: SubtaskId) -> dict[int, dict[StreamId, tuple[Segment, ...]]]:
        """The blocking results that a subtask reads: its producers have finished, and their last words name them."""
        found: dict[int, dict[StreamId, tuple[Segment, ...]]] = {}
        for edge in self._graph.graph.inputs_of(subtask.vertex):
            if self._graph.exchange_of(edge) is Exchange.BLOCKING:
                for index in range(self._graph.graph.vertices[edge.producer].parallelism):
                    final = self._coordinator.final_state(SubtaskId(edge.producer, index))
                    if isinstance(final, SubtaskSnapshot):
                        found.setdefault(edge.id, {}).update(sealed_by(final, edge, index))
        return found

    def _producers(self, hosted: list[SubtaskId]) -> dict[str, list[object]]:
        """Where the producers are: all of the region itself, and those of logs in other regions that are there."""
        found: dict[str, list[object]] = {}
        for subtask in hosted:
            for channel in self._graph.inputs[subtask]:
                producer = self._graph.producer_of(channel)
                place = self._place_of(channel) if producer not in hosted else None
                if place is not None:
                    found[channel_key(channel)] = place
        return found

    def _place_of(self, channel: ChannelId) -> list[object] | None:
        """Whom a consumer of `channel` has to dial; None if nobody, or if it is not there yet."""
        producer = self._graph.producer_of(channel)
        shell = self._regions[self._graph.region_of[producer].id]
        if self._graph.exchange_of(self._graph.edges[channel.edge]).stored or shell.run.state not in DEPLOYED:
            return None
        connection = shell.connections[producer.index]
        return [connection.hello.address, shell.run.region, list(connection.attempt)]

    def _connect_consumers(self, shell: RegionShell) -> None:
        """Consumers in other regions that are there already read from the new attempt."""
        places: dict[tuple[int, int], dict[str, list[object]]] = defaultdict(dict)
        for cut in self._cuts.channels:
            place = self._place_of(cut.id) if cut.producer == shell.run.region else None
            if place is not None and self._regions[cut.consumer].run.state in DEPLOYED:
                places[cut.consumer, cut.id.consumer][channel_key(cut.id)] = place
        for (region, slot), producers in places.items():
            self._regions[region].connections[slot].send(m.Connect(producers))

    def _finished_consumers(self, hosted: list[SubtaskId]) -> list[str]:
        return [
            channel_key(cut.id)
            for cut in self._cuts.channels
            if cut.fact.exchange.replays
            and self._graph.producer_of(cut.id) in hosted
            and self._regions[cut.consumer].run.state is RegionState.FINISHED
        ]

    def region_finished(self, shell: RegionShell) -> None:
        """Its slots may have died between their last word and the call of a producer that has just come up: nobody
        would dial that one any more, and it would wait for ever to hear how far its consumers had come.
        """
        channels: dict[tuple[int, int], list[str]] = defaultdict(list)
        for cut in self._cuts.channels:
            if cut.consumer == shell.run.region and cut.fact.exchange.replays:
                channels[cut.producer, cut.id.producer].append(channel_key(cut.id))
        for (producer, slot), finished in channels.items():
            if self._regions[producer].run.state in DEPLOYED:
                self._regions[producer].connections[slot].send(m.ConsumersFinished(finished))
