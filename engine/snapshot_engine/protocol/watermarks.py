"""Event time over several channels: the minimum over those that are not idle, never going back.

A channel that is silent without having said that it is idle holds the watermark back, also while its producer
is away being restarted: only sources declare idleness, in-band. Feedback channels carry no watermark and have
no part in this.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from snapshot_engine.protocol.elements import MAX_WATERMARK, MIN_WATERMARK, ChannelId


class ChannelTime(NamedTuple):
    """What one channel has said about event time."""

    watermark: int = MIN_WATERMARK
    idle: bool = False
    ended: bool = False


@dataclass(frozen=True, slots=True)
class WatermarkState:
    """Part of the subtask's snapshot. Without it, a restored subtask would take late records for
    timely ones.
    """

    current: int = MIN_WATERMARK
    channels: Mapping[ChannelId, ChannelTime] = field(default_factory=dict)


class WatermarkMerge:
    """The event time of one subtask. Every event returns the new watermark, or None if it has not advanced.

    The caller hands a new watermark to the chain, and calls `on_idle` when `all_idle` has become true.
    """

    def __init__(self, channels: Iterable[ChannelId], restored: WatermarkState | None = None) -> None:
        known = restored.channels if restored else {}
        self._channels = {channel: known.get(channel, ChannelTime()) for channel in channels}
        self.current = restored.current if restored else MIN_WATERMARK
        self._at_barrier: dict[int, dict[ChannelId, ChannelTime]] = {}

    @property
    def all_idle(self) -> bool:
        """Every channel that has not ended is idle, and there is one."""
        open_channels = [time for time in self._channels.values() if not time.ended]
        return bool(open_channels) and all(time.idle for time in open_channels)

    def watermark(self, channel: ChannelId, timestamp: int) -> int | None:
        """`channel` says that its event time has come to `timestamp`; that also ends its idleness."""
        before = self._channels[channel]
        self._channels[channel] = ChannelTime(max(before.watermark, timestamp), False, before.ended)
        return self._advance()

    def idle(self, channel: ChannelId) -> int | None:
        """`channel` says that it will be silent for a while: the others may go on without it."""
        before = self._channels[channel]
        self._channels[channel] = ChannelTime(before.watermark, True, before.ended)
        return self._advance()

    def active(self, channel: ChannelId) -> None:
        """A record came on `channel`. It ends idleness, so the channel holds the watermark back again."""
        before = self._channels[channel]
        if before.idle:
            self._channels[channel] = ChannelTime(before.watermark, False, before.ended)

    def end(self, channel: ChannelId) -> int | None:
        """`channel` has ended: it holds nothing back any more."""
        self._channels[channel] = ChannelTime(MAX_WATERMARK, False, True)
        return self._advance()

    def barrier(self, channel: ChannelId, checkpoint: int) -> None:
        """The barrier of `checkpoint` came on `channel`: the snapshot holds what was said before it.

        It makes a difference in at-least-once mode only, where a channel is read on while others are waited
        for. Were its later watermarks or its end part of the snapshot, then what it will bring again after a
        restore would be late, or never be read.
        """
        self._at_barrier.setdefault(checkpoint, {})[channel] = self._channels[channel]

    def snapshot(self, checkpoint: int | None = None) -> WatermarkState:
        """The state for the snapshot of `checkpoint`; None: as it is now."""
        before = self._at_barrier.get(checkpoint, {}) if checkpoint is not None else {}
        if checkpoint is not None:
            self._at_barrier = {n: times for n, times in self._at_barrier.items() if n > checkpoint}
        if all(self._channels[channel] == time for channel, time in before.items()):
            return WatermarkState(self.current, dict(self._channels))
        channels = {**self._channels, **before}
        return WatermarkState(min(self.current, _merged(channels.values(), self.current)), channels)

    def _advance(self) -> int | None:
        merged = _merged(self._channels.values(), self.current)
        if merged <= self.current:
            return None
        self.current = merged
        return merged


def _merged(times: Collection[ChannelTime], current: int) -> int:
    active = [time.watermark for time in times if not time.idle]
    if any(watermark != MAX_WATERMARK for watermark in active) or not any(time.idle for time in times):
        return min(active, default=current)
    # All that is left is idle: nothing older than the furthest of them will come without being late, and the
    # result must not depend on the order in which they became idle. That the others are at their end, or about to say
    # so, is not the end of time: an idle channel may wake up.
    return max(time.watermark for time in times if time.idle)


def rescaled(states: Iterable[WatermarkState], channels: Iterable[ChannelId]) -> WatermarkState:
    """The state for a subtask with other `channels` than those that were snapshotted: per edge, the most
    cautious.
    """
    old = list(states)
    by_edge: dict[int, list[ChannelTime]] = {}
    for state in old:
        for channel, time in state.channels.items():
            by_edge.setdefault(channel.edge, []).append(time)
    return WatermarkState(
        min((state.current for state in old), default=MIN_WATERMARK),
        {channel: _most_cautious(by_edge.get(channel.edge, [])) for channel in channels},
    )


def _most_cautious(times: list[ChannelTime]) -> ChannelTime:
    if not times:
        return ChannelTime()
    return ChannelTime(
        min(time.watermark for time in times),
        all(time.idle or time.ended for time in times) and not all(time.ended for time in times),
        all(time.ended for time in times),
    )
