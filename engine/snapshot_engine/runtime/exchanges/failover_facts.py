"""What failover has to know of the cut edges, asked from the slots that keep logs at the moment of the decision.

Asking pins: from its answer on a slot keeps everything from the chosen checkpoint on, so the facts stay true until the
regions run again and the pins are taken off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.failover import RegionChannel
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.exchanges.region_cuts import CutChannel, RegionCuts
from snapshot_engine.runtime.slot_task import channel_key


@dataclass
class _Question:
    number: int
    waiting: set[SlotConnection]
    whole: set[str] = field(default_factory=set)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class FailoverFacts:
    """`keepers` are the connections of all living slots that keep logs.

    One that does not answer for `patience` seconds is taken to keep nothing: as long as a slot may be silent at all.
    """

    def __init__(self, cuts: RegionCuts, keepers: Callable[[], Iterable[SlotConnection]], patience: float) -> None:
        self._channels = cuts.channels
        self._keepers = keepers
        self._patience = patience
        self._keeps_logs = bool(cuts.keeping_logs)
        self._question: _Question | None = None
        self._asked = 0
        self._pinned: int | None = None
        self._unreadable: set[str] = set()

    def unreadable(self, channel: str) -> None:
        """A consumer could not read this channel: its producer must make it again."""
        self._unreadable.add(channel)

    def lost_results(self) -> list[CutChannel]:
        """The channels of blocking results that their consumers could not read."""
        return [
            channel
            for channel in self._channels
            if channel.fact.exchange is Exchange.BLOCKING and channel_key(channel.id) in self._unreadable
        ]

    def restarted(self, regions: Iterable[int]) -> None:
        """What these regions produce is made again."""
        again = {channel_key(c.id) for c in self._channels if c.producer in regions}
        self._unreadable -= again

    async def gather(self, checkpoint: int) -> list[RegionChannel]:
        """Pin `checkpoint` everywhere, and find out which channels can be read again from there."""
        whole = await self._ask(checkpoint) if self._keeps_logs else set()
        alive = {(c.region, c.slot) for c in self._keepers()} if self._keeps_logs else set()
        return _merged([self._fact(channel, whole, alive) for channel in self._channels])

    def answered(self, connection: SlotConnection, message: m.Pinned) -> None:
        question = self._question
        if question is not None and message.request == question.number:
            question.whole.update(message.whole)
            self.gone(connection)

    def gone(self, connection: SlotConnection) -> None:
        """It will not answer any more."""
        if self._question is not None:
            self._question.waiting.discard(connection)
            if not self._question.waiting:
                self._question.answered.set()

    def unpin(self) -> None:
        if self._pinned is not None:
            for connection in self._keepers():
                connection.send(m.Unpin(self._pinned))
            self._pinned = None

    async def _ask(self, checkpoint: int) -> set[str]:
        if self._pinned not in (None, checkpoint):
            self.unpin()
        self._pinned = checkpoint
        self._asked += 1
        question = self._question = _Question(self._asked, set(self._keepers()))
        for connection in question.waiting:
            connection.send(m.Pin(checkpoint, question.number))
        if question.waiting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(question.answered.wait(), self._patience)
        self._question = None
        return question.whole

    def _fact(self, channel: CutChannel, whole: set[str], alive: set[tuple[int, int]]) -> RegionChannel:
        key = channel_key(channel.id)
        fact = channel.fact
        # A producer does not make again what was sealed before the checkpoint.
        available = key not in self._unreadable or fact.exchange is Exchange.COMMITTED
        if fact.exchange.replays:
            available = available and key in whole and (channel.producer, channel.id.producer) in alive
        return RegionChannel(fact.producer, fact.consumer, fact.exchange, available, fact.edge)


def _merged(facts: Iterable[RegionChannel]) -> list[RegionChannel]:
    return list(dict.fromkeys(facts))
