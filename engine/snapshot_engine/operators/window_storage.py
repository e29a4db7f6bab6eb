"""Where windows over records are kept: what the operator asks of aligned windows and of sessions alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from snapshot_engine.operators.event_times import Times
from snapshot_engine.operators.functions import Window
from snapshot_engine.state.record_keys import Key

Result = tuple[Key, Window, Any]
"""A window of a key with what is kept of its records."""


class WindowStorage(Protocol):
    position: int
    """Which record of the batch is being added; told when the user's function raises."""

    def add(self, keys: Sequence[Key], values: Sequence[Any], times: Times, watermark: int) -> list[int]:
        """Put the records into their windows; the positions of those that are too late for all of theirs."""
        ...

    def again(self) -> Iterator[Result]:
        """Windows whose results went out already and that got records since the last call."""
        ...

    def over(self, watermark: int) -> Iterator[Result]:
        """Windows that are over now, by their end; those for which no record can be in time any more are dropped."""
        ...
