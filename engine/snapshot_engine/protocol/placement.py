"""On which executors a region's slots go.

A lost executor takes down every region that had a slot on it. So a region is packed onto as few executors as can hold
it, regions are spread evenly, and as many executors as are kept in reserve stay free while the others have room.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """An executor that may be used, and how many of its slots are taken."""

    executor: str
    slots: int
    used: int = 0

    @property
    def free(self) -> int:
        return self.slots - self.used


def place_region(slots: Sequence[int], places: Sequence[Place], instances: int) -> Mapping[int, str] | None:
    """The executor of each slot, or None if there is no room for all of them.

    1. Only `instances` executors are used while they have room: first those that are in use already, then free ones.
    2. If one executor can hold the whole region, the least used one of those does.
    3. Otherwise the region goes onto the executors with the most room, so that it touches as few as can be.
    """
    in_order = sorted(places, key=lambda place: (place.used == 0, _number(place.executor)))
    chosen = _pack(len(slots), in_order[:instances]) or _pack(len(slots), in_order)
    if chosen is None:
        return None
    return dict(zip(slots, chosen, strict=True))


def _pack(count: int, places: Sequence[Place]) -> list[str] | None:
    whole = [place for place in places if place.free >= count]
    if whole:
        best = min(whole, key=lambda place: (place.used, _number(place.executor)))
        return [best.executor] * count
    packed: list[str] = []
    for place in sorted(places, key=lambda place: (-place.free, _number(place.executor))):
        packed += [place.executor] * min(max(place.free, 0), count - len(packed))
    return packed if len(packed) == count else None


def _number(executor: str) -> tuple[int, str]:
    """Executors are numbered as they come; 10 comes after 9."""
    return (int(executor), "") if executor.isdigit() else (-1, executor)
