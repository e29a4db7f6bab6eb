"""Work that a single event may make an operator do for long, such as firing a million timers: done in portions.

Between two portions the slot says that it is alive and hears the driver. Nothing else comes to the operator before it
is through: no record, no barrier, no later event time. So nobody can tell the portions from one piece of work.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

UNLIMITED = float("inf")


class Portions:
    """Pieces of work in their order. Each is a generator that stops wherever it may be interrupted."""

    def __init__(self, seconds: float) -> None:
        """How long a portion takes."""
        self._seconds = seconds
        self._work: deque[Iterator[None]] = deque()

    @property
    def left(self) -> bool:
        return bool(self._work)

    def begin(self, work: Iterator[None]) -> None:
        """Do a portion of it, or leave it until what was begun before is through."""
        self._work.append(work)
        if len(self._work) == 1:
            self.go_on()

    def go_on(self) -> None:
        self._go_on(self._seconds)

    def finish(self) -> None:
        """All that is left, however long it takes."""
        self._go_on(UNLIMITED)

    def _go_on(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while self._work:
            for _ in self._work[0]:
                if time.perf_counter() >= until:
                    return
            self._work.popleft()
