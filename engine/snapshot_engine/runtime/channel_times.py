"""What input channels have said about event time, as JSON in a snapshot and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.watermarks import ChannelTime, WatermarkState, rescaled


def to_json(state: WatermarkState) -> dict[str, Any]:
    return {
        "current": state.current,
        "channels": [[*channel, *time] for channel, time in sorted(state.channels.items())],
    }


def from_json(doc: Mapping[str, Any]) -> WatermarkState:
    channels = {ChannelId(*row[:3]): ChannelTime(*row[3:]) for row in doc["channels"]}
    return WatermarkState(doc["current"], channels)


def restore(
    docs: Sequence[Mapping[str, Any]], channels: Sequence[ChannelId], was_rescaled: bool
) -> WatermarkState | None:
    """The state to go on from: the subtask's own, or after a change of parallelism the most cautious of all."""
    states = [from_json(doc) for doc in docs if doc]
    if not states:
        return None
    return rescaled(states, channels) if was_rescaled else states[0]
