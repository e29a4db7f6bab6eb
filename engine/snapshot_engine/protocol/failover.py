"""Which regions restart when some fail. Three rules, repeated until nothing is added:

1. the region of the failed subtask;
2. for each restarting region, the producer region of any input that cannot be read again from the checkpoint;
3. for each restarting region, the consumer regions of its outputs, unless the exchange lets the producer
   restart alone.

The facts are gathered by the caller at one moment, together with the checkpoint to restore from: choosing it,
aborting what is pending and asking here is one serial decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from snapshot_engine.protocol.exchanges import Exchange


class Strategy(Enum):
    REGION = "Region"
    ALL = "All"
    INDIVIDUAL = "Individual"


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """What failover has to know of a region."""

    started: bool = True
    """Whether any attempt was ever made: what has not started needs no restart. A finished one has
    started.
    """
    deterministic: bool = False
    """The same record sequence per output channel from the same checkpoint; checked when the job is
    planned.
    """
    slots: int = 1


@dataclass(frozen=True, slots=True)
class RegionChannel:
    """A connection between two regions. Several channels of one edge may be told as one if all agree."""

    producer: int
    consumer: int
    exchange: Exchange
    available: bool = True
    """Whether the consumer could read it again from the checkpoint, with the producer left alone.

    - memory, durable: the log is whole from the checkpoint's barrier on, and the slot that keeps it is alive;
    - blocking: the result is there and can be read (a consumer that failed because it could not says it is
      not);
    - committed: always.
    """
    edge: str = ""
    """How messages to the user name it."""


def regions_to_restart(
    failed: Iterable[int],
    regions: Mapping[int, RegionFacts],
    channels: Collection[RegionChannel],
    strategy: Strategy = Strategy.REGION,
) -> frozenset[int]:
    """The regions that have to be restarted from the checkpoint, the failed ones among them."""
    restarting = set(failed)
    if strategy is Strategy.ALL and restarting:
        restarting = set(regions)
    while added := _required_by(restarting, regions, channels) - restarting:
        restarting |= added
    return frozenset(region for region in restarting if regions[region].started)


def _required_by(
    restarting: Collection[int], regions: Mapping[int, RegionFacts], channels: Collection[RegionChannel]
) -> set[int]:
    lost_inputs = {channel.producer for channel in channels if channel.consumer in restarting and not channel.available}
    same_again = _repeating_themselves(restarting, regions, channels)
    changed_outputs = {
        channel.consumer
        for channel in channels
        if channel.producer in restarting
        and not channel.exchange.producer_may_restart_alone(channel.producer in same_again)
    }
    return lost_inputs | changed_outputs


def _repeating_themselves(
    restarting: Collection[int], regions: Mapping[int, RegionFacts], channels: Collection[RegionChannel]
) -> set[int]:
    """The restarting regions that will produce the same sequences again: they are deterministic, and so is
    all they read that is produced again. What a committed exchange has made visible is the same anyway.
    """
    repeating = {region for region in restarting if regions[region].deterministic}
    while changed := {
        channel.consumer
        for channel in channels
        if channel.consumer in repeating
        and channel.producer in restarting
        and channel.producer not in repeating
        and channel.exchange is not Exchange.COMMITTED
    }:
        repeating -= changed
    return repeating


def why_not_individual(regions: Mapping[int, RegionFacts], channels: Collection[RegionChannel]) -> list[str]:
    """Why strategy Individual does not apply: one sentence for each edge or region that forbids it.

    Every slot must be a region of its own, and nothing may force a second region to restart with it.
    """
    reasons = [
        f"region {number} spans {facts.slots} slots, which fail together"
        for number, facts in sorted(regions.items())
        if facts.slots > 1
    ]
    for channel in channels:
        if not channel.exchange.producer_may_restart_alone(regions[channel.producer].deterministic):
            name = channel.edge or f"region {channel.producer} to region {channel.consumer}"
            reasons.append(
                f"edge {name} is {channel.exchange.value}: its consumer must restart with its producer"
                " (make it committed, or its producer deterministic where it is memory or durable)"
            )
    return list(dict.fromkeys(reasons))
