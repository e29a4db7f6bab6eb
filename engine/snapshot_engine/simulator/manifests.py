"""From acknowledged states to the manifest of a checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from snapshot_engine.protocol.checkpoints import WriteManifest
from snapshot_engine.protocol.committed_exchange import Segment, SegmentPosition, segments_of_manifest
from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.simulator.storage import Manifest
from snapshot_engine.simulator.subtask import SubtaskState

if TYPE_CHECKING:
    from snapshot_engine.simulator.world import World

States = dict[SubtaskId, SubtaskState]


def make_manifest(world: World, action: WriteManifest, generation: int, latest: Manifest | None) -> Manifest:
    names = {subtask: cast(str, name) for subtask, name in action.states.items()}
    states = {subtask: cast(SubtaskState, world.storage.read(name)) for subtask, name in names.items()}
    transactions: dict[str, tuple[str, ...]] = {}
    for subtask, state in states.items():
        if state.transactions:
            transactions[subtask.vertex] = transactions.get(subtask.vertex, ()) + state.transactions
    segments = _segments(world, states, latest)
    return Manifest((action.checkpoint, generation), names, action.finished, segments, transactions, action.savepoint)


def _segments(world: World, states: States, latest: Manifest | None) -> dict[ChannelId, tuple[Segment, ...]]:
    sealed: dict[ChannelId, tuple[Segment, ...]] = {}
    positions: dict[ChannelId, SegmentPosition] = {}
    for edge in world.topology.edges:
        if edge.exchange is not Exchange.COMMITTED:
            continue
        for channel in edge.channels():
            writer = states[SubtaskId(edge.producer.name, channel.producer)]
            reader = states[SubtaskId(edge.consumer.name, channel.consumer)]
            sealed[channel] = cast(tuple[int, tuple[Segment, ...]], writer.outputs[channel])[1]
            positions[channel] = cast(SegmentPosition, reader.inputs[channel])
    return segments_of_manifest(latest.segments if latest else {}, sealed, positions)
