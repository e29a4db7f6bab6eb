"""Who reads whose log: consumers of memory and durable exchanges, and the producers that keep them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapshot_engine.protocol.elements import Attempt, ChannelId, EndOfInput, SubtaskId
from snapshot_engine.protocol.exchange_log import ChannelLog, NotWholeError
from snapshot_engine.protocol.region_run import DEPLOYED, RegionState

if TYPE_CHECKING:
    from snapshot_engine.simulator.driver import Driver
    from snapshot_engine.simulator.region import RegionInstance
    from snapshot_engine.simulator.world import World


SLOW = 0.3  # how often a producer is too busy to look who has dialled


class LogConnections:
    """Connecting takes time: a consumer runs, and checkpoints are triggered, before its producers know of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._newest: dict[int, Attempt] = {}
        """The newest attempt of a consumer that each log has heard of; older ones are refused."""

    def connect(self, driver: Driver, instance: RegionInstance) -> None:
        """Its consumers dial it, and it dials its producers."""
        for edge in self._world.topology.edges:
            if not edge.exchange.replays:
                continue
            for channel in edge.channels():
                producer = self._instance_of(driver, SubtaskId(edge.producer.name, channel.producer))
                consumer = SubtaskId(edge.consumer.name, channel.consumer)
                reader = self._instance_of(driver, consumer)
                if producer is not None and instance in (producer, reader):
                    self._connect(driver, producer, channel, consumer, reader)

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
        up = run.attempt == instance.attempt and (run.state in DEPLOYED or run.state is RegionState.FINISHED)
        return instance if up else None

    def _connect(
        self,
        driver: Driver,
        producer: RegionInstance,
        channel: ChannelId,
        consumer: SubtaskId,
        instance: RegionInstance | None,
    ) -> None:
        assert driver.recovery is not None
        run = driver.recovery.runs[self._world.topology.region_of[consumer]]
        if run.state is RegionState.FINISHED:
            producer.logs[channel].consumer_finished()
            producer.look_whether_caught_up()
        elif instance is not None:
            port = instance.log_ports[channel]
            port.reader = None
            ended = channel in instance.subtasks[consumer].ended or any(type(e) is EndOfInput for e in port.queue)
            slow = self._world.random.random() < SLOW
            self._world.mail.append(("dial", producer, instance, channel, ended, slow))

    def region_finished(self, driver: Driver, region: int) -> None:
        """Producers that are catching up with it wait no longer to be dialled."""
        assert driver.recovery is not None
        if driver.recovery.runs[region].state is not RegionState.FINISHED:
            return
        for _, channel, producer, consumer in self._world.topology.cut_edges():
            instance = self._world.current.get((driver.serial, producer))
            if consumer == region and instance is not None:
                instance.consumer_finished(channel)

    def dialled(self, producer: RegionInstance, consumer: RegionInstance, channel: ChannelId, ended: bool) -> None:
        """A consumer is heard of. What the log cannot give any more is told to the driver."""
        log = producer.logs.get(channel)
        if log is None or channel.consumer not in consumer.alive:
            return
        if consumer.attempt < self._newest.get(id(log), consumer.attempt):
            return
        self._newest[id(log)] = consumer.attempt
        if ended:
            log.consumer_finished()
        else:
            self._attach(log, producer, consumer)
        producer.look_whether_caught_up()

    def _attach(self, log: ChannelLog, producer: RegionInstance, consumer: RegionInstance) -> None:
        port = consumer.log_ports[log.channel]
        try:
            port.reader = log.attach(port.receiver.expected, log.barriers_after(consumer.settled))
        except NotWholeError:
            self._world.covered.add("consumer refused by a log")
            self._world.note(f"{log.channel} is not whole for region {consumer.region} {consumer.attempt}")
            self._world.has_reason_to_fail(consumer)
            consumer.send("refused", log.channel.consumer, log.channel, producer.region, producer.attempt)

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
