"""Correctness first: an engine's time counts only after its result was equal to the reference."""

from dataclasses import replace

from benchmarks.engines import Session, directory_of, discard_work, result_files
from benchmarks.nexmark.datasets import open_dataset
from benchmarks.nexmark.events import EVENTS_PER_EPOCH
from benchmarks.nexmark.reference import Comparison, compare_results, reference_file
from benchmarks.settings import Run, Settings

CHECK_EVENTS = 200_000
CHECK_SLICES = 2
CHECK_EVENT_SECONDS = 32


def check(session: Session, settings: Settings) -> tuple[Comparison, Run]:
    """Run with a sink that keeps the result, and compare it. A result that differs is kept for a look."""
    keeping = replace(settings, sink="files")
    run = session.run(keeping)
    expected = reference_file(settings.query, open_dataset(settings.stream, settings.slices))
    directory = directory_of(session.engine, keeping)
    comparison = compare_results(settings.query, expected, result_files(directory))
    if comparison.equal:
        discard_work(directory)
    return comparison, run


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
