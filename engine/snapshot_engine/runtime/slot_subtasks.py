"""Builds the subtasks of a slot and the channels between them from what was deployed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.queues import InboundQueue, LocalOutbound
from snapshot_engine.channels.sockets import SocketOutbound
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import OperatorNode
from snapshot_engine.operators.operator import OperatorContext, Origin, StateReader
from snapshot_engine.protocol.alignment import Alignment, DeclineCheckpoint
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.round_ends import RoundEnds
from snapshot_engine.protocol.source_drift import SourceDrift
from snapshot_engine.protocol.watermarks import WatermarkMerge, WatermarkState
from snapshot_engine.runtime import channel_times
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.chain import Chain
from snapshot_engine.runtime.exchanges.log_reading import NumberedQueue
from snapshot_engine.runtime.exchanges.slot_exchanges import SlotExchanges
from snapshot_engine.runtime.exchanges.subtask_exchanges import InputQueue
from snapshot_engine.runtime.loops.building import build_loop
from snapshot_engine.runtime.loops.head import HeadSubtask
from snapshot_engine.runtime.loops.slices import SliceSize
from snapshot_engine.runtime.restore import FRESH
from snapshot_engine.runtime.router import EdgeOutput, Outbound, Router
from snapshot_engine.runtime.slot_task import SlotTask, subtask_key
from snapshot_engine.runtime.snapshot_writer import SnapshotJob
from snapshot_engine.runtime.subtask import Subtask
from snapshot_engine.runtime.timed_size import ENOUGH_SECONDS, TimedSize
from snapshot_engine.state.handles import OperatorState

PATIENCE = 0.4
"""Of the heartbeat timeout: a row that takes longer is never taken together with another one."""


class SlotSubtasks:
    """The subtasks of one slot, with the ends of their channels."""

    def __init__(
        self,
        task: SlotTask,
        slot: int,
        poller: Poller,
        reader: StateReader,
        exchanges: SlotExchanges,
        submit: Callable[[SnapshotJob], None],
        decline: Callable[[SubtaskId, DeclineCheckpoint], None],
        inputs_ended: Callable[[SubtaskId], None],
    ) -> None:
        self._task = task
        self._exchanges = exchanges
        self._inputs_ended = inputs_ended
        self._graph: ExecutionGraph = task.graph
        self._poller = poller
        self._reader = reader
        self._submit = submit
        self._decline = decline
        self._hosted = task.graph.regions[task.region].hosted_by(slot)
        self._queues: dict[ChannelId, InputQueue] = {}
        self.remote_inputs: dict[ChannelId, InboundQueue] = {}
        self.remote_outputs: dict[ChannelId, SocketOutbound] = {}
        self.subtasks: list[Subtask] = []

    def build(self, deploy: m.Deploy) -> None:
        """Make and open all subtasks, restored where there is something for them.

        `subtasks` is in the order in which the slot steps through them: consumers first, so that queues drain before
        they are filled.
        """
        self._exchanges.begin(deploy)
        restored = {id: deploy.restore.get(subtask_key(id)) or FRESH for id in self._hosted}
        for id in self._hosted:
            self._make_queues(id, restored[id]["exchanges"])
        for id in self._consumers_first():
            self.subtasks.append(self._build_one(id, restored[id], deploy.settled))
        self._exchanges.forget_consumers(deploy.finished_consumers)
        self._exchanges.start_reading()
        for subtask in self.subtasks:
            subtask.look_whether_inputs_ended()

    def nodes(self) -> dict[int, OperatorNode]:
        """All nodes, by the identity of the operators that were made of them."""
        return {
            id(operator): node
            for subtask in self.subtasks
            for operator, node in zip(subtask.chain.operators, subtask.chain.nodes, strict=True)
        }

    def _make_queues(self, subtask: SubtaskId, restored: Mapping[str, Any]) -> None:
        for channel in self._graph.inputs[subtask]:
            cut = self._exchanges.input(channel, restored)
            if cut is not None:
                self._queues[channel] = cut
                continue
            queue = InboundQueue(channel, self._graph.edges[channel.edge].port)
            self._queues[channel] = queue
            if self._graph.producer_of(channel) not in self._hosted:
                self.remote_inputs[channel] = queue

    def _consumers_first(self) -> list[SubtaskId]:
        order: dict[SubtaskId, None] = {}

        def visit(subtask: SubtaskId) -> None:
            if subtask in order or subtask not in self._hosted:
                return
            for channel in self._graph.outputs[subtask]:
                if not self._graph.edges[channel.edge].feedback:
                    visit(self._graph.consumer_of(channel))
            order[subtask] = None

        for subtask in self._hosted:
            visit(subtask)
        return list(order)

    def _build_one(self, id: SubtaskId, restored: Mapping[str, Any], settled: int) -> Subtask:
        vertex = self._graph.graph.vertices[id.vertex]
        router = Router(self._edge_outputs(id, restored["exchanges"]))
        chain = Chain(vertex.operators, router)
        channels, feedback = self._channels_to(id)
        edges = self._graph.graph.inputs_of(id.vertex)
        times = channel_times.restore(restored["channels"], channels, restored["rescaled"], edges)
        parts = (
            id,
            chain,
            router,
            [self._queues[channel] for channel in channels],
            self._ended_for_good(channels, times),
            self._exchanges.of(id),
            self._alignment(id, times, max(settled, restored.get("checkpoint", 0))),
            WatermarkMerge(channels, times),
            self._submit,
            self._decline,
            self._inputs_ended,
            self._round_ends(channels),
        )
        timed = TimedSize(PATIENCE * self._task.settings.heartbeat_timeout)
        if vertex.loop is None:
            slices = SliceSize() if id.vertex in self._graph.loop_vertices else None
            subtask = Subtask(*parts, slices=slices, timed=timed)
        else:
            returning = [queue for channel in feedback if isinstance(queue := self._queues[channel], InboundQueue)]
            loop = build_loop(self._graph, id, returning, restored, self._reader)
            subtask = HeadSubtask(*parts, loop=loop, timed=timed)
        if restored["finished"]:
            subtask.end_at_once()
        else:
            subtask.drift = self._drift(id)
            chain.open(self._contexts(id, restored, subtask.drift))
        return subtask

    def _drift(self, id: SubtaskId) -> SourceDrift | None:
        groups = [group for group in self._graph.drift_groups if id.vertex in group.vertices]
        return SourceDrift(groups[0].drift_ms) if groups else None

    def _channels_to(self, id: SubtaskId) -> tuple[list[ChannelId], list[ChannelId]]:
        """The regular input channels, and those by which a loop leads back here."""
        channels = self._graph.inputs[id]
        feedback = [channel for channel in channels if self._graph.edges[channel.edge].feedback]
        return [channel for channel in channels if channel not in feedback], feedback

    def _round_ends(self, channels: Sequence[ChannelId]) -> RoundEnds | None:
        looped = [channel for channel in channels if channel.edge in self._graph.round_edges]
        return RoundEnds(looped) if looped else None

    def _ended_for_good(self, channels: Sequence[ChannelId], times: WatermarkState | None) -> set[ChannelId]:
        """Those that had ended and are kept; a pipelined producer that had finished says so again."""
        ended = {channel for channel, time in times.channels.items() if time.ended} if times else set()
        cut = {channel for channel in channels if not isinstance(self._queues[channel], InboundQueue)}
        cut |= {channel for channel in channels if isinstance(self._queues[channel], NumberedQueue)}
        for channel in ended & cut:
            queue = self._queues[channel]
            if isinstance(queue, NumberedQueue):
                queue.ended = True
        return ended & cut

    def _alignment(self, id: SubtaskId, times: WatermarkState | None, checkpoint: int) -> Alignment:
        channels = self._graph.aligned_inputs(id)
        feedback = [channel for channel in channels if self._graph.edges[channel.edge].feedback]
        known = times.channels if times else {}
        ended = [channel for channel in channels if channel in known and known[channel].ended]
        return Alignment(channels, self._task.settings.mode, feedback, ended=ended, restored=checkpoint)

    def _edge_outputs(self, id: SubtaskId, restored: Mapping[str, Any]) -> list[EdgeOutput]:
        outputs = []
        for edge in self._graph.graph.outputs_of(id.vertex):
            channels = [channel for channel in self._graph.outputs[id] if channel.edge == edge.id]
            channels.sort(key=lambda channel: channel.consumer)
            ends = [self._outbound(channel, restored) for channel in channels]
            output = EdgeOutput(edge, ends, self._graph.graph.key_groups)
            output.inside = not self._graph.exchange_of(edge).cuts_regions
            output.carries_rounds = edge.id in self._graph.round_edges
            outputs.append(output)
        return outputs

    def _outbound(self, channel: ChannelId, restored: Mapping[str, Any]) -> Outbound:
        cut = self._exchanges.output(channel, restored)
        if cut is not None:
            return cut
        queue = self._queues.get(channel)
        if isinstance(queue, InboundQueue) and channel not in self.remote_inputs:
            return LocalOutbound(queue)
        self.remote_outputs[channel] = SocketOutbound(channel, self._poller)
        return self.remote_outputs[channel]

    def _contexts(self, id: SubtaskId, restored: Mapping[str, Any], drift: SourceDrift | None) -> list[OperatorContext]:
        vertex = self._graph.graph.vertices[id.vertex]
        origin = Origin(drift=drift)
        return [
            OperatorContext(
                job=self._task.job,
                lineage=self._task.lineage,
                uid=node.uid,
                name=node.name,
                subtask=id.index,
                parallelism=vertex.parallelism,
                key_groups=self._graph.graph.key_groups,
                attempt=(self._task.attempt.generation, self._task.attempt.number),
                restored=[OperatorState.from_json(doc) for doc in restored["operators"].get(node.uid, ())],
                rescaled=node.uid in restored["rescaled_operators"],
                reader=self._reader,
                clock=self._task.settings.clock,
                incremental=self._task.settings.incremental,
                origin=origin,
                portion_seconds=ENOUGH_SECONDS,
            )
            for node in vertex.operators
        ]
