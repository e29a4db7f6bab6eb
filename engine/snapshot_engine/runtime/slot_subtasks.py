"""Builds the subtasks of a slot and the channels between them from what was deployed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.queues import InboundQueue, LocalOutbound
from snapshot_engine.channels.sockets import SocketOutbound
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobEdge
from snapshot_engine.operators.operator import OperatorContext, Origin, StateReader
from snapshot_engine.protocol.alignment import Alignment, DeclineCheckpoint
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.watermarks import WatermarkMerge, WatermarkState
from snapshot_engine.runtime import channel_times
from snapshot_engine.runtime.chain import Chain
from snapshot_engine.runtime.router import EdgeOutput, Outbound, Router
from snapshot_engine.runtime.slot_task import SlotTask, subtask_key
from snapshot_engine.runtime.snapshot_writer import SnapshotJob
from snapshot_engine.runtime.subtask import Subtask
from snapshot_engine.state.handles import OperatorState


def sent_schema(edge: JobEdge) -> pa.Schema:
    """What crosses the edge: the producer's columns, or those that the consumer needs."""
    if edge.columns is None:
        return edge.schema
    return pa.schema([edge.schema.field(name) for name in edge.columns])


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class SlotSubtasks:
    """The subtasks of one slot, with the ends of their channels."""

    def __init__(
        self,
        task: SlotTask,
        slot: int,
        poller: Poller,
        reader: StateReader,
        submit: Callable[[SnapshotJob], None],
        decline: Callable[[SubtaskId, DeclineCheckpoint], None],
    ) -> None:
        self._task = task
        self._graph: ExecutionGraph = task.graph
        self._poller = poller
        self._reader = reader
        self._submit = submit
        self._decline = decline
        self._hosted = task.graph.regions[task.region].hosted_by(slot)
        self._queues: dict[ChannelId, InboundQueue] = {}
        self.remote_inputs: dict[ChannelId, InboundQueue] = {}
        self.remote_outputs: dict[ChannelId, SocketOutbound] = {}
        self.subtasks: list[Subtask] = []

    def build(self, restore: Mapping[str, Any]) -> None:
        """Make and open all subtasks, restored where `restore` has something for them.

        `subtasks` is in the order in which the slot steps through them: consumers first, so that queues drain before
        they are filled.
        """
        for subtask in self._hosted:
            self._make_queues(subtask)
        for id in self._consumers_first():
            self.subtasks.append(self._build_one(id, restore.get(subtask_key(id))))

    def _make_queues(self, subtask: SubtaskId) -> None:
        for channel in self._graph.inputs[subtask]:
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

    def _build_one(self, id: SubtaskId, restore: Mapping[str, Any] | None) -> Subtask:
        vertex = self._graph.graph.vertices[id.vertex]
        router = Router(self._edge_outputs(id))
        chain = Chain(vertex.operators, router)
        channels = self._graph.inputs[id]
        restored = restore or {"finished": False, "rescaled": False, "operators": {}, "channels": []}
        times = channel_times.restore(restored["channels"], channels, restored["rescaled"])
        subtask = Subtask(
            id,
            chain,
            router,
            [self._queues[channel] for channel in channels],
            self._alignment(channels, times, restored.get("checkpoint", 0)),
            WatermarkMerge(channels, times),
            self._submit,
            self._decline,
        )
        if restored["finished"]:
            subtask.end_at_once()
        else:
            chain.open(self._contexts(id, restored))
        return subtask

    def _alignment(self, channels: Sequence[ChannelId], times: WatermarkState | None, checkpoint: int) -> Alignment:
        feedback = [channel for channel in channels if self._graph.edges[channel.edge].feedback]
        ended = [channel for channel, time in times.channels.items() if time.ended] if times else []
        return Alignment(channels, self._task.settings.mode, feedback, ended=ended, restored=checkpoint)

    def _edge_outputs(self, id: SubtaskId) -> list[EdgeOutput]:
        outputs = []
        for edge in self._graph.graph.outputs_of(id.vertex):
            channels = [channel for channel in self._graph.outputs[id] if channel.edge == edge.id]
            ends = [self._outbound(channel) for channel in sorted(channels, key=lambda channel: channel.consumer)]
            outputs.append(EdgeOutput(edge, ends, self._graph.graph.key_groups))
        return outputs

    def _outbound(self, channel: ChannelId) -> Outbound:
        if channel in self._queues and channel not in self.remote_inputs:
            return LocalOutbound(self._queues[channel])
        self.remote_outputs[channel] = SocketOutbound(channel, self._poller)
        return self.remote_outputs[channel]

    def _contexts(self, id: SubtaskId, restored: Mapping[str, Any]) -> list[OperatorContext]:
        vertex = self._graph.graph.vertices[id.vertex]
        origin = Origin()
        return [
            OperatorContext(
                job=self._task.job,
                uid=node.uid,
                name=node.name,
                subtask=id.index,
                parallelism=vertex.parallelism,
                key_groups=self._graph.graph.key_groups,
                attempt=(self._task.attempt.generation, self._task.attempt.number),
                restored=[OperatorState.from_json(doc) for doc in restored["operators"].get(node.uid, ())],
                rescaled=restored["rescaled"],
                reader=self._reader,
                clock=clock_ms,
                incremental=self._task.settings.incremental,
                origin=origin,
            )
            for node in vertex.operators
        ]
