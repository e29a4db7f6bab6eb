"""One attempt of a region: its slots with their subtasks, and the ends of their channels.

It may outlive its time: a slot that was told to stop and did not is a zombie, which goes on reading, writing
and talking to whoever listens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from snapshot_engine.protocol.committed_exchange import BEGINNING, Segment, SegmentPosition, SegmentWriter
from snapshot_engine.protocol.elements import Attempt, Barrier, ChannelId, SubtaskId
from snapshot_engine.protocol.exchange_log import ChannelLog
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.simulator.channels import (
    FeedbackOutlet,
    LogOutlet,
    LogPort,
    Outlet,
    Port,
    QueueOutlet,
    QueuePort,
    SegmentOutlet,
    SegmentPort,
)
from snapshot_engine.simulator.loops import Head
from snapshot_engine.simulator.operators import KINDS, Source
from snapshot_engine.simulator.storage import Manifest
from snapshot_engine.simulator.subtask import Subtask, SubtaskState
from snapshot_engine.simulator.topology import Edge, Split

if TYPE_CHECKING:
    from snapshot_engine.simulator.world import World


class RegionInstance:
    def __init__(
        self,
        world: World,
        region: int,
        attempt: Attempt,
        driver: int,
        manifest: Manifest | None,
        settled: int,
        catching_up: bool,
    ) -> None:
        self.world = world
        self.region = region
        self.attempt = attempt
        self.driver = driver
        """The serial number of the driver that started it."""
        self.checkpoint = manifest.checkpoint if manifest else 0
        self.settled = settled
        """The newest checkpoint that was triggered when this attempt was started."""
        self.over_before = frozenset(world.drivers[driver].over)
        """Checkpoints that had completed or were aborted when this attempt began."""
        self.alive = set(world.topology.slots(region))
        self.channels_inside = world.channels_inside(region)
        self.logs: dict[ChannelId, ChannelLog] = {}
        self.log_ports: dict[ChannelId, LogPort] = {}
        self._queues: list[QueuePort] = []
        self._running: set[int] = set()
        """Slots that have been told where their peers are: nobody reads or sends anything before."""
        self._manifest = manifest
        self._catching_up = set(self.alive) if catching_up else set()
        """Slots that have not said that they have produced again what their consumers had seen."""
        self.subtasks: dict[SubtaskId, Subtask] = {}
        for subtask in world.topology.regions[region]:
            restored = _restored(world, manifest, subtask)
            self.subtasks[subtask] = KINDS[world.topology.vertex[subtask.vertex].kind](subtask, self, restored)
        self._publish(manifest)

    def run_slot(self, slot: int) -> None:
        """Subtasks that had finished say so again; the rest run."""
        self._running.add(slot)
        manifest = self._manifest
        for id, subtask in self.subtasks.items():
            if id.index != slot:
                continue
            if manifest is not None and id in manifest.finished:
                subtask.finished = True
                subtask.end_logs()
                self.world.covered.add("finished subtask restored")
                self.send("finished", id.index, id, manifest.states[id], manifest.checkpoint)
            else:
                subtask.come_up()
        self.look_whether_caught_up()

    def runnable(self) -> list[Subtask]:
        return [s for id, s in self.subtasks.items() if id.index in self._running & self.alive and not s.finished]

    def slot_dies(self, slot: int) -> None:
        """Its process is gone: its queues take nothing more, and whoever read its logs is cut off."""
        self.alive.discard(slot)
        for port in self._queues:
            if port.channel.consumer == slot:
                self.world.network.close(port.channel, self.attempt, port.queue)
        for channel, log in list(self.logs.items()):
            if channel.producer == slot:
                log.detach()
                del self.logs[channel]
                self.world.logs.cut_off(channel, log)

    def is_paused(self) -> bool:
        """A log that is full holds its region's sources back."""
        return bool(self.logs) and any(log.full for log in self.logs.values())

    def look_whether_caught_up(self) -> None:
        for slot in sorted(self._catching_up & self.alive):
            logs = [log for channel, log in self.logs.items() if channel.producer == slot]
            if logs and all(log.caught_up for log in logs):
                self._catching_up.discard(slot)
                self.send("caught_up", slot, slot)

    def consumer_finished(self, channel: ChannelId) -> None:
        if channel in self.logs and channel.producer in self._catching_up:
            self.logs[channel].consumer_finished()
            self.look_whether_caught_up()

    # Both ends of channels, for the subtasks.

    def make_port(self, edge: Edge, channel: ChannelId, restored: SubtaskState | None) -> Port:
        at = restored.inputs[channel] if restored else None
        if edge.exchange is Exchange.COMMITTED:
            position = cast(SegmentPosition, at) if at is not None else BEGINNING
            return SegmentPort(edge, channel, self.world.storage, position)
        if edge.exchange is Exchange.PIPELINED:
            port = QueuePort(edge, channel)
            self._queues.append(port)
            self.world.network.open(channel, self.attempt, port.queue)
            return port
        receiver = self.world.parts.receiver(channel, cast(int, at) if at is not None else 0)
        as_sent = self.region in self.world.config.deterministic
        self.log_ports[channel] = LogPort(edge, channel, receiver, as_sent)
        return self.log_ports[channel]

    def make_outlets(self, edge: Edge, index: int, restored: SubtaskState | None) -> list[Outlet]:
        consumers = [index] if edge.split is Split.FORWARD else range(edge.consumer.parallelism)
        channels = [ChannelId(edge.id, index, consumer) for consumer in consumers]
        return [self._make_outlet(edge, channel, restored) for channel in channels]

    def _make_outlet(self, edge: Edge, channel: ChannelId, restored: SubtaskState | None) -> Outlet:
        at = restored.outputs[channel] if restored else None
        if edge.feedback:
            return FeedbackOutlet(channel, self.attempt, self.world.network)
        if edge.exchange is Exchange.PIPELINED:
            return QueueOutlet(channel, self.attempt, self.world.network)
        if edge.exchange is Exchange.COMMITTED:
            number, named = cast(tuple[int, tuple[Segment, ...]], at) if at is not None else (0, ())
            return SegmentOutlet(SegmentWriter(channel, number, named), self.attempt, self.world.storage)
        durable = edge.exchange is Exchange.DURABLE
        budget = 10_000 if durable else self.world.config.memory_budget
        start = cast(int, at) if at is not None else 0
        log = self.world.parts.log(channel, durable, budget, 20_000, start, self.checkpoint)
        self.logs[channel] = log
        return LogOutlet(log)

    def _publish(self, manifest: Manifest | None) -> None:
        if manifest is not None:
            for subtask in self.subtasks.values():
                self.publish(subtask, manifest.segments)

    def publish(self, subtask: Subtask, segments: object) -> None:
        visible = cast(dict[ChannelId, tuple[Segment, ...]], segments)
        for port in subtask.ports:
            if type(port) is SegmentPort and port.channel in visible:
                port.reader.publish(visible[port.channel])

    # Talking to the driver.

    def send(self, kind: str, slot: int, *arguments: object) -> None:
        self.world.post.tell_driver(self, slot, kind, *arguments)

    def write_snapshot(self, subtask: Subtask, checkpoint: int, state: SubtaskState) -> None:
        if self.world.faults.snapshot_write_fails():
            self.send("decline", subtask.id.index, subtask.id, checkpoint, "could not be written")
            return
        name = f"{checkpoint} {subtask.id} {self.attempt}"
        self.world.storage.files[name] = state
        self.world.mail.append(("written", self, subtask.id, checkpoint, name))

    def write_final(self, subtask: Subtask) -> None:
        name = f"final {subtask.id} {self.attempt} from {self.checkpoint}"
        self.world.storage.files[name] = subtask.state(0)
        self.send("finished", subtask.id.index, subtask.id, name, subtask.alignment.settled)

    # What the driver says.

    def hear(self, slot: int, kind: str, arguments: tuple[object, ...]) -> None:
        if kind == "trigger":
            triggered, barrier, stop = cast(tuple[SubtaskId, Barrier, bool], arguments)
            self.subtasks[triggered].trigger(barrier, stop)
            return
        for id, subtask in self.subtasks.items():
            if id.index != slot:
                continue
            if kind == "abort":
                subtask.abort(cast(int, arguments[0]))
            elif kind == "completed":
                subtask.completed(cast(int, arguments[0]))
                self.publish(subtask, arguments[1])
            elif arguments[0] == self.attempt and kind == "least_time":
                if isinstance(subtask, Source) and subtask.drift is not None:
                    subtask.drift.told(cast(int | None, arguments[1]))
            elif arguments[0] == self.attempt:
                self._hear_of_loop(subtask, kind, *cast(tuple[int, ...], arguments[1:]))

    def _hear_of_loop(self, subtask: Subtask, kind: str, number: int = 0) -> None:
        if kind == "wave":
            self.send("counts", subtask.id.index, subtask.id, number, subtask.loop_counts())
        elif isinstance(subtask, Head) and not subtask.finished:
            subtask.hear(kind, number)


def _restored(world: World, manifest: Manifest | None, subtask: SubtaskId) -> SubtaskState | None:
    return cast(SubtaskState, world.storage.read(manifest.states[subtask])) if manifest else None
