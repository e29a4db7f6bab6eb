"""What lies between the regions of a job. Derived from its graph; nothing of it changes while the job runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass

from snapshot_engine.graph.execution import ExecutionGraph, channels_of
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.failover import RegionChannel


@dataclass(frozen=True)
class CutChannel:
    """A channel between two regions."""

    id: ChannelId
    producer: int
    consumer: int
    fact: RegionChannel


class RegionCuts:
    def __init__(self, graph: ExecutionGraph) -> None:
        self.channels = _cut_channels(graph)
        self.deterministic = deterministic_regions(graph)
        self.starts_after: dict[int, set[int]] = defaultdict(set)
        """The regions whose blocking results a region reads."""
        self._keeping = {(cut.producer, cut.id.producer) for cut in self.channels if cut.fact.exchange.replays}
        self.keeping_logs = sorted({region for region, _ in self._keeping})
        for cut in self.channels:
            if cut.fact.exchange is Exchange.BLOCKING:
                self.starts_after[cut.consumer].add(cut.producer)
        self.committed = any(cut.fact.exchange is Exchange.COMMITTED for cut in self.channels)
        """Whether rows wait for the next checkpoint before they cross an edge."""
        self._logged = {(cut.producer, cut.consumer) for cut in self.channels if cut.fact.exchange.replays}

    def slot_keeps_logs(self, region: int, slot: int) -> bool:
        return (region, slot) in self._keeping

    def goes_back_behind_consumers(self, region: int, went_on: Collection[int]) -> bool:
        """Whether consumers of the region's logs went on, and have seen more than it begins with."""
        return any(producer == region and consumer in went_on for producer, consumer in self._logged)

    def upstream_through_logs(self, region: int) -> set[int]:
        """The region and all that feed it through logs: what must pause when it keeps too much."""
        return _reachable(region, {(consumer, producer) for producer, consumer in self._logged})

    def downstream_through_logs(self, region: int) -> set[int]:
        return _reachable(region, self._logged)


def _reachable(start: int, steps: Collection[tuple[int, int]]) -> set[int]:
    found = {start}
    while more := {after for before, after in steps if before in found} - found:
        found |= more
    return found


def _cut_channels(graph: ExecutionGraph) -> list[CutChannel]:
    found = []
    for edge in graph.graph.edges:
        if graph.exchange_of(edge) is Exchange.PIPELINED:
            continue
        for channel in channels_of(edge, graph.graph):
            producer = graph.region_of[graph.producer_of(channel)].id
            consumer = graph.region_of[graph.consumer_of(channel)].id
            fact = RegionChannel(producer, consumer, edge.exchange, edge=f"{edge.producer} to {edge.consumer}")
            found.append(CutChannel(channel, producer, consumer, fact))
    return found


def deterministic_regions(graph: ExecutionGraph) -> frozenset[int]:
    """Planning has checked that the declaration can hold for the whole region."""
    vertices = graph.graph.vertices
    return frozenset(
        region.id
        for region in graph.regions
        if any(vertices[vertex].declared_deterministic for vertex in region.vertices())
    )
