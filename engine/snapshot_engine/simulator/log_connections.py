"""Who reads whose log: consumers of memory and durable exchanges, and the producers that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.exchange_log import ChannelLog
from snapshot_engine.protocol.region_run import ACTIVE, RegionState

if TYPE_CHECKING:
    from snapshot_engine.simulator.driver import Driver
    from snapshot_engine.simulator.region import RegionInstance
    from snapshot_engine.simulator.world import World


class LogConnections:
    def __init__(self, world: World) -> None:
        self._world = world

    def connect(self, driver: Driver, instance: RegionInstance) -> None:
        """Its consumers read from its logs, and it reads from those of its producers."""
        for edge in self._world.topology.edges:
            if not edge.exchange.replays:
                continue
            for channel in edge.channels():
                producer = self._instance_of(driver, SubtaskId(edge.producer.name, channel.producer))
                consumer = SubtaskId(edge.consumer.name, channel.consumer)
                reader = self._instance_of(driver, consumer)
                if producer is not None and instance in (producer, reader):
                    self._connect(driver, producer.logs[channel], consumer, reader)
                    producer.look_whether_caught_up()

    def _instance_of(self, driver: Driver, subtask: SubtaskId) -> RegionInstance | None:
        """The attempt that the driver knows as the current one, if its slot is alive.

        One that is being stopped is current no more: what connects to it, or for it, would be lost on the
        next.
        """
        region = self._world.topology.region_of[subtask]
        instance = self._world.current.get((driver.serial, region))
        if instance is None or subtask.index not in instance.alive or driver.recovery is None:
            return None
        run = driver.recovery.runs[region]
        up = run.attempt == instance.attempt and (run.state in ACTIVE or run.state is RegionState.FINISHED)
        return instance if up else None

    def _connect(self, driver: Driver, log: ChannelLog, consumer: SubtaskId, instance: RegionInstance | None) -> None:
        assert driver.recovery is not None
        run = driver.recovery.runs[self._world.topology.region_of[consumer]]
        if run.state is RegionState.FINISHED or (
            instance is not None and log.channel in instance.subtasks[consumer].ended
        ):
            log.consumer_finished()
        elif instance is not None:
            port = instance.log_ports[log.channel]
            port.reader = log.attach(port.receiver.expected, driver.coordinator.pending)

    def cut_off(self, channel: ChannelId, log: ChannelLog) -> None:
        """A log is gone: whoever was reading it waits until the producer's region is back."""
        for instance in self._world.instances:
            port = instance.log_ports.get(channel)
            if port is not None and port.reader is not None and port.reader.log is log:
                port.reader = None

    def some_replay(self) -> bool:
        ports = (port for instance in self._world.instances for port in instance.log_ports.values())
        return any(port.reader is not None and port.reader.replaying for port in ports)

    def _logs_of(self, driver: Driver) -> list[ChannelLog]:
        return [
            log
            for (serial, _), instance in self._world.current.items()
            if serial == driver.serial
            for log in instance.logs.values()
        ]

    def pin(self, driver: Driver, checkpoint: int) -> None:
        for log in self._logs_of(driver):
            log.pin(checkpoint)

    def unpin(self, driver: Driver) -> None:
        for log in self._logs_of(driver):
            log.unpin(driver.latest_checkpoint())

    def is_whole(self, driver: Driver, producer: int, channel: ChannelId, checkpoint: int) -> bool:
        instance = self._world.current.get((driver.serial, producer))
        assert driver.recovery is not None
        if instance is None or channel not in instance.logs:
            return False
        if instance.attempt != driver.recovery.runs[producer].attempt:
            return False
        return instance.logs[channel].is_whole_for(checkpoint)
