"""How many rows a run gets: few for a check, enough for the wanted time when it is measured, by a warm engine."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.nexmark.events import EVENTS_PER_EPOCH
from benchmarks.settings import Run, Settings

CHECK_EVENTS = 200_000
CHECK_SLICES = 2
CHECK_EVENT_SECONDS = 32
CHECK_INTERVAL_MS = 100
"""Checks are short; their results should have come through checkpoints all the same."""
SIZES = (1, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 3_000)
"""Slices of a run: one of these, so that engines share files and files can be made beforehand."""
LARGEST = SIZES[-1]
_STEADY = 0.12
"""A try that is quicker than the one before it by no more than this share: the engine is warm."""
_ENOUGH = 0.9
_LEAST_SECONDS_PER_SLICE = 0.001
_MOST_GROWTH = 5


@dataclass(frozen=True)
class Try:
    """A run that warms up an engine, shows how large a run must be, and counts for nothing."""

    slices: int
    run: Run


def next_try(short: Run, tries: Sequence[Try], target_seconds: float, first: int = SIZES[1]) -> int | None:
    """The size of the next one; None when the size of the last one is that of the measured runs.

    Sizes grow until a run takes the target beyond what a short one takes; then tries are repeated until they get no
    quicker, since what is compiled at run time gets quicker for many seconds.
    """
    if not tries:
        return first
    last = tries[-1]
    beyond_short = last.run.seconds - short.seconds
    if beyond_short < _ENOUGH * target_seconds and last.slices < LARGEST:
        return _size_for(beyond_short / (last.slices - 1), target_seconds, last.slices)
    before = tries[-2] if len(tries) > 1 else None
    if before is None or before.slices != last.slices:
        return last.slices
    quicker = before.run.cpu_seconds - last.run.cpu_seconds
    return last.slices if quicker > _STEADY * before.run.cpu_seconds else None


def _size_for(seconds_per_slice: float, target_seconds: float, before: int) -> int:
    """Larger than before, and no more than some times: what a few slices take says little of a thousand."""
    wanted = target_seconds / max(seconds_per_slice, _LEAST_SECONDS_PER_SLICE)
    larger = [size for size in SIZES if before < size <= _MOST_GROWTH * before]
    return next((size for size in larger if size >= wanted), larger[-1])


def scaled(settings: Settings, scale: float) -> Settings:
    """The same cell with smaller slices, for engines that would take minutes for a full one."""
    return _with_stream(settings, slice_events=_whole_epochs(settings.stream.slice_events * scale))


def small_settings(settings: Settings, scale: float) -> Settings:
    """The same cell over few events that still span several windows."""
    events = _whole_epochs(CHECK_EVENTS * scale)
    per_second = max(1, events * CHECK_SLICES // CHECK_EVENT_SECONDS)
    small = _with_stream(settings, slice_events=events, events_per_second=per_second)
    interval = min(settings.checkpoint_interval_ms, CHECK_INTERVAL_MS)
    return replace(small, slices=CHECK_SLICES, checkpoint_interval_ms=interval)


def _whole_epochs(events: float) -> int:
    return max(EVENTS_PER_EPOCH, int(events) // EVENTS_PER_EPOCH * EVENTS_PER_EPOCH)


def _with_stream(settings: Settings, **changes: int) -> Settings:
    return replace(settings, stream=replace(settings.stream, **changes))
