"""One schedule: everything that is under way, and a random choice of what happens next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Attempt, ChannelId, Mode, SubtaskId
from snapshot_engine.protocol.failover import Strategy
from snapshot_engine.simulator.accidents import something_goes_wrong
from snapshot_engine.simulator.checks import Checks
from snapshot_engine.simulator.driver import Driver, Swap
from snapshot_engine.simulator.faults import Faults
from snapshot_engine.simulator.log_connections import LogConnections
from snapshot_engine.simulator.network import Network
from snapshot_engine.simulator.outside import Outside
from snapshot_engine.simulator.parts import Parts
from snapshot_engine.simulator.post import Post
from snapshot_engine.simulator.records import Records
from snapshot_engine.simulator.region import RegionInstance
from snapshot_engine.simulator.storage import Manifest, Storage
from snapshot_engine.simulator.subtask import Subtask
from snapshot_engine.simulator.topology import Topology
from snapshot_engine.simulator.violations import Violation

MOST_STEPS = 40_000  # a schedule that is not over by then is stuck
STEP_SECONDS = 0.02
HEARS_LATE = 0.6  # how often a message to a slow slot has to wait once more


@dataclass(frozen=True)
class WorldConfig:
    mode: Mode = Mode.EXACTLY_ONCE
    checkpoints: CheckpointConfig = field(default_factory=CheckpointConfig)
    retained: int = 1
    strategy: Strategy = Strategy.REGION
    deterministic: tuple[int, ...] = ()
    capacity: int = 4
    memory_budget: int = 1000
    watermark_delay: int = 1
    rounds: bool = False
    wave_pause: float = 0.3
    shows_rounds: bool = False
    """Whether a copy of each record leaves the loop whenever it goes round."""
    fault_rate: float = 0.01
    max_drift: int | None = None
    """How far sources may be ahead of the slowest; None: as far as they like."""
    slow_slot: int | None = None
    """The slots of this number hear late what drivers say: what is true when the others hear it may be so no more."""


def _kinds_of_job(topology: Topology, config: WorldConfig) -> Iterator[str]:
    for edge in topology.edges:
        yield "loop" if edge.feedback else f"{edge.exchange.value} exchange"
    if any(edge.feedback and edge.consumer.parallelism > 1 for edge in topology.edges):
        yield "loop with several heads"
    if config.rounds and topology.loop_regions():
        yield "rounds"
    if config.mode is Mode.AT_LEAST_ONCE:
        yield "at least once"
    if config.deterministic:
        yield "deterministic region"
    if config.max_drift is not None:
        yield "sources that keep together"


class World:
    def __init__(
        self,
        random: Random,
        topology: Topology,
        records: Records,
        config: WorldConfig,
        faults: Faults,
        parts: Parts,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self.random = random
        self.topology = topology
        self.records = records
        self.config = config
        self.faults = faults
        self.parts = parts
        self._note = note
        self.is_exact = config.mode is Mode.EXACTLY_ONCE
        self.now = 0.0
        self.steps = 0
        self.covered = set(_kinds_of_job(topology, config))
        """What this schedule has shown, for the count of all of them."""
        self.storage = Storage()
        self.outside = Outside()
        self.network = Network(config.capacity, parts.connections_are_fenced, parts.barriers_keep_their_place)
        self.checks = Checks(self)
        self.post = Post(self)
        self.logs = LogConnections(self)
        self._loops = frozenset(topology.loop_regions())
        self.drivers: list[Driver] = []
        self.instances: list[RegionInstance] = []
        self.current: dict[tuple[int, int], RegionInstance] = {}  # by driver and region
        self.mail: list[tuple[Any, ...]] = []
        self.reasons_to_fail: list[tuple[object, object]] = []
        """What has really failed: an attempt of a region, or for a driver, its job as a whole."""
        self.stops = 0
        self.done = False
        self._runnable: list[Subtask] = []
        self._in_vain = 0  # steps that found nothing to do since anything else happened
        self._handlers: dict[str, Callable[..., None]] = {
            name.removeprefix("_mail_"): getattr(self, name) for name in _MAIL
        }

    def note(self, text: str) -> None:
        if self._note is not None:
            self._note(f"{self.steps:6d} {self.now:8.3f} {text}")

    # The schedule.

    def run(self) -> None:
        random = self.random.random
        self.new_driver()
        while not self.done:
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Violation(f"stuck: {self.describe_what_waits()}")
            self.now += random() * STEP_SECONDS
            chance = random()
            runnable = self._runnable
            if chance < (0.6 if len(self.mail) < 30 else 0.35) and self._in_vain < len(runnable):
                self._step(runnable[int(random() * len(runnable))])
            elif chance < 0.95 and self.mail:
                self._in_vain = 0
                self._deliver()
            else:
                self._in_vain = 0
                self._tick()
            if self.faults.left > 0 and random() < self.config.fault_rate:
                something_goes_wrong(self)
        self.checks.every_record_is_there()
        self.checks.each_failure_was_handled_once()
        self.checks.nobody_was_waited_for_in_vain()

    def _step(self, subtask: Subtask) -> None:
        instance = subtask.instance
        try:
            worked = subtask.step()
        except Violation:
            if not self._is_zombie(instance):
                raise
            self._slot_ends(instance, subtask.id.index)  # what it needs is gone, and so is its time
        else:
            if not worked:
                self._in_vain += 1
                if subtask.finished:
                    self._runnable.remove(subtask)
            elif instance.logs:
                self._look_at_logs(instance)

    def _is_zombie(self, instance: RegionInstance) -> bool:
        driver = self.drivers[instance.driver]
        if driver.recovery is None or driver.generation != self.storage.current.generation:
            return True
        return driver.recovery.runs[instance.region].attempt != instance.attempt

    def _tick(self) -> None:
        for driver in self.drivers:
            if driver.alive and not driver.paused:
                driver.tick()
        if self.newest_driver() is None and not self.done:
            self.new_driver()

    def _deliver(self) -> None:
        mail = self.mail
        index = int(self.random.random() * len(mail))
        item = mail[index]
        if item[0] == "to_slot" and item[2] == self.config.slow_slot and self.random.random() < HEARS_LATE:
            return
        mail[index] = mail[-1]
        mail.pop()
        self._handlers[item[0]](*item[1:])

    def _look_at_logs(self, instance: RegionInstance) -> None:
        instance.look_whether_caught_up()
        if self.random.random() < 0.1 and any(log.under_pressure for log in instance.logs.values()):
            instance.send("pressure", min(instance.alive))

    def describe_what_waits(self) -> str:
        states = [
            f"driver {d.serial} alive={d.alive} paused={d.paused} pending={d.coordinator.pending} "
            f"completing={d.coordinator.completing} suspended={d.coordinator.suspended} "
            f"waiting={[str(s) for n in d.coordinator.pending for s in d.coordinator.waiting_for(n)]} "
            f"regions={[r.state.name for r in d.recovery.runs.values()] if d.recovery else None}"
            for d in self.drivers
            if d.alive
        ]
        unfinished = [f"{s.id}@{s.instance.attempt} blocked={len(s.alignment.blocked)}" for s in self._runnable]
        return f"{'; '.join(states)}; unfinished {', '.join(unfinished)}"

    # Drivers.

    def new_driver(self) -> Driver:
        driver = Driver(self, len(self.drivers))
        self.drivers.append(driver)
        for instance in self.instances:
            self._orphan(instance)
        driver.begin()
        return driver

    def driver_is_gone(self, driver: Driver) -> None:
        driver.alive = False
        for instance in self.instances:
            if instance.driver == driver.serial:
                self._orphan(instance)

    def _orphan(self, instance: RegionInstance) -> None:
        """Slots whose driver is gone or replaced end themselves, sooner or later."""
        for slot in sorted(instance.alive):
            self.mail.append(("orphan", instance, slot))

    def newest_driver(self) -> Driver | None:
        driver = self.drivers[-1]
        return driver if driver.alive else None

    def submit(self, kind: str, driver: Driver, *arguments: object) -> None:
        """Something the driver asked the outside for."""
        self.mail.append((kind, driver, *arguments))

    def _answer(self, driver: Driver, answer: Callable[[], None]) -> None:
        self.mail.append(("answer", driver, answer))

    def _mail_answer(self, driver: Driver, answer: Callable[[], None]) -> None:
        if driver.paused:
            driver.frozen.append(("answer", driver, answer))
        elif driver.alive:
            answer()

    def _mail_swap(self, driver: Driver, swap: Swap) -> None:
        """A request that has left its driver is carried out whatever becomes of the driver."""
        outcome = self.faults.swap_outcome()
        if outcome == "failed":
            self._answer(driver, lambda: driver.swapped(swap, "failed"))
        elif outcome == "answered":
            landed = self._carry_out(swap)
            self._answer(driver, lambda: driver.swapped(swap, "landed" if landed else "conflict"))
        else:
            if outcome == "landed silently":
                self._carry_out(swap)
            elif outcome == "lands later":
                self.mail.append(("late_swap", swap))
            self._answer(driver, lambda: driver.swapped(swap, "unknown"))

    def _mail_late_swap(self, swap: Swap) -> None:
        """Late means after what its driver does next: reading back, asking again, giving up."""
        if self.random.random() < 0.8:
            self.mail.append(("late_swap", swap))
        else:
            self._carry_out(swap)

    def _carry_out(self, swap: Swap) -> bool:
        landed = self.storage.swap(swap.wanted, swap.expected)
        latest = self.storage.latest()
        if landed and latest is not None:
            self.checks.manifest_is_a_cut(latest)
        return landed

    def _mail_read(self, driver: Driver, swap: Swap) -> None:
        current, version = self.storage.current, self.storage.version
        self._answer(driver, lambda: driver.read_back(swap, current, version))

    def _mail_savepoint(self, driver: Driver, checkpoint: int) -> None:
        self._answer(driver, lambda: driver.manifest_landed(checkpoint))

    def _mail_commit(self, driver: Driver, manifest: Manifest, tell: bool) -> None:
        self.commit(manifest)
        self.checks.commit_shows_all(manifest)
        if tell:
            self._answer(driver, lambda: driver.committed(manifest))

    def commit(self, manifest: Manifest) -> None:
        for sink, transactions in manifest.transactions.items():
            self.outside.commit(sink, transactions)
        self.checks.nothing_is_committed_that_the_latest_does_not_hold()

    # Regions.

    def _mail_launch(
        self,
        driver: Driver,
        region: int,
        attempt: Attempt,
        manifest: Manifest | None,
        settled: int,
        catching_up: bool,
    ) -> None:
        if not driver.alive or self._is_replaced(driver, manifest):
            return
        instance = RegionInstance(self, region, attempt, driver.serial, manifest, settled, catching_up)
        self.instances.append(instance)
        assert driver.recovery is not None
        if driver.recovery.runs[region].attempt == attempt:
            self.current[driver.serial, region] = instance
        else:  # it comes so late that its attempt is over: it will be told to go
            self._orphan(instance)
        for slot in sorted(instance.alive):
            self.mail.append(("up", instance, slot))
        if driver is not self.newest_driver():
            self._orphan(instance)

    def _is_replaced(self, driver: Driver, manifest: Manifest | None) -> bool:
        """Whether a newer driver has already deleted what this launch would be restored from."""
        names = manifest.states.values() if manifest else ()
        return driver is not self.newest_driver() and any(name not in self.storage.files for name in names)

    def _mail_dial(
        self, producer: RegionInstance, consumer: RegionInstance, channel: ChannelId, ended: bool, slow: bool
    ) -> None:
        if slow and self.random.random() < 0.95:
            self.mail.append(("dial", producer, consumer, channel, ended, slow))
        else:
            self.logs.dialled(producer, consumer, channel, ended)

    def _mail_up(self, instance: RegionInstance, slot: int) -> None:
        if slot in instance.alive:
            instance.send("slot_up", slot, slot)

    def let_run(self, driver: Driver, region: int, attempt: Attempt) -> None:
        """All slots of the region are there: each is told where its peers are, and runs when it has heard it."""
        for instance in self._attempts_of(driver, region, attempt):
            self.logs.connect(driver, instance)
            for slot in sorted(instance.alive):
                self.mail.append(("runs", instance, slot))

    def _attempts_of(self, driver: Driver, region: int, attempt: Attempt) -> list[RegionInstance]:
        wanted = (driver.serial, region, attempt)
        return [i for i in self.instances if (i.driver, i.region, i.attempt) == wanted]

    def _mail_runs(self, instance: RegionInstance, slot: int) -> None:
        if slot in instance.alive:
            instance.send("slot_runs", slot, slot)
            instance.run_slot(slot)
            self.refresh()

    def refresh(self) -> None:
        self.instances = [instance for instance in self.instances if instance.alive]
        self._runnable = [subtask for instance in self.instances for subtask in instance.runnable()]

    def stop_slots(self, driver: Driver, region: int, attempt: Attempt) -> None:
        for instance in self._attempts_of(driver, region, attempt):
            for slot in sorted(instance.alive):
                self.mail.append(("stop", instance, slot))

    def _mail_stop(self, instance: RegionInstance, slot: int) -> None:
        if slot not in instance.alive:
            return
        if self.faults.happens("zombie", 0.3):
            self.note(f"slot {slot} of region {instance.region} {instance.attempt} does not stop")
            self.mail.append(("zombie", instance, slot))
        else:
            self._slot_ends(instance, slot)

    def _mail_zombie(self, instance: RegionInstance, slot: int) -> None:
        """It lives for a while, then stops after all."""
        if slot in instance.alive:
            if self.random.random() < 0.99 and not self.done:
                self.mail.append(("zombie", instance, slot))
            else:
                self._slot_ends(instance, slot)

    def _mail_orphan(self, instance: RegionInstance, slot: int) -> None:
        if slot in instance.alive:
            if self.random.random() < 0.9:
                self.mail.append(("orphan", instance, slot))
            else:
                self._slot_ends(instance, slot)

    def _slot_ends(self, instance: RegionInstance, slot: int) -> None:
        instance.slot_dies(slot)
        instance.send("gone", slot, slot)
        self.refresh()

    def crash(self, instance: RegionInstance, slot: int) -> None:
        """The slot's process is killed; its driver hears of it in more than one way."""
        self.note(f"slot {slot} of region {instance.region} {instance.attempt} crashes")
        self.has_reason_to_fail(instance)
        instance.slot_dies(slot)
        self.post.lose_what_is_on_its_way(instance, slot)
        for kind in ("gone", "failed"):
            instance.send(kind, slot, slot)
        if self.random.random() < 0.5:
            instance.send("failed", slot, slot)
        self.refresh()

    def has_reason_to_fail(self, instance: RegionInstance) -> None:
        reason = (self.drivers[instance.driver], instance)
        if reason not in self.reasons_to_fail:
            self.reasons_to_fail.append(reason)

    # Messages.

    def _mail_to_driver(self, instance: RegionInstance, slot: int) -> None:
        self.post.arrive_at_driver(instance, slot)

    def _mail_to_slot(self, instance: RegionInstance, slot: int) -> None:
        self.post.arrive_at_slot(instance, slot)

    def _mail_written(self, instance: RegionInstance, subtask: SubtaskId, checkpoint: int, name: str) -> None:
        """A snapshot has been written in the background; if its slot still lives, it is acknowledged."""
        if subtask.index in instance.alive:
            instance.send("ack", subtask.index, subtask, checkpoint, name)

    def channels_inside(self, region: int) -> frozenset[ChannelId]:
        """The channels between subtasks of a region with a loop; of any other nobody wants to know."""
        if region not in self._loops:
            return frozenset()
        topology = self.topology
        return frozenset(
            channel
            for subtask in topology.regions[region]
            for edge, channel in topology.inputs[subtask]
            if topology.region_of[SubtaskId(edge.producer.name, channel.producer)] == region
        )

    def _mail_resume(self, driver: Driver) -> None:
        if self.random.random() < 0.8:
            self.mail.append(("resume", driver))
            return
        self.note(f"driver {driver.serial} goes on")
        driver.paused = False
        if driver.alive and self.drivers[-1] is not driver:
            self.covered.add("two live drivers")
        self.mail.extend(driver.frozen)
        driver.frozen.clear()


_MAIL = [name for name in vars(World) if name.startswith("_mail_")]
