"""Plots of a report, as PNG files."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.cells import Entry, cell_key


def plot_report(entries: list[Entry], directory: Path) -> list[Path]:
    measured = [entry for entry in entries if entry["repetitions"]]
    directory.mkdir(parents=True, exist_ok=True)
    files = [_plot_queries(measured, directory / "rows-per-core-second.png")]
    growth = [entry for entry in measured if entry["query"] == "tumbling" and entry["key_type"] == "int"]
    if len({entry["keys"] for entry in growth}) > 1:
        files.append(_plot_growth(growth, "rows_per_core_s", directory / "growth-with-keys.png"))
        files.append(_plot_growth(growth, "peak_memory", directory / "memory-with-keys.png"))
    return files


def _plot_queries(entries: list[Entry], file: Path) -> Path:
    """One group of bars per cell, one bar per engine, on a logarithmic scale with the spread as whisker."""
    cells = list(dict.fromkeys(cell_key(entry) for entry in entries))
    engines = list(dict.fromkeys(entry["engine"] for entry in entries))
    figure, axes = plt.subplots(figsize=(max(8, 1.6 * len(cells)), 5))
    width = 0.8 / max(1, len(engines))
    for number, engine in enumerate(engines):
        own = [entry for entry in entries if entry["engine"] == engine]
        places = [cells.index(cell_key(entry)) + number * width for entry in own]
        heights = [entry["rows_per_core_s"] for entry in own]
        whiskers = [entry["rows_per_core_s"] * entry["spread"]["rows_per_core_s"] / 2 for entry in own]
        axes.bar(places, heights, width, yerr=whiskers, label=engine)
    axes.set_yscale("log")
    axes.set_ylabel("rows per core-second")
    centres = [place + 0.4 - width / 2 for place in range(len(cells))]
    axes.set_xticks(centres, [_label(cell) for cell in cells])
    axes.tick_params(axis="x", labelrotation=30)
    axes.legend(fontsize="small")
    return _save(figure, file)


def _plot_growth(entries: list[Entry], figure_name: str, file: Path) -> Path:
    figure, axes = plt.subplots(figsize=(8, 5))
    for engine, interval in dict.fromkeys((e["engine"], e["checkpoint_interval"]) for e in entries):
        own = sorted(
            (e for e in entries if (e["engine"], e["checkpoint_interval"]) == (engine, interval)),
            key=lambda entry: entry["keys"],
        )
        label = f"{engine}, {'checkpoints' if interval else 'no checkpoints'}"
        axes.plot([e["keys"] for e in own], [e[figure_name] for e in own], marker="o", label=label)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("keys")
    axes.set_ylabel(figure_name.replace("_", " "))
    axes.legend(fontsize="small")
    return _save(figure, file)


def _label(cell: tuple[Any, ...]) -> str:
    query, keys, key_type, parallelism, interval, source = cell
    return f"{query}{' (topic)' if source == 'topic' else ''}\n{keys:,} {key_type}\n{parallelism} slots, {interval} ms"


def _save(figure: Any, file: Path) -> Path:
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    plt.close(figure)
    return file
