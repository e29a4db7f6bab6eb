"""The end of a round in the body of a loop: known when every channel inside the loop has brought it.

The driver has ends told again after a restart, when some subtasks have seen one and others have not. So an end is
always passed on, but is an event only for those that did not have it in their restored state.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from snapshot_engine.protocol.elements import ChannelId

NO_ROUND = -1


class PassOn(NamedTuple):
    """Pass `RoundEnd(round)` on to every output, after what the event made the operator emit."""

    round: int
    is_news: bool
    """Whether it is an event for the operator: all records of this round are done."""


class RoundEnds:
    """One per subtask in the body of a loop with rounds, and attempt. `over` is part of the snapshot."""

    def __init__(self, channels: Collection[ChannelId], over: int = NO_ROUND) -> None:
        """`channels` are those that come from inside the loop; `over` as it was in the restored snapshot."""
        self.over = over
        self._ended = dict.fromkeys(channels, NO_ROUND)
        self._passed_on = NO_ROUND

    def ended(self, channel: ChannelId, round: int) -> PassOn | None:
        """The end of `round` came on `channel`."""
        self._ended[channel] = max(self._ended[channel], round)
        everywhere = min(self._ended.values())
        if everywhere <= self._passed_on:
            return None
        self._passed_on = everywhere
        is_news = everywhere > self.over
        self.over = max(self.over, everywhere)
        return PassOn(everywhere, is_news)
