"""Plots of a report, as PNG files: of its cells, and of the scenarios that show how something grows."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.cells import Entry, cell_key

_MILLISECONDS = "milliseconds"


def plot_report(entries: list[Entry], scenarios: dict[str, list[Entry]], directory: Path) -> None:
    measured = [entry for entry in entries if entry["repetitions"]]
    directory.mkdir(parents=True, exist_ok=True)
    if measured:
        _plot_queries(measured, directory / "rows-per-core-second.png")
        _plot_cells_that_grow(measured, directory)
    for name, plot in _SCENARIO_PLOTS.items():
        if scenarios.get(name):
            plot(scenarios[name], directory)


def _plot_queries(entries: list[Entry], file: Path) -> None:
    """One row of bars per cell, one bar per engine, on a logarithmic scale with the quickest and the slowest run."""
    cells = list(dict.fromkeys(cell_key(entry) for entry in entries))
    engines = list(dict.fromkeys(entry["engine"] for entry in entries))
    figure, axes = plt.subplots(figsize=(10, max(4, 0.14 * len(cells) * (len(engines) + 1.5))))
    height = 0.85 / max(1, len(engines))
    for number, engine in enumerate(engines):
        own = [entry for entry in entries if entry["engine"] == engine]
        places = [cells.index(cell_key(entry)) + number * height for entry in own]
        axes.barh(
            places, [e["rows_per_core_s"] for e in own], height, xerr=_whiskers(own), label=engine, error_kw={"lw": 0.8}
        )
    axes.set_xscale("log")
    axes.set_xlabel("rows per core-second")
    axes.set_yticks([place + 0.425 - height / 2 for place in range(len(cells))], [_label(cell) for cell in cells])
    axes.tick_params(axis="y", labelsize="small")
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, 1.0), ncols=3, framealpha=0.9)
    axes.set_ylim(len(cells), -1.2)
    _save(figure, file)


def _whiskers(entries: list[Entry]) -> list[list[float]]:
    below = [e["rows_per_core_s"] - min(e["all_rows_per_core_s"]) for e in entries]
    above = [max(e["all_rows_per_core_s"]) - e["rows_per_core_s"] for e in entries]
    return [below, above]


def _plot_cells_that_grow(entries: list[Entry], directory: Path) -> None:
    tumbling = [e for e in entries if (e["query"], e["key_type"], e["input"]) == ("tumbling", "int", "files")]
    with_keys = [e for e in tumbling if e["parallelism"] == 2]
    if len({entry["keys"] for entry in with_keys}) > 1:
        _plot_engines(with_keys, "keys", "rows_per_core_s", directory / "growth-with-keys.png")
        _plot_engines(with_keys, "keys", "peak_memory", directory / "memory-with-keys.png")
    with_slots = [e for e in tumbling if e["keys"] == 100_000 and e["checkpoint_interval"]]
    if len({entry["parallelism"] for entry in with_slots}) > 1:
        _plot_engines(with_slots, "parallelism", "rows_per_s", directory / "growth-with-slots.png")


def _plot_engines(entries: list[Entry], across: str, figure_name: str, file: Path) -> None:
    lines = {}
    for engine, interval in dict.fromkeys((e["engine"], e["checkpoint_interval"]) for e in entries):
        own = [e for e in entries if (e["engine"], e["checkpoint_interval"]) == (engine, interval)]
        lines[f"{engine}, {'checkpoints' if interval else 'no checkpoints'}"] = own
    _plot_lines(lines, across, figure_name, figure_name.replace("_", " "), file)


def _plot_regions(rows: list[Entry], directory: Path) -> None:
    file = directory / "growth-with-regions.png"
    _plot_lines({"snapshot-engine": rows}, "regions", "rows_per_core_s", "rows per core-second", file)


def _plot_checkpoint_sizes(rows: list[Entry], directory: Path) -> None:
    cases = dict.fromkeys((row["incremental"], row["changing"]) for row in rows)
    lines = {
        f"{'incremental' if incremental else 'whole'}, {changing} of the keys changing": [
            row for row in rows if (row["incremental"], row["changing"]) == (incremental, changing)
        ]
        for incremental, changing in cases
    }
    _plot_lines(
        lines, "keys", "median_ms", f"trigger to completion, {_MILLISECONDS}", directory / "checkpoints-by-keys.png"
    )


def _plot_coordinator(rows: list[Entry], directory: Path) -> None:
    """Three curves side by side: what the driver spends, and what a slot is connected to and may have to keep."""
    figure, places = plt.subplots(1, 3, figsize=(15, 4.5))
    shown = (
        ("cpu_seconds", "driver's CPU seconds of a checkpoint"),
        ("connections_per_slot", "connections of a slot"),
        ("buffer_bytes_per_slot", "most bytes in a slot's buffers"),
    )
    for axes, (name, label) in zip(places, shown, strict=True):
        for shape in dict.fromkeys(row["shape"] for row in rows):
            own = [row for row in rows if row["shape"] == shape and row[name]]
            axes.plot([row["subtasks"] for row in own], [row[name] for row in own], marker="o", label=shape)
        _on_both_scales(axes, "subtasks", label)
    _save(figure, directory / "coordinator.png")


_SCENARIO_PLOTS: dict[str, Callable[[list[Entry], Path], None]] = {
    "regions": _plot_regions,
    "checkpoint_sizes": _plot_checkpoint_sizes,
    "coordinator": _plot_coordinator,
}


def _plot_lines(lines: dict[str, list[Entry]], across: str, name: str, label: str, file: Path) -> None:
    figure, axes = plt.subplots(figsize=(8, 5))
    for title, rows in lines.items():
        own = sorted(rows, key=lambda row: row[across])
        axes.plot([row[across] for row in own], [row[name] for row in own], marker="o", label=title)
    _on_both_scales(axes, across, label)
    _save(figure, file)


def _on_both_scales(axes: Any, across: str, label: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel({"parallelism": "slots"}.get(across, across))
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")


def _label(cell: Sequence[Any]) -> str:
    query, keys, key_type, parallelism, interval, source = cell
    checkpoints = f"each {interval} ms" if interval else "no checkpoints"
    return f"{query}{' (topic)' if source == 'topic' else ''}, {keys:,} {key_type}\n{parallelism} slots, {checkpoints}"


def _save(figure: Any, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, dpi=110)
    plt.close(figure)
