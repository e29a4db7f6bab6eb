"""What failover has to know of the cut edges, asked from the slots that keep logs at the moment of the decision.

Asking pins: from its answer on a slot keeps everything from the chosen checkpoint on, so the facts stay true until the
regions run again and the pins are taken off.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.failover import RegionChannel
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.exchanges.region_cuts import CutChannel, RegionCuts
from snapshot_engine.runtime.slot_task import channel_key


class Keeper(NamedTuple):
    """A living slot that keeps logs."""

    connection: SlotConnection
    restoring: int | None = None
    """The checkpoint that it is being restored from: it hears nothing until that is done. Then it obeys what came
    meanwhile before it reads or forgets anything, so that its logs begin at that checkpoint, and are pinned there.
    """


@dataclass
class _Question:
    number: int
    waiting: set[SlotConnection]
    whole: set[str] = field(default_factory=set)
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class FailoverFacts:
    """`keepers` are all living slots that keep logs.

    One that could answer and does not for `patience` seconds, as long as a slot may be silent at all, is taken to keep
    nothing.
    """

    def __init__(self, cuts: RegionCuts, keepers: Callable[[], Iterable[Keeper]], patience: float) -> None:
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
        alive = {(c.region, c.slot) for c, _ in self._keepers()} if self._keeps_logs else set()
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
            for connection, _ in self._keepers():
                connection.send(m.Unpin(self._pinned))
            self._pinned = None

    async def _ask(self, checkpoint: int) -> set[str]:
        if self._pinned not in (None, checkpoint):
            self.unpin()
        self._pinned = checkpoint
        self._asked += 1
        keepers = list(self._keepers())
        answering = {keeper.connection for keeper in keepers if keeper.restoring is None}
        question = self._question = _Question(self._asked, answering)
        for keeper in keepers:
            keeper.connection.send(m.Pin(checkpoint, question.number))
            if keeper.restoring == checkpoint:
                question.whole.update(self._logs_of(keeper.connection))
        if question.waiting:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(question.answered.wait(), self._patience)
        self._question = None
        return question.whole

    def _logs_of(self, connection: SlotConnection) -> list[str]:
        kept = [channel for channel in self._channels if channel.fact.exchange.replays]
        place = (connection.region, connection.slot)
        return [channel_key(channel.id) for channel in kept if (channel.producer, channel.id.producer) == place]

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
