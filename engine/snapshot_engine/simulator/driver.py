"""A simulated driver: the shell around coordinator and recovery, with storage that may not answer.

The order of things is the runtime's: acquire the storage with a new generation, commit again what the latest
manifest names, start the regions; a manifest counts when `current` names it, and only then is anything
committed or deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from snapshot_engine.protocol.checkpoints import (
    Abort,
    Completed,
    CoordinatorAction,
    Discard,
    FailOver,
    Finished,
    Trigger,
    WriteManifest,
)
from snapshot_engine.protocol.committed_exchange import unneeded
from snapshot_engine.protocol.critical_path import Timings
from snapshot_engine.protocol.elements import Attempt, ChannelId, SubtaskId
from snapshot_engine.protocol.failover import RegionChannel
from snapshot_engine.protocol.loop_end import LoopCounts
from snapshot_engine.protocol.recovery import (
    FailJob,
    Recovery,
    RecoveryAction,
    ResumeCheckpoints,
    StartRegions,
    StopSlots,
    SuspendCheckpoints,
)
from snapshot_engine.protocol.region_run import ACTIVE, DEPLOYED, RegionState
from snapshot_engine.protocol.restarts import RestartBudget, RestartConfig
from snapshot_engine.protocol.source_drift import NOBODY_AHEAD
from snapshot_engine.simulator.loop_ends import LoopEnds
from snapshot_engine.simulator.manifests import make_manifest
from snapshot_engine.simulator.storage import Current, Manifest
from snapshot_engine.simulator.violations import Violation

if TYPE_CHECKING:
    from snapshot_engine.simulator.world import World

NO_TIMES = Timings()
RESTARTS = RestartConfig(first_delay=0.05, max_delay=0.2, per_region=None, per_job=None)
NEVER = float("inf")
STOP_PATIENCE = 0.4  # how long slots may take to stop before they are left to the fence


@dataclass
class Swap:
    """One change of `current` under way. It is tried again until its outcome is known."""

    wanted: Current
    expected: int
    change: Callable[[Current], Current]
    landed: Callable[[], None]
    failed: Callable[[str], None]
    was_unknown: bool = False
    """A request of it may still be on its way, so that no later refusal proves that it will never land."""


class Driver:
    def __init__(self, world: World, serial: int) -> None:
        self.world = world
        self.serial = serial
        self.alive = True
        self.paused = False
        self.owns = False
        self.generation = 0
        self.coordinator = world.parts.coordinator(world.config.checkpoints, (), (), 1)
        self.recovery: Recovery | None = None
        self.latest: Manifest | None = None
        self._swap: Swap | None = None
        self._current = Current()
        self._version = 0
        self._deadlines: dict[tuple[int, Attempt], float] = {}
        self._writing: dict[int, tuple[WriteManifest, Manifest]] = {}
        self._retained: list[Manifest] = []
        self._dropped: list[Manifest] = []  # what their deletion has to wait for is still active
        self._finishing = False
        self._finished: dict[tuple[int, Attempt], set[SubtaskId]] = {}
        self._loops = LoopEnds(self)
        drift = world.config.max_drift
        self._together = None if drift is None else world.parts.group_time(drift)
        self.over: set[int] = set()
        """Checkpoints that have completed or were aborted."""
        self._unreadable: set[ChannelId] = set()
        self._due: float | None = None
        """When something has to be done if nothing happens before; None: to be found out."""
        self.frozen: list[tuple[object, ...]] = []
        """What came while it was stopped."""

    def begin(self) -> None:
        self._current, self._version = self.world.storage.current, self.world.storage.version
        self._change(_next_owner, self._acquired, lambda _: self.begin())

    def exit(self, reason: str) -> None:
        self.world.note(f"driver {self.serial} exits: {reason}")
        self.alive = False

    def _acquired(self) -> None:
        world = self.world
        assert self._swap is not None
        self.owns = True
        self.generation = self._swap.wanted.generation
        attempts = self.generation if world.parts.generations_are_new else 1
        self._retained = [world.storage.manifests[key] for key in self._swap.wanted.retained]
        self.latest = self._retained[-1] if self._retained else None
        self.coordinator = world.parts.coordinator(
            world.config.checkpoints,
            world.topology.subtasks,
            world.topology.triggered(),
            self._swap.wanted.next_id - IDS_PER_DRIVER,
        )
        runs = {
            region: world.parts.region_run(region, world.topology.slots(region), attempts)
            for region in world.topology.regions
        }
        self.recovery = Recovery(runs, RestartBudget(RESTARTS), world.config.strategy, world.config.deterministic)
        world.note(f"driver {self.serial} owns the job, generation {self.generation}, {self._latest_name()}")
        if self.latest is not None:
            world.submit("commit", self, self.latest, False)
        self._recover(self.recovery.start(world.now))

    def _latest_name(self) -> str:
        return f"from checkpoint {self.latest.checkpoint}" if self.latest else "from nothing"

    # Changing `current`.

    def _change(
        self, change: Callable[[Current], Current], landed: Callable[[], None], failed: Callable[[str], None]
    ) -> None:
        """Always against what this driver wrote last: that is how it learns that it was replaced."""
        if not self.world.parts.drivers_swap_against_their_own_version:
            self._current, self._version = self.world.storage.current, self.world.storage.version
        self._swap = Swap(change(self._current), self._version, change, landed, failed)
        self.world.submit("swap", self, self._swap)

    def swapped(self, swap: Swap, outcome: str) -> None:
        if swap is not self._swap:
            return
        if outcome == "landed":
            self._landed(swap)
        elif outcome == "failed" and not swap.was_unknown:
            swap.failed("the store refused it")
        elif outcome == "unknown" and not self.world.parts.unknown_outcomes_are_resolved:
            swap.failed("nobody knows")
        else:
            unknown = outcome == "unknown" and self.world.parts.refusals_after_unknown_are_checked
            swap.was_unknown = swap.was_unknown or unknown
            self.world.submit("read", self, swap)

    def _landed(self, swap: Swap) -> None:
        self._current, self._version = swap.wanted, swap.expected + 1
        swap.landed()

    def read_back(self, swap: Swap, current: Current, version: int) -> None:
        """A swap whose outcome is unknown, or that found another version."""
        if swap is not self._swap:
            return
        if current.revision is swap.wanted.revision:
            self._landed(swap)
        elif version == swap.expected:
            self.world.submit("swap", self, swap)  # the same again: at most one of the two can land
        elif self.owns and current.generation != self.generation:
            self.exit(f"generation {current.generation} owns the job")
        else:
            self._swap = replace(swap, wanted=swap.change(current), expected=version, was_unknown=False)
            self.world.submit("swap", self, self._swap)

    # What the coordinator wants.

    def coordinate(self, actions: Iterable[CoordinatorAction]) -> None:
        for action in actions:
            match action:
                case Trigger():
                    self.world.note(f"trigger {action.barrier.checkpoint} {action.savepoint or ''}")
                    for subtask in action.subtasks:
                        self.world.post.tell_subtask(self, subtask, "trigger", action.barrier, action.stop)
                case WriteManifest():
                    self._write(action)
                case Completed():
                    self._completed(action)
                case Abort():
                    self.world.note(f"abort {action.checkpoint}: {action.reason}")
                    if self.world.logs.some_replay():
                        self.world.covered.add("abort during a replay")
                    self.over.add(action.checkpoint)
                    self.world.post.tell_all(self, "abort", action.checkpoint)
                    for name in action.discard.values():
                        self.world.storage.delete(cast(str, name))
                case Discard():
                    self.world.storage.delete(cast(str, action.state))
                case FailOver():
                    assert self.recovery is not None
                    self.world.reasons_to_fail.append((self, None))
                    self._recover(self.recovery.failed_globally(action.reason, 0.5, self.world.now))
                case Finished():
                    self._finishing = True

    def _write(self, action: WriteManifest) -> None:
        manifest = make_manifest(self.world, action, self.generation, self.latest)
        self._writing[action.checkpoint] = (action, manifest)
        self.world.storage.manifests[manifest.key] = manifest
        if not self.world.parts.commits_wait_for_the_manifest:
            self.world.commit(manifest)
        if not action.retained:
            self.world.submit("savepoint", self, action.checkpoint)
            return
        keep = self.world.config.retained

        def name_it(current: Current) -> Current:
            return replace(current, retained=(*current.retained, manifest.key)[-keep:], revision=object())

        self._change(name_it, lambda: self.manifest_landed(action.checkpoint), self._manifest_failed(action.checkpoint))

    def _manifest_failed(self, checkpoint: int) -> Callable[[str], None]:
        def failed(reason: str) -> None:
            self._writing.pop(checkpoint)
            self.coordinate(self.coordinator.manifest_failed(checkpoint, reason, self.world.now))
            self.after_event()

        return failed

    def manifest_landed(self, checkpoint: int) -> None:
        action, manifest = self._writing[checkpoint]
        self.world.note(f"manifest {checkpoint} landed")
        if action.retained:
            assert self._swap is not None
            dropped = [m for m in self._retained if m.key not in self._swap.wanted.retained]
            self._dropped += dropped
            self._retained = [*(m for m in self._retained if m not in dropped), manifest]
            self.latest = manifest
        self.coordinate(self.coordinator.manifest_written(checkpoint, self.world.now))
        oldest = self.coordinator.oldest_active
        if oldest is None or oldest > self.latest_checkpoint():
            self._delete(self._dropped)
            self._dropped = []
        self.after_event()

    def _completed(self, done: Completed) -> None:
        self.over.add(done.checkpoint)
        _, manifest = self._writing.pop(done.checkpoint)
        if done.commits:
            self.world.submit("commit", self, manifest, True)
        elif not self.world.parts.savepoints_do_not_commit:
            self.world.commit(manifest)
        if done.savepoint is not None:
            self.world.covered.add("stop with savepoint" if done.stop else "savepoint")
        if done.stop:
            self.world.note("stopped with a savepoint")
            self.world.stops += 1
            self._finishing = True

    def committed(self, manifest: Manifest) -> None:
        """All that `manifest` names is visible: tell the subtasks, and end if that was the end."""
        self.world.post.tell_all(self, "completed", manifest.checkpoint, manifest.segments)
        if self._finishing and self.latest is manifest:
            everything = manifest.finished == set(self.world.topology.subtasks)
            self.world.done = everything
            self.exit("the job has finished" if everything else "the job was stopped")

    def _delete(self, dropped: list[Manifest]) -> None:
        """Manifests that this driver's own swap has dropped: what nobody else needs of them goes."""
        needed = {name for manifest in self._retained for name in manifest.states.values()}
        needed.update(cast(str, state) for state in self.coordinator.acknowledged_states())
        for manifest in dropped:
            for name in manifest.states.values():
                if name not in needed:
                    self.world.storage.delete(name)
            for segment in unneeded([manifest.segments], [m.segments for m in self._retained]):
                self.world.storage.delete(cast(str, segment.payload))

    def latest_checkpoint(self) -> int:
        return self.latest.checkpoint if self.latest else 0

    # What recovery wants.

    def _recover(self, actions: Iterable[RecoveryAction]) -> None:
        for action in actions:
            match action:
                case SuspendCheckpoints():
                    self.coordinate(self.coordinator.suspend(action.reason, self.world.now))
                case StopSlots():
                    self._deadlines[action.region, action.attempt] = self.world.now + STOP_PATIENCE
                    self._sources_away(action.region)
                    self.world.stop_slots(self, action.region, action.attempt)
                case StartRegions():
                    self._start(action)
                case ResumeCheckpoints():
                    self._resume()
                case FailJob():
                    raise Violation(f"the job gave up: {action.verdict.reason}")
        assert self.recovery is not None
        if self.recovery.all_are_back:
            self.world.logs.unpin(self)

    def _start(self, action: StartRegions) -> None:
        if len(action.attempts) < len(self.world.topology.regions):
            self.world.covered.add("regional restart")
        again = {channel for _, channel, producer, _ in self.world.topology.cut_edges() if producer in action.attempts}
        self._unreadable -= again
        for region, attempt in action.attempts.items():
            alone = self._goes_back_behind_consumers(region)
            self._hold_checkpoints(region, alone)
            self._sources_away(region)
            self.world.note(f"start region {region} as {attempt} {self._latest_name()}")
            self._loops.started(region, attempt)
            settled = self.coordinator.next_id - 1
            self.world.submit("launch", self, region, attempt, self.latest, settled, alone)

    def _hold_checkpoints(self, region: int, alone: bool) -> None:
        """Each slot that keeps logs says for itself when it has caught up."""
        topology, parts = self.world.topology, self.world.parts
        for slot in topology.slots(region):
            self.coordinate(self.coordinator.release((region, slot), self.world.now))  # what an older attempt held
            silent = not topology.slot_keeps_logs(region, slot) and parts.slots_without_logs_are_not_held
            if alone and parts.catch_up_holds_checkpoints and not silent:
                self.coordinator.hold((region, slot))
                self.world.covered.add("producer restarted alone")

    def _goes_back_behind_consumers(self, region: int) -> bool:
        assert self.recovery is not None
        runs, up = self.recovery.runs, DEPLOYED | {RegionState.FINISHED}
        return any(
            producer == region and runs[consumer].state in up and edge.exchange.replays
            for edge, _, producer, consumer in self.world.topology.cut_edges()
        )

    def _resume(self) -> None:
        assert self.recovery is not None
        attempts = {
            subtask: self.recovery.runs[region].attempt for subtask, region in self.world.topology.region_of.items()
        }
        self.coordinate(self.coordinator.resume(attempts, self.world.now))

    def after_event(self) -> None:
        """A decision waits for the checkpoint that is Completing, then is made at once."""
        self._due = None
        if self.alive and self.recovery and self.recovery.undecided and self.coordinator.completing is None:
            facts = self._facts()
            self.world.logs.pin(self, self.latest_checkpoint())
            self._recover(self.recovery.decide(facts, self.world.now))

    def _facts(self) -> list[RegionChannel]:
        checkpoint = self.latest_checkpoint()
        return [
            RegionChannel(
                producer,
                consumer,
                edge.exchange,
                not edge.exchange.replays or self._can_be_read_again(producer, channel, checkpoint),
            )
            for edge, channel, producer, consumer in self.world.topology.cut_edges()
        ]

    def _can_be_read_again(self, producer: int, channel: ChannelId, checkpoint: int) -> bool:
        return channel not in self._unreadable and self.world.logs.is_whole(self, producer, channel, checkpoint)

    # What slots say.

    def hear(self, kind: str, region: int, attempt: Attempt, arguments: tuple[object, ...]) -> None:
        if self.recovery is None:
            return
        now = self.world.now
        match kind:
            case "ack":
                subtask, checkpoint, name = cast(tuple[SubtaskId, int, str], arguments)
                self.coordinate(self.coordinator.acknowledge(checkpoint, subtask, attempt, name, NO_TIMES, now))
            case "decline":
                subtask, checkpoint, reason = cast(tuple[SubtaskId, int, str], arguments)
                self.coordinate(self.coordinator.decline(checkpoint, subtask, attempt, reason, now))
            case "finished":
                subtask, name, snapshotted = cast(tuple[SubtaskId, str, int], arguments)
                self.coordinate(self.coordinator.finished(subtask, attempt, name, snapshotted, now))
                self._source_ended(region, attempt, subtask)
                self._subtask_finished(region, attempt, subtask)
            case "source_time":
                self._source_stands_at(region, attempt, *cast(tuple[SubtaskId, int | None], arguments))
            case "inputs_ended":
                self.coordinate(self.coordinator.inputs_ended(cast(SubtaskId, arguments[0]), attempt, now))
                if self.recovery.runs[region].accepts(attempt):
                    self._loops.inputs_ended(region)
            case "caught_up":
                if self.recovery.runs[region].accepts(attempt):
                    self.coordinate(self.coordinator.release((region, arguments[0]), now))
                    self._tell_least_time(region)
            case "counts":
                self._loops.hear_counts(region, attempt, *cast(tuple[SubtaskId, int, LoopCounts], arguments))
            case "refused":
                self._refused(region, attempt, *cast(tuple[ChannelId, int, Attempt], arguments))
            case "pressure":
                self.coordinate(self.coordinator.request_checkpoint(now))
            case _:
                self._hear_of_slot(kind, region, attempt, cast(int, arguments[0]))
        self.after_event()

    def _source_stands_at(self, region: int, attempt: Attempt, subtask: SubtaskId, time: int | None) -> None:
        assert self.recovery is not None
        run = self.recovery.runs[region]
        if self._together is not None and run.accepts(attempt) and run.state in ACTIVE:
            self._together.stands_at(subtask, time)
            self._tell_news_of_sources()

    def _source_ended(self, region: int, attempt: Attempt, subtask: SubtaskId) -> None:
        assert self.recovery is not None
        if self._together is not None and self.recovery.runs[region].accepts(attempt):
            self._together.ended(subtask)
            self._tell_news_of_sources()

    def _sources_away(self, region: int) -> None:
        if self._together is not None:
            self._together.away(self.world.topology.regions[region])
            self._tell_news_of_sources()

    def _tell_news_of_sources(self) -> None:
        if self._together is not None and self._together.has_news:
            self._together.tell()
            for region in self.world.topology.regions:
                self._tell_least_time(region)

    def _tell_least_time(self, region: int) -> None:
        """One that catches up waits for nobody: checkpoints wait for it, and others may wait for those."""
        if self._together is not None:
            slots = self.world.topology.slots(region)
            catches_up = any((region, slot) in self.coordinator.holds for slot in slots)
            self.world.post.tell_region(self, region, "least_time", NOBODY_AHEAD if catches_up else self._together.told)

    def _refused(self, region: int, attempt: Attempt, channel: ChannelId, producer: int, of: Attempt) -> None:
        """A consumer cannot read a log: its producer has to make it again, unless that was restarted since."""
        assert self.recovery is not None
        run = self.recovery.runs[producer]
        if run.attempt == of and run.state in ACTIVE and self.recovery.runs[region].accepts(attempt):
            self._unreadable.add(channel)
            self._recover(self.recovery.failed(region, attempt, f"cannot read {channel}", 0.5, self.world.now))

    def _subtask_finished(self, region: int, attempt: Attempt, subtask: SubtaskId) -> None:
        """A slot has finished with the last word of its subtasks: no message of its own says so, which could arrive
        where one of theirs was lost. One that keeps a log stays: somebody may have to read it again.
        """
        assert self.recovery is not None
        finished = self._finished.setdefault((region, attempt), set())
        finished.add(subtask)
        slot, topology = subtask.index, self.world.topology
        hosted = {each for each in topology.regions[region] if each.index == slot}
        if hosted <= finished and not topology.slot_keeps_logs(region, slot):
            self._recover(self.recovery.slot_finished(region, slot, attempt, self.world.now))
            self.world.logs.region_finished(self, region)

    def _hear_of_slot(self, kind: str, region: int, attempt: Attempt, slot: int) -> None:
        assert self.recovery is not None
        now = self.world.now
        match kind:
            case "slot_up":
                if self.recovery.slot_registered(region, slot, attempt, now):
                    self.world.let_run(self, region, attempt)
                    self._tell_least_time(region)
            case "slot_runs":
                self._recover(self.recovery.slot_running(region, slot, attempt, now))
            case "gone":
                self._recover(self.recovery.slot_gone(region, slot, attempt, now))
            case "failed":
                cause = f"slot {slot} of region {region} was lost"
                self._recover(self.recovery.failed(region, attempt, cause, 0.5, now))
            case _:
                raise ValueError(kind)

    def tick(self) -> None:
        """Only if something is due: looking for it is what most ticks do."""
        if self.recovery is None:
            return
        if self._due is None:
            self._due = self._next_due()
        if self.world.now >= self._due:
            self._due = None
            self._do_what_is_due()

    def _next_due(self) -> float:
        assert self.recovery is not None
        wakeups = [self.coordinator.next_wakeup(), self.recovery.next_wakeup(), *self._deadlines.values()]
        wakeups += self._loops.wakeups()
        return min((each for each in wakeups if each is not None), default=NEVER)

    def _do_what_is_due(self) -> None:
        assert self.recovery is not None
        now = self.world.now
        self.coordinate(self.coordinator.tick(now))
        for (region, attempt), deadline in list(self._deadlines.items()):
            if now >= deadline:
                del self._deadlines[region, attempt]
                if self.recovery.runs[region].state is RegionState.CANCELLING:
                    self._recover(self.recovery.abandon_slots(region, attempt, now))
        self._recover(self.recovery.tick(now))
        self._loops.tick({region for region, run in self.recovery.runs.items() if run.state is RegionState.FINISHED})
        self.after_event()

    def request_savepoint(self, name: str, stop: bool) -> None:
        if self.recovery is not None:
            self.coordinate(self.coordinator.request_savepoint(name, self.world.now, stop))
            self.after_event()


IDS_PER_DRIVER = 1000


def _next_owner(current: Current) -> Current:
    """A driver takes the next generation and reserves numbers for its checkpoints, so that none is used
    twice.
    """
    return Current(current.generation + 1, current.retained, current.next_id + IDS_PER_DRIVER, object())
