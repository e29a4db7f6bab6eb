"""Which slots are on which executor, and where the next region goes. The decision itself is `protocol/placement.py`.

Called from the launcher's threads, one per attempt, and from the JobMaster's.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.placement import Place, place_region
from snapshot_engine.runtime.launcher import ExecutorInfo

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.1
FULL_STRENGTH_SECONDS = 30.0
"""How long the first regions wait for all executors, so that they are spread over all of them."""
SUSPECT_SECONDS = 3.0
"""An executor that lost a slot without a word may be dying: it is not chosen for so long if others have room."""
LAST_WORD_SECONDS = 0.1
"""How long a new attempt waits for the tasks of the one before to end, so that it finds their slots free."""

Key = tuple[int, Attempt]


@dataclass
class _Launch:
    placed: dict[int, str] = field(default_factory=dict)
    """By slot: the executor that was chosen, and from its arrival on the one that it is on."""
    arrived: set[int] = field(default_factory=set)
    lost: bool = False
    given_up: bool = False


class Placements:
    def __init__(self, executors: Callable[[], Sequence[ExecutorInfo]], instances: int) -> None:
        """`instances`: how many executors are used; what there is beyond them is the reserve."""
        self._executors = executors
        self._instances = instances
        self._launches: dict[Key, _Launch] = {}
        self._fenced: set[str] = set()
        self._suspect_until: dict[str, float] = {}
        self._changed = threading.Condition()
        self._strength_until = time.monotonic() + FULL_STRENGTH_SECONDS

    def choose(self, region: int, attempt: Attempt, slots: Sequence[int]) -> Mapping[int, str] | None:
        """Waits for room, for as long as it takes. None: it was given up meanwhile."""
        with self._changed:
            launch = self._launches.setdefault((region, attempt), _Launch())
            self._await_last_words(region, attempt)
        while True:
            known = self._executors()  # Spark is asked without the lock, which the JobMaster waits for
            with self._changed:
                if launch.given_up:
                    return None
                placed = self._try(slots, known)
                if placed is not None:
                    launch.placed = dict(placed)
                    return placed
                self._changed.wait(LOOK_SECONDS)

    def give_up(self, region: int, attempt: Attempt) -> None:
        with self._changed:
            launch = self._launches.get((region, attempt))
            if launch is not None:
                launch.given_up = True
                self._changed.notify_all()

    def slot_started(self, region: int, attempt: Attempt, slot: int, executor: str) -> None:
        with self._changed:
            launch = self._launches.get((region, attempt))
            if launch is not None:
                launch.placed[slot] = executor
                launch.arrived.add(slot)

    def slot_ended(self, region: int, attempt: Attempt, slot: int, lost: bool) -> None:
        """`lost`: it was not told to end."""
        with self._changed:
            launch = self._launches.get((region, attempt))
            executor = launch.placed.pop(slot, None) if launch is not None else None
            if launch is not None and executor is not None and lost:
                launch.lost = True
                self._suspect_until[executor] = time.monotonic() + SUSPECT_SECONDS
            self._changed.notify_all()

    def attempt_ended(self, region: int, attempt: Attempt) -> None:
        with self._changed:
            self._launches.pop((region, attempt), None)
            self._changed.notify_all()

    def fence(self, executor: str) -> list[Key] | None:
        """Nothing is placed there any more. None if that was known; else the attempts that wait for a slot from there,
        in vain.
        """
        with self._changed:
            if executor in self._fenced:
                return None
            self._fenced.add(executor)
            in_vain = [
                key
                for key, launch in self._launches.items()
                if any(where == executor and slot not in launch.arrived for slot, where in launch.placed.items())
            ]
            for launch in self._launches.values():
                launch.placed = {slot: where for slot, where in launch.placed.items() if where != executor}
            self._changed.notify_all()
            return in_vain

    def arrived(self, region: int, attempt: Attempt) -> frozenset[int]:
        """The slots that have come up, whether they are still there or not."""
        with self._changed:
            launch = self._launches.get((region, attempt))
            return frozenset(launch.arrived) if launch is not None else frozenset()

    def all_arrived(self, region: int, attempt: Attempt, slots: Sequence[int]) -> bool:
        """Or there is nobody left to wait for."""
        with self._changed:
            launch = self._launches.get((region, attempt))
            return launch is None or launch.given_up or set(slots) <= launch.arrived

    def usable(self) -> list[ExecutorInfo]:
        """The executors that slots may be placed on."""
        return [executor for executor in self._executors() if executor.id not in self._fenced]

    def in_use(self) -> set[str]:
        with self._changed:
            return {executor for launch in self._launches.values() for executor in launch.placed.values()}

    def settled(self) -> bool:
        """Whether every region has its slots: nobody waits for room."""
        with self._changed:
            launches = self._launches.values()
            return bool(launches) and all(each.arrived and each.placed.keys() <= each.arrived for each in launches)

    def _await_last_words(self, region: int, attempt: Attempt) -> None:
        deadline = time.monotonic() + LAST_WORD_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            before = [launch for (r, a), launch in self._launches.items() if r == region and a != attempt]
            if not any(launch.arrived and not (launch.lost and not launch.placed) for launch in before):
                return
            self._changed.wait(left)

    def _try(self, slots: Sequence[int], known: Sequence[ExecutorInfo]) -> Mapping[int, str] | None:
        usable = [executor for executor in known if executor.id not in self._fenced]
        now = time.monotonic()
        if len(usable) < self._instances and now < self._strength_until:
            return None
        self._strength_until = 0.0
        sound = [executor for executor in usable if self._suspect_until.get(executor.id, 0.0) <= now]
        return self._place(slots, sound) or self._place(slots, usable)

    def _place(self, slots: Sequence[int], executors: Sequence[ExecutorInfo]) -> Mapping[int, str] | None:
        taken = [where for launch in self._launches.values() for where in launch.placed.values()]
        places = [Place(executor.id, executor.slots, taken.count(executor.id)) for executor in executors]
        return place_region(slots, places, self._instances)
