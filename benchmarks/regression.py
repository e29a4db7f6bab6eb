"""The regression check: ratios between engines of one and the same run, never absolute times.

A ratio is an engine's rows per core-second over those of the best peer in the same cell. A slower machine
slows both.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cells import Entry, cell_key

TOLERANCE = 0.25


@dataclass(frozen=True)
class Ratio:
    """How many times the best peer's rate an engine reached in a cell: by medians, and by its slowest run beside the
    quickest that any peer had."""

    entry: Entry
    peer: str
    ratio: float
    worst: float


def ratios_of(entries: list[Entry], engine: str) -> dict[str, float]:
    """By the name of the cell, for every one in which both ran."""
    return {cell_name(found.entry): found.ratio for found in ratios_to_best_peer(entries, engine)}


def ratios_to_best_peer(entries: list[Entry], engine: str) -> Iterator[Ratio]:
    """One for each cell in which a peer ran too, and long enough. An engine's own variants, whose names begin with its
    name, are no peers."""
    counting = [entry for entry in entries if entry["repetitions"] and entry["net"]]
    for mine in (entry for entry in counting if entry["engine"] == engine):
        others = (entry for entry in counting if not entry["engine"].startswith(engine))
        peers = [other for other in others if cell_key(other) == cell_key(mine)]
        if peers:
            best = max(peers, key=lambda peer: peer["rows_per_core_s"])
            quickest = max(rate for peer in peers for rate in peer["all_rows_per_core_s"])
            slowest = min(mine["all_rows_per_core_s"])
            yield Ratio(mine, best["engine"], mine["rows_per_core_s"] / best["rows_per_core_s"], slowest / quickest)


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
