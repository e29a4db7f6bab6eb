"""How many rows a run gets: few for a check, enough for the wanted time when it is measured."""

from dataclasses import replace

from benchmarks.nexmark.events import EVENTS_PER_EPOCH
from benchmarks.settings import Run, Settings

CHECK_EVENTS = 200_000
CHECK_SLICES = 2
CHECK_EVENT_SECONDS = 32
MOST_SLICES = 1_000
SIZES = (1, 10, 50, 200, MOST_SLICES)
"""Slices of a run: one of these, so that engines share files and files can be made beforehand."""
PROBES = SIZES[1:]
_LEAST_SECONDS_PER_SLICE = 0.002


def slices_for(short: Run, probe: Run, probe_slices: int, target_seconds: float) -> int:
    """How many slices last for the target or somewhat less, judged by runs of one slice and of `probe_slices`.

    Judged by CPU time spread over the slots: on a busy machine wall-clock time would make runs too short.
    """
    cpu_per_slice = (probe.cpu_seconds - short.cpu_seconds) / (probe_slices - 1)
    seconds_per_slice = max(cpu_per_slice / short.parallelism, _LEAST_SECONDS_PER_SLICE)
    wanted = 1 + target_seconds / seconds_per_slice
    return max((size for size in SIZES if size <= wanted), default=1)


def scaled(settings: Settings, scale: float) -> Settings:
    """The same cell with smaller slices, for engines that would take minutes for a full one."""
    return _with_stream(settings, slice_events=_whole_epochs(settings.stream.slice_events * scale))


def small_settings(settings: Settings, scale: float) -> Settings:
    """The same cell over few events that still span several windows."""
    events = _whole_epochs(CHECK_EVENTS * scale)
    per_second = max(1, events * CHECK_SLICES // CHECK_EVENT_SECONDS)
    small = _with_stream(settings, slice_events=events, events_per_second=per_second)
    return replace(small, slices=CHECK_SLICES)


def _whole_epochs(events: float) -> int:
    return max(EVENTS_PER_EPOCH, int(events) // EVENTS_PER_EPOCH * EVENTS_PER_EPOCH)


def _with_stream(settings: Settings, **changes: int) -> Settings:
    return replace(settings, stream=replace(settings.stream, **changes))
