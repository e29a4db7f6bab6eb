"""Builds the feedback side of a head from its vertex, its channels and what was restored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.operators.operator import StateReader
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.loop_log import LoopContents, LoopEntry, LoopLog
from snapshot_engine.runtime.loops.head import Loop
from snapshot_engine.runtime.loops.held_records import HeldRecords, RecordStore
from snapshot_engine.runtime.loops.log_state import RestoredLoop, Share
from snapshot_engine.runtime.loops.slices import FIRST_ROWS
from snapshot_engine.state.handles import OperatorState


def build_loop(
    graph: ExecutionGraph,
    id: SubtaskId,
    feedback: Sequence[InboundQueue],
    restored: Mapping[str, Any],
    reader: StateReader,
) -> Loop:
    """`restored` is what `Deploy.restore` has for the subtask."""
    vertex = graph.graph.vertices[id.vertex]
    traits = vertex.loop
    assert traits is not None
    edges = [edge for edge in graph.graph.inputs_of(id.vertex) if edge.feedback]
    channels = [queue.channel for queue in feedback]
    uid = vertex.operators[0].uid
    rescaled = uid in restored["rescaled_operators"]
    share = Share(id.index, vertex.parallelism, graph.graph.key_groups, rescaled, edges, channels)
    states = [OperatorState.from_json(doc) for doc in restored["operators"].get(uid, ())]
    stored = RestoredLoop(states, reader, share)
    store = RecordStore(edges[0].schema, traits.budget_bytes)
    entries = _hold(stored, store)
    contents = LoopContents(entries, stored.round, stored.arriving)
    size = sum(cast(HeldRecords, entry.payload).size for log in entries.values() for entry in log)
    return Loop(
        uid,
        feedback,
        LoopLog(channels, contents if states else None, rounds=traits.rounds),
        store,
        restored_bytes=size,
        time_is_over=stored.time_is_over,
    )


def _hold(stored: RestoredLoop, store: RecordStore) -> Mapping[ChannelId, list[LoopEntry]]:
    entries: dict[ChannelId, list[LoopEntry]] = defaultdict(list)
    for channel, round, batch in stored.records():
        entries[channel] += [LoopEntry(round, held) for held in store.hold(batch, FIRST_ROWS)]
    return entries
