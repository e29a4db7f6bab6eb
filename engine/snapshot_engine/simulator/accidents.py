"""The great accidents: slots, executors and drivers that go down, and users who want savepoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from snapshot_engine.simulator.world import World


def something_goes_wrong(world: World) -> None:
    random = world.random.random
    chance = random()
    if chance < 0.5:
        _a_slot_crashes(world)
    elif chance < 0.58:
        _an_executor_is_lost(world)
    elif chance < 0.68:
        _the_driver_crashes(world)
    elif chance < 0.8:
        _the_driver_is_stopped_and_replaced(world)
    else:
        _a_savepoint_is_wanted(world, stop=chance > 0.93)


def _a_slot_crashes(world: World) -> None:
    if world.instances and world.faults.happens("slot crash", 1.0):
        instance = world.random.choice(world.instances)
        world.crash(instance, world.random.choice(sorted(instance.alive)))


def _an_executor_is_lost(world: World) -> None:
    """Slots of several regions, and of several attempts, at the same moment."""
    if world.instances and world.faults.happens("executor lost", 1.0):
        slot = int(world.random.random() * 2)
        for instance in [each for each in world.instances if slot in each.alive]:
            world.crash(instance, slot)


def _the_driver_crashes(world: World) -> None:
    driver = world.newest_driver()
    if driver is not None and world.faults.happens("driver crash", 1.0):
        world.note(f"driver {driver.serial} crashes")
        world.driver_is_gone(driver)


def _the_driver_is_stopped_and_replaced(world: World) -> None:
    driver = world.newest_driver()
    if driver is not None and world.faults.happens("driver stopped and replaced", 1.0):
        world.note(f"driver {driver.serial} is stopped")
        driver.paused = True
        world.mail.append(("resume", driver))
        world.new_driver()


def _a_savepoint_is_wanted(world: World, stop: bool) -> None:
    driver = world.newest_driver()
    kind = "stop with savepoint" if stop else "savepoint"
    if driver is not None and world.faults.happens(kind, 1.0):
        driver.request_savepoint(f"savepoint {world.steps}", stop)
