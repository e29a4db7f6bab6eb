"""All cut edges of one slot: makes their ends from what was deployed, connects them, and tells the driver of them."""

from __future__ import annotations

import socket
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from snapshot_engine.channels.dialing import Greeting, SlotAddress, dial
from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.sockets import SocketInbound
from snapshot_engine.graph.job_graph import JobEdge, Partitioning
from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.operator import StateReader
from snapshot_engine.protocol.committed_exchange import BEGINNING, SegmentReader, SegmentWriter
from snapshot_engine.protocol.elements import Attempt, ChannelId, SubtaskId
from snapshot_engine.protocol.exchange_log import ChannelLog, NotWholeError
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.exchanges.log_reading import NumberedQueue
from snapshot_engine.runtime.exchanges.log_storage import DiskStorage, MemoryStorage
from snapshot_engine.runtime.exchanges.log_writing import LogOutbound
from snapshot_engine.runtime.exchanges.region_cuts import deterministic_regions
from snapshot_engine.runtime.exchanges.segment_parts import Part
from snapshot_engine.runtime.exchanges.segment_reading import (
    Keep,
    SegmentFetcher,
    SegmentQueue,
    Stream,
    failed_read,
)
from snapshot_engine.runtime.exchanges.segment_writing import SegmentOutbound
from snapshot_engine.runtime.exchanges.stored_segments import StreamId, StreamPosition, published
from snapshot_engine.runtime.exchanges.subtask_exchanges import SubtaskExchanges
from snapshot_engine.runtime.slot_task import SlotTask, channel_key, parse_channel

HEADROOM_BYTES = 64 << 20
"""What may still come after the sources were paused: channels and operators between them and the log are not empty."""
PRESSURE_SECONDS = 0.2


class SlotExchanges:
    def __init__(
        self,
        task: SlotTask,
        poller: Poller,
        reader: StateReader,
        store_early: Callable[[SubtaskId, Part], None],
        send: Callable[[m.Message], None],
        wake: Callable[[], None],
        schema_of: Callable[[JobEdge], pa.Schema],
    ) -> None:
        self._task = task
        self._graph = task.graph
        self._poller = poller
        self._store_early = store_early
        self._send = send
        self._schema_of = schema_of
        self._is_deterministic = task.region in deterministic_regions(task.graph)
        self._fetcher = SegmentFetcher(reader, lambda edge: schema_of(self._graph.edges[edge]), wake)
        self._of: dict[SubtaskId, SubtaskExchanges] = defaultdict(SubtaskExchanges)
        self._segments: dict[ChannelId, SegmentQueue] = {}
        self._numbered: dict[ChannelId, NumberedQueue] = {}
        self._logs: dict[ChannelId, LogOutbound] = {}
        self._storages: dict[tuple[SubtaskId, int], MemoryStorage | DiskStorage] = {}
        self._inbounds: dict[ChannelId, SocketInbound] = {}
        self._dialled: dict[ChannelId, list[int]] = {}
        self._settled = 0
        self._catching_up = False
        self._full = False
        self._next_pressure = 0.0
        self._region_paused = False
        self._feeds_who_catches_up = False

    # Building.

    def begin(self, deploy: m.Deploy) -> None:
        self._settled = deploy.settled
        self._catching_up = deploy.catching_up

    def of(self, subtask: SubtaskId) -> SubtaskExchanges:
        return self._of[subtask]

    def input(self, channel: ChannelId, restored: Mapping[str, Any]) -> SegmentQueue | NumberedQueue | None:
        """The receiving end of a cut channel; None for a pipelined one. `restored` is the subtask's share."""
        edge = self._graph.edges[channel.edge]
        exchange = self._graph.exchange_of(edge)
        if exchange is Exchange.PIPELINED:
            return None
        doc = restored.get("in", {}).get(str(edge.id), {})
        return self._log_input(edge, channel, doc) if exchange.replays else self._stored_input(edge, channel, doc)

    def output(self, channel: ChannelId, restored: Mapping[str, Any]) -> SegmentOutbound | LogOutbound | None:
        edge = self._graph.edges[channel.edge]
        exchange = self._graph.exchange_of(edge)
        if exchange is Exchange.PIPELINED:
            return None
        doc = restored.get("out", {}).get(str(edge.id), {})
        number = dict(doc.get("numbers", ())).get(channel.consumer, 0)
        if exchange.replays:
            return self._log_output(edge, exchange, channel, number, restored.get("checkpoint", 0))
        return self._stored_output(edge, channel, number, doc.get("lineage", 0))

    def _log_input(self, edge: JobEdge, channel: ChannelId, doc: Mapping[str, Any]) -> NumberedQueue:
        number = dict(doc.get("numbers", ())).get(channel.producer, 0)
        queue = NumberedQueue(channel, edge.port, number, in_batches_as_sent=self._is_deterministic)
        self._numbered[channel] = queue
        inputs = self._of[self._graph.consumer_of(channel)].log_inputs
        inputs.setdefault(edge.id, (edge, []))[1].append(queue)
        return queue

    def _log_output(
        self, edge: JobEdge, exchange: Exchange, channel: ChannelId, number: int, checkpoint: int
    ) -> LogOutbound:
        subtask = self._graph.producer_of(channel)
        siblings = len([other for other in self._graph.outputs[subtask] if other.edge == edge.id])
        budget = max(1, (edge.budget_bytes or self._task.settings.exchange_budget) // siblings)
        durable = exchange is Exchange.DURABLE
        log = ChannelLog(channel, durable, budget, budget + HEADROOM_BYTES, number, checkpoint)
        storage = self._storages.get((subtask, edge.id))
        if storage is None:
            storage = DiskStorage(edge.uid, self._task.settings.local_folder) if durable else MemoryStorage()
            self._storages[subtask, edge.id] = storage
        outbound = LogOutbound(log, storage, self._poller)
        self._logs[channel] = outbound
        self._of[subtask].log_outputs.setdefault(edge.id, (edge, []))[1].append(outbound)
        return outbound

    def _stored_output(self, edge: JobEdge, channel: ChannelId, number: int, lineage: int) -> SegmentOutbound:
        subtask = self._graph.producer_of(channel)
        outbound = SegmentOutbound(
            SegmentWriter(channel, number), lineage, self._schema_of(edge), partial(self._store_early, subtask)
        )
        self._of[subtask].segment_outputs.setdefault(edge.id, (edge, lineage, []))[2].append(outbound)
        return outbound

    def _stored_input(self, edge: JobEdge, channel: ChannelId, doc: Mapping[str, Any]) -> SegmentQueue:
        lineage = doc.get("lineage", 0)
        own = StreamId(channel.producer, channel.consumer, lineage)
        positions = [StreamPosition.from_json(each) for each in doc.get("positions", ())]
        segments = {StreamId(*each[:3]): each[3] for each in doc.get("segments", ())}
        producers = 1 if edge.partitioning is Partitioning.FORWARD else self._producers(edge)
        inherited = [
            each
            for each in positions
            if each.stream.lineage != lineage and each.stream.producer % producers == channel.producer % producers
        ]
        mine = next((each for each in positions if each.stream == own), StreamPosition(own))
        streams = [self._stream(edge, each, segments, each is not mine) for each in [*inherited, mine]]
        queue = SegmentQueue(channel, edge.port, streams, self._fetcher.fetch, doc.get("ended", False))
        self._segments[channel] = queue
        inputs = self._of[self._graph.consumer_of(channel)].segment_inputs
        inputs.setdefault(edge.id, (edge, lineage, []))[2].append(queue)
        return queue

    def _producers(self, edge: JobEdge) -> int:
        return self._graph.graph.vertices[edge.producer].parallelism

    def _stream(self, edge: JobEdge, at: StreamPosition, segments: Mapping[StreamId, Any], inherited: bool) -> Stream:
        channel = ChannelId(edge.id, at.stream.producer, at.stream.consumer)
        reader = SegmentReader(channel, at.position or BEGINNING)
        reader.publish(published(channel, segments.get(at.stream, ())))
        return Stream(at.stream, reader, at.filters, self._keep(edge, at), inherited)

    def _keep(self, edge: JobEdge, at: StreamPosition) -> Keep | None:
        if not at.filters:
            return None
        groups = self._graph.graph.key_groups
        parts = [(subtask, HashPartitioner(edge.key_columns, count, groups)) for subtask, count in at.filters]

        def keep(batch: pa.RecordBatch) -> pa.RecordBatch | None:
            rows: pa.RecordBatch | None = batch
            for subtask, partitioner in parts:
                rows = partitioner.split(rows)[subtask] if rows is not None else None
            return rows

        return keep

    def start_reading(self) -> None:
        for queue in self._segments.values():
            queue.advance()

    # Connections.

    def connect(self, producers: Mapping[str, Sequence[Any]]) -> None:
        """Where the producers of numbered channels are (now). One that cannot be reached is reported."""
        for key, (address, region, attempt) in producers.items():
            channel = parse_channel(key)
            if channel in self._numbered:
                self._connect(channel, SlotAddress(*address), region, Attempt(*attempt))

    def _connect(self, channel: ChannelId, address: SlotAddress, region: int, attempt: Attempt) -> None:
        if channel in self._inbounds:
            self._inbounds.pop(channel).close()
        self._dialled[channel] = list(attempt)
        queue = self._numbered[channel]
        position = -1 if queue.ended else queue.receiver.expected
        greeting = Greeting(channel, attempt, self._task.attempt, position, self._settled)
        said = greeting.signed(m.proof_of(self._task.secret, region, *attempt, -1))
        schema = self._schema_of(self._graph.edges[channel.edge])
        try:
            connection = dial(address)
        except OSError as error:
            self._on_lost(channel, f"it cannot be reached: {error}")
            return
        self._inbounds[channel] = SocketInbound(queue, connection, schema, self._poller, self._on_lost, said)

    def _on_lost(self, channel: ChannelId, why: str) -> None:
        """The producer will be back as another attempt, or the driver finds out that it lives. After the end it hangs
        up as soon as it has heard that nothing more is wanted.
        """
        self._inbounds.pop(channel, None)
        if not self._numbered[channel].ended:
            self._send(m.ChannelLost(channel_key(channel), self._dialled[channel], why))

    def accept(self, greeting: Greeting, connection: socket.socket) -> bool:
        """A consumer of one of the logs has dialled in; whether it may read."""
        log = self._logs.get(greeting.channel)
        if log is None:
            return False
        if greeting.position < 0:
            log.consumer_finished(greeting.consumer_attempt)
            return False
        try:
            return log.attach(connection, greeting.consumer_attempt, greeting.position, greeting.settled)
        except NotWholeError:
            return False  # the consumer reports that it was refused, and failover takes both

    def keeps(self, channel: ChannelId) -> bool:
        return channel in self._logs

    def forget_consumers(self, channels: Sequence[str]) -> None:
        """Consumers that have finished need nothing any more."""
        for key in channels:
            self._logs[parse_channel(key)].consumer_finished()

    # What the driver says.

    def consumers_finished(self, channels: Sequence[str]) -> None:
        """One that is not catching up keeps its logs: a consumer may have to begin again for another one's sake."""
        if self._catching_up:
            self.forget_consumers(channels)

    @property
    def sources_paused(self) -> bool:
        """As much is kept as may be, here, in another slot of the region, or further down."""
        return self._full or self._region_paused

    def pause_sources(self, message: m.PauseSources) -> None:
        self._region_paused = message.paused
        self._feeds_who_catches_up = message.feeds_who_catches_up

    def pin(self, message: m.Pin) -> m.Pinned:
        for outbound in self._logs.values():
            outbound.log.pin(message.checkpoint)
        whole = [channel_key(c) for c, end in self._logs.items() if end.log.is_whole_for(message.checkpoint)]
        return m.Pinned(message.checkpoint, message.request, whole)

    def unpin(self, checkpoint: int) -> None:
        for outbound in self._logs.values():
            outbound.log.unpin(checkpoint)

    def publish(self, segments: Mapping[str, Sequence[Any]]) -> None:
        for key, doc in segments.items():
            channel = parse_channel(key)
            if channel in self._segments:
                self._segments[channel].publish(published(channel, doc))

    # In every turn of the slot's loop.

    def turn(self) -> None:
        """Raises InputNotRead where a stored exchange cannot be read."""
        for channel, error in self._fetcher.hand_over():
            raise failed_read(self._graph.edges[channel.edge].uid, channel, error) from error
        if self._logs:
            self._watch_logs()

    def _watch_logs(self) -> None:
        if self._catching_up and all(end.log.caught_up for end in self._logs.values()):
            self._catching_up = False
            self._send(m.CaughtUp())
        full = any(self._is_full(end.log) for end in self._logs.values())
        if full != self._full:
            self._full = full
            self._send(m.LogFull(full))
        now = time.monotonic()
        if now >= self._next_pressure and any(end.log.under_pressure for end in self._logs.values()):
            self._next_pressure = now + PRESSURE_SECONDS
            self._send(m.Pressure())

    def _is_full(self, log: ChannelLog) -> bool:
        """One that catches up goes on whatever it keeps: the checkpoint that would make room waits for it. So does one
        that feeds it, as soon as all is read: more may be needed than there was room for.
        """
        waits_for_room = not self._catching_up and (log.unread or not self._feeds_who_catches_up)
        return waits_for_room and log.full

    def close(self) -> None:
        self._fetcher.close()
        for inbound in self._inbounds.values():
            inbound.close()
