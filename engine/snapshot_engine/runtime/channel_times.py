"""What input channels have said about event time, as JSON in a snapshot and back.

An edge is named by its uid: its number is another one as soon as the pipeline is changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from snapshot_engine.graph.job_graph import JobEdge
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.watermarks import ChannelTime, WatermarkState, rescaled


def to_json(state: WatermarkState, edges: Mapping[int, JobEdge]) -> dict[str, Any]:
    return {
        "current": state.current,
        "channels": [
            [edges[channel.edge].uid, channel.producer, channel.consumer, *time]
            for channel, time in sorted(state.channels.items())
        ],
    }


def from_json(doc: Mapping[str, Any], edges: Iterable[JobEdge]) -> WatermarkState:
    """Without what edges have said that are no more."""
    numbers = {edge.uid: edge.id for edge in edges}
    channels = {
        ChannelId(numbers[uid], producer, consumer): ChannelTime(*time)
        for uid, producer, consumer, *time in doc["channels"]
        if uid in numbers
    }
    return WatermarkState(doc["current"], channels)


def restore(
    docs: Sequence[Mapping[str, Any]], channels: Sequence[ChannelId], was_rescaled: bool, edges: Iterable[JobEdge]
) -> WatermarkState | None:
    """The state to go on from: the subtask's own, or after a change of parallelism the most cautious of all.

    If only the producers' has changed, `docs` begin with the subtask's own: a channel with the number of an old one
    carries what others brought before, so it is taken to have come no further than any of them.
    """
    known = list(edges)
    states = [from_json(doc, known) for doc in docs if doc]
    if not states:
        return None
    cautious = rescaled(states, channels)
    if was_rescaled:
        return cautious
    own, unchanged = states[0], _unchanged_edges(states[0], channels)
    times = {c: own.channels[c] if c.edge in unchanged else cautious.channels[c] for c in channels}
    return WatermarkState(own.current, times)


def _unchanged_edges(state: WatermarkState, channels: Sequence[ChannelId]) -> set[int]:
    """Those that consist of the same channels as before."""
    edges = {channel.edge for channel in channels}
    return {
        edge
        for edge in edges
        if {c for c in state.channels if c.edge == edge} == {c for c in channels if c.edge == edge}
    }
