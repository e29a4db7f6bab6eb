"""Messages between drivers and slots: one connection per slot and direction, in order but for what goes wrong."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Any

from snapshot_engine.protocol.elements import SubtaskId

if TYPE_CHECKING:
    from snapshot_engine.simulator.driver import Driver
    from snapshot_engine.simulator.region import RegionInstance
    from snapshot_engine.simulator.world import World

IN_ORDER = frozenset({"source_time", "least_time"})
"""What is only true until the next one of its kind: it cannot be overtaken on one connection."""

Box = deque[tuple[str, tuple[Any, ...]]]


class Post:
    """What is sent waits in a box; for each message one item of the world's mail says that it may arrive."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._to_driver: dict[tuple[RegionInstance, int], Box] = defaultdict(deque)
        self._to_slot: dict[tuple[RegionInstance, int], Box] = defaultdict(deque)

    def _put(self, kind: str, boxes: dict[tuple[RegionInstance, int], Box], mail: str, *message: Any) -> None:
        instance, slot, *arguments = message
        for _ in range(self._world.faults.copies(kind)):
            boxes[instance, slot].append((kind, tuple(arguments)))
            self._world.mail.append((mail, instance, slot))

    def _take(self, box: Box) -> tuple[str, tuple[Any, ...]] | None:
        if not box:
            return None
        if len(box) > 1 and self._world.faults.happens("message overtaken", 0.03):
            index = 1 + int(self._world.random.random() * (len(box) - 1))
            message = box[index]
            if message[0] not in IN_ORDER:
                del box[index]
                return message
        return box.popleft()

    # To the driver.

    def tell_driver(self, instance: RegionInstance, slot: int, kind: str, *arguments: object) -> None:
        self._put(kind, self._to_driver, "to_driver", instance, slot, *arguments)

    def lose_what_is_on_its_way(self, instance: RegionInstance, slot: int) -> None:
        """The connection breaks: what the driver has not received yet may never come."""
        if self._world.random.random() < 0.5:
            self._to_driver[instance, slot].clear()

    def arrive_at_driver(self, instance: RegionInstance, slot: int) -> None:
        driver = self._listener(instance)
        if driver is not None and driver.paused:
            driver.frozen.append(("to_driver", instance, slot))
            return
        message = self._take(self._to_driver[instance, slot])
        if message is not None and driver is not None:
            driver.hear(message[0], instance.region, instance.attempt, message[1])

    def _listener(self, instance: RegionInstance) -> Driver | None:
        """Its own driver; when that is gone, perhaps the next one, by the service's address."""
        driver = self._world.drivers[instance.driver]
        if driver.alive:
            return driver
        return self._world.newest_driver() if self._world.random.random() < 0.5 else None

    # To slots.

    def tell_subtask(self, driver: Driver, subtask: SubtaskId, kind: str, *arguments: object) -> None:
        for instance in self._world.instances:
            hosts = instance.region == self._world.topology.region_of[subtask] and subtask.index in instance.alive
            if hosts and self._hears(driver, instance):
                self._put(kind, self._to_slot, "to_slot", instance, subtask.index, subtask, *arguments)

    def tell_all(self, driver: Driver, kind: str, *arguments: object) -> None:
        for instance in self._world.instances:
            self._tell_slots(driver, instance, kind, arguments)

    def tell_region(self, driver: Driver, region: int, kind: str, *arguments: object) -> None:
        """Names the attempt it is meant for: what is true of one is not of another."""
        assert driver.recovery is not None
        attempt = driver.recovery.runs[region].attempt
        for instance in self._world.instances:
            if instance.region == region:
                self._tell_slots(driver, instance, kind, (attempt, *arguments))

    def _tell_slots(self, driver: Driver, instance: RegionInstance, kind: str, arguments: tuple[object, ...]) -> None:
        if self._hears(driver, instance):
            for slot in sorted(instance.alive):
                self._put(kind, self._to_slot, "to_slot", instance, slot, *arguments)

    def _hears(self, driver: Driver, instance: RegionInstance) -> bool:
        """Whatever attempts of a slot are still there may hear: a connection that was never closed."""
        if self._world.current.get((driver.serial, instance.region)) is instance:
            return True
        return self._world.random.random() < 0.5

    def arrive_at_slot(self, instance: RegionInstance, slot: int) -> None:
        message = self._take(self._to_slot[instance, slot])
        if message is not None and slot in instance.alive:
            instance.hear(slot, *message)
