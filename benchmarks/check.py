"""Correctness first: an engine's time counts only after its result was equal to the reference."""

from dataclasses import replace

from benchmarks.engines import Session, directory_of, discard_work, result_files
from benchmarks.nexmark.datasets import open_dataset
from benchmarks.nexmark.reference import Comparison, compare_results, reference_file
from benchmarks.settings import Run, Settings


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
