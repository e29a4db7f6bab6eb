"""Times and sizes as users write them: always with their unit."""

from __future__ import annotations

from datetime import timedelta

from snapshot_engine.wire.quantities import parse_bytes, parse_duration

DurationLike = str | timedelta
"""`"10s"`, `"1m30s"`, `"500ms"`, or a timedelta. Never a bare number: nobody should guess its unit."""


def milliseconds(duration: DurationLike) -> int:
    """Whole milliseconds; raises ValueError for anything finer, negative, or without a unit."""
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else parse_duration(duration)
    scaled = seconds * 1000
    if scaled < 0 or round(scaled, 3) != round(scaled):
        raise ValueError(f"{duration!r} is not a whole number of milliseconds, zero or more")
    return round(scaled)


def positive_milliseconds(duration: DurationLike, what: str) -> int:
    value = milliseconds(duration)
    if value == 0:
        raise ValueError(f"{what} must be longer than 0")
    return value


def size_in_bytes(size: str | int) -> int:
    """Bytes of `"64Mi"`, or a number of bytes."""
    return size if isinstance(size, int) else parse_bytes(size)
