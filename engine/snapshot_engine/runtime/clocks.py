"""The clock of operators: processing time, as timers and functions see it. Everything else has the machine's own."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from pathlib import Path

Clock = Callable[[], int]
"""Epoch milliseconds. Must pickle: it is shipped to the slots."""

_TIME = struct.Struct("<q")


def clock_ms() -> int:
    return time.time_ns() // 1_000_000


class ManualClock:
    """Stands still until a test moves it; seen by all slots on this machine, through a file in `folder`.

    Slots notice within a tenth of a second.
    """

    def __init__(self, folder: Path | str, now_ms: int = 0) -> None:
        self._file = Path(folder) / "clock"
        self.set(now_ms)

    def __call__(self) -> int:
        now: int = _TIME.unpack(self._file.read_bytes())[0]
        return now

    def set(self, now_ms: int) -> None:
        beside = self._file.with_suffix(".next")
        beside.write_bytes(_TIME.pack(now_ms))
        beside.replace(self._file)

    def advance(self, milliseconds: int) -> None:
        self.set(self() + milliseconds)
