"""Window shapes. All times are epoch milliseconds; a window [start, end) holds start and not end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TumblingWindow:
    size_ms: int
    offset_ms: int = 0


@dataclass(frozen=True)
class SlidingWindow:
    size_ms: int
    slide_ms: int
    offset_ms: int = 0


@dataclass(frozen=True)
class SessionWindow:
    gap_ms: int


WindowShape = TumblingWindow | SlidingWindow | SessionWindow

WINDOW_START = "window_start"
WINDOW_END = "window_end"
"""The two columns (timestamp[ms]) that every window result has after its key columns."""
