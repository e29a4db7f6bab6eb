"""The regression check: ratios between engines of one and the same run, never absolute times.

A ratio is an engine's rows per core-second over those of the best peer in the same cell. A slower machine
slows both.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cells import Entry, cell_key

TOLERANCE = 0.25


def ratios_of(entries: list[Entry], engine: str) -> dict[str, float]:
    """By the name of the cell, for every one in which both ran."""
    return {cell_name(entry): ratio for entry, ratio in ratios_to_best_peer(entries, engine)}


def ratios_to_best_peer(entries: list[Entry], engine: str) -> Iterator[tuple[Entry, float]]:
    """The engine's entries, each with how many times the best peer's rate it reached. Its own variants, whose names
    begin with its name, are no peers."""
    for mine in entries:
        if mine["engine"] != engine or not mine["repetitions"]:
            continue
        peers = [
            other["rows_per_core_s"]
            for other in entries
            if not other["engine"].startswith(engine) and other["repetitions"] and cell_key(other) == cell_key(mine)
        ]
        if peers:
            yield mine, mine["rows_per_core_s"] / max(peers)


def cell_name(entry: Entry) -> str:
    return "/".join(str(part) for part in cell_key(entry))


def regressions(stored: dict[str, float], measured: dict[str, float], tolerance: float = TOLERANCE) -> list[str]:
    """What has become worse than the stored ratio by more than the tolerance, in words."""
    return [
        f"{cell}: {measured[cell]:.2f}× the best peer, stored {before:.2f}× (at least {before * (1 - tolerance):.2f}×)"
        for cell, before in stored.items()
        if cell in measured and measured[cell] < before * (1 - tolerance)
    ]


def load_ratios(file: Path) -> dict[str, float]:
    if not file.exists():
        return {}
    return {str(cell): float(ratio) for cell, ratio in json.loads(file.read_text()).items()}


def store_ratios(file: Path, ratios: dict[str, float]) -> None:
    rounded = {cell: round(ratio, 3) for cell, ratio in sorted(ratios.items())}
    file.write_text(json.dumps(rounded, indent=2) + "\n")
