"""Who is connected to whom: the queues of pipelined channels, by channel and attempt.

An element reaches a queue only under the attempt that opened it: that is the fence.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from snapshot_engine.protocol.elements import Attempt, ChannelId


class Network:
    def __init__(self, capacity: int, fenced: bool, in_order: bool) -> None:
        self.capacity = capacity
        self.in_order = in_order
        self._fenced = fenced
        self._queues: dict[tuple[ChannelId, Attempt], deque[Any]] = {}
        self._newest: dict[ChannelId, deque[Any]] = {}

    def open(self, channel: ChannelId, attempt: Attempt, queue: deque[Any]) -> None:
        self._queues[channel, attempt] = queue
        self._newest[channel] = queue

    def close(self, channel: ChannelId, attempt: Attempt, queue: deque[Any]) -> None:
        if self._queues.get((channel, attempt)) is queue:
            del self._queues[channel, attempt]

    def queue(self, channel: ChannelId, attempt: Attempt) -> deque[Any] | None:
        if not self._fenced:
            return self._newest.get(channel)
        return self._queues.get((channel, attempt))
