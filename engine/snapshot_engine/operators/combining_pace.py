"""When combining rows is tried: always where it pays, and ever more rarely where it does not."""

from __future__ import annotations

FEWEST_ROWS = 1024
"""Of a batch that is worth the calls. What comes in small batches is to arrive soon, and costs little."""
MOST_SKIPPED = 64
"""Batches between two attempts: one that fails costs about as much as sending its rows."""


class CombiningPace:
    def __init__(self) -> None:
        self._skip = 0
        self._skip_next = 1

    def is_due(self, rows: int) -> bool:
        """Whether to try a batch of so many rows."""
        if rows < FEWEST_ROWS:
            return False
        if self._skip:
            self._skip -= 1
            return False
        return True

    def succeeded(self) -> None:
        self._skip_next = 1

    def failed(self) -> None:
        self._skip = self._skip_next
        self._skip_next = min(2 * self._skip_next, MOST_SKIPPED)


def is_worth_it(rows: int, groups: int) -> bool:
    """Whether so many groups may be sent instead of so many rows."""
    return 2 * groups <= rows
