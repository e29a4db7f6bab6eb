"""The kinds of exchange: what an edge keeps of the data that crosses it."""

from __future__ import annotations

from enum import Enum


class Exchange(Enum):
    """What an edge keeps of the data that crosses it; see the exchange table in docs/architecture.md."""

    PIPELINED = "pipelined"
    MEMORY = "memory"
    DURABLE = "durable"
    COMMITTED = "committed"
    BLOCKING = "blocking"

    @property
    def cuts_regions(self) -> bool:
        return self is not Exchange.PIPELINED

    @property
    def replays(self) -> bool:
        """Whether the producer keeps a log from which a restarted consumer reads again."""
        return self in (Exchange.MEMORY, Exchange.DURABLE)

    @property
    def stored(self) -> bool:
        """Whether it goes through checkpoint storage: barriers do not cross it, its readers are triggered."""
        return self in (Exchange.COMMITTED, Exchange.BLOCKING)

    def producer_may_restart_alone(self, deterministic: bool) -> bool:
        """Whether consumers may go on when the producer is restarted: the last column of the
        exchange table.
        """
        return self is Exchange.COMMITTED or (self.replays and deterministic)
