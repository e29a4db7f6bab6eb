"""Turns outcomes into report.json (a list, one entry per engine and cell) and a table to read."""

import json
from collections.abc import Sequence
from math import isnan
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.cells import Entry, cell_key, is_ours
from benchmarks.checkpoint_price import price_of_checkpoints, render_prices
from benchmarks.goals import goals_of, render_goals
from benchmarks.nexmark.queries import QUERIES
from benchmarks.outcomes import Outcome
from benchmarks.paths import PLOTS
from benchmarks.scenario_runs import read_scenarios, render_scenarios
from benchmarks.spread import spread

_INPUTS = {"files": "Parquet files", "topic": "a Kafka topic"}
_SPREAD_OF = ("rows_per_s", "rows_per_core_s", "peak_memory")


def entry_of(outcome: Outcome) -> Entry:
    """One entry: medians over the repetitions, and their spread. Without an equal result there are no
    figures."""
    settings = outcome.settings
    entry: Entry = {
        "engine": outcome.engine.name,
        "query": settings.query,
        "keys": settings.stream.keys,
        "key_type": settings.stream.key_type,
        "parallelism": settings.parallelism,
        "checkpoint_interval": settings.checkpoint_interval_ms,
        "sink": settings.sink,
        "input": settings.input,
        "verdict": outcome.verdict,
        "repetitions": len(outcome.runs) if outcome.equal else 0,
        "slices": outcome.slices,
        "net": all(run.short is not None for run in outcome.runs),
    }
    if not (outcome.equal and outcome.runs):
        return entry
    last = outcome.runs[-1]
    figures = {name: [getattr(run, name) for run in outcome.runs] for name in _SPREAD_OF}
    entry |= {name: median(values) for name, values in figures.items()}
    return entry | {
        "rows": last.rows,
        "seconds": median(run.seconds for run in outcome.runs),
        "spread": {name: spread(values) for name, values in figures.items()},
        "all_rows_per_core_s": figures["rows_per_core_s"],
        "versions": last.versions,
        "facts": last.facts,
    }


def read_entries(directory: Path) -> list[Entry]:
    """Of cells; what scenarios have left is read from their own files."""
    report = directory / "report.json"
    entries = json.loads(report.read_text()) if report.exists() else []
    return [entry for entry in entries if "scenario" not in entry]


def merged(before: list[Entry], now: list[Entry]) -> list[Entry]:
    """One report of two: an engine's new entry for a cell stands for the old one."""
    found = {(entry["engine"], cell_key(entry)): entry for entry in before}
    return list((found | {(entry["engine"], cell_key(entry)): entry for entry in now}).values())


def write_report(entries: list[Entry], machine: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    scenarios = read_scenarios(directory)
    rows = [{"scenario": name, **row} for name, rows in scenarios.items() for row in rows]
    (directory / "report.json").write_text(json.dumps(entries + rows, indent=1))
    (directory / "machine.json").write_text(json.dumps(machine, indent=1))
    pictures = [name for name in PLOTS if (directory / name).exists()]
    (directory / "report.md").write_text(render(entries, machine, scenarios, pictures))


def render(
    entries: list[Entry],
    machine: dict[str, Any],
    scenarios: dict[str, list[Entry]] | None = None,
    pictures: Sequence[str] = (),
) -> str:
    sections = ["# Benchmark report", "", *_machine_lines(machine), ""]
    sections += render_goals(goals_of(entries, scenarios or {}))
    sections += [f"![{picture}]({picture})" for picture in pictures] + [""] if pictures else []
    for cell in _cells(entries):
        sections += [*_cell_lines(cell), ""]
    sections += render_prices(price_of_checkpoints(entries))
    sections += render_scenarios(scenarios or {})
    sections += _configuration_lines(entries)
    return "\n".join(sections) + "\n"


def _machine_lines(machine: dict[str, Any]) -> list[str]:
    return [f"- {name.replace('_', ' ')}: {value}" for name, value in machine.items()]


def _cells(entries: list[Entry]) -> list[list[Entry]]:
    cells: dict[tuple, list[Entry]] = {}
    for entry in entries:
        cells.setdefault(cell_key(entry), []).append(entry)
    return list(cells.values())


def _cell_lines(cell: list[Entry]) -> list[str]:
    first = cell[0]
    interval = first["checkpoint_interval"]
    lines = [
        f"## {first['query']}: {QUERIES[first['query']].description}",
        "",
        f"{first['keys']:,} {first['key_type']} keys, {first['parallelism']} slots, from {_INPUTS[first['input']]}, "
        + (f"checkpoints each {interval} ms" if interval else "no checkpoints"),
        "",
        "| engine | rows per core-second | ± | of best peer's | rows/s | ± | peak memory | checkpoints | rows "
        "| seconds | runs |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    measured = [entry for entry in cell if entry["repetitions"]]
    best = max((entry["rows_per_core_s"] for entry in measured if not is_ours(entry["engine"])), default=None)
    lines += [_row(entry, best) for entry in sorted(measured, key=lambda entry: -entry["rows_per_core_s"])]
    lines += [f"\n{entry['engine']}: {entry['verdict'].splitlines()[0]}" for entry in cell if not entry["repetitions"]]
    return lines


def _row(entry: Entry, best: float | None) -> str:
    spreads = entry["spread"]
    ratio = f"{entry['rows_per_core_s'] / best:.2f}×" if best else ""
    return (
        f"| {entry['engine']} | {entry['rows_per_core_s']:,.0f} | {spreads['rows_per_core_s']:.0%} | {ratio} "
        f"| {entry['rows_per_s']:,.0f} | {spreads['rows_per_s']:.0%} "
        f"| {entry['peak_memory'] / 2**20:,.0f} MiB | {_checkpoint(entry)} "
        f"| {entry['rows']:,} | {entry['seconds']:.1f}{'' if entry['net'] else ', too short'} "
        f"| {entry['repetitions']} |"
    )


def _checkpoint(entry: Entry) -> str:
    """How many there were in the last run and the median of their durations, as each engine tells it; of Structured
    Streaming, whose batches are its checkpoints, that of a batch."""
    facts = entry["facts"].get("checkpoints", {})
    told = facts.get("duration_ms") or facts.get("batch_ms")
    if not told:
        return "none"
    # Flink's is the word NaN where it has completed none.
    milliseconds = float(told["p50"]) if isinstance(told, dict) else median(told)
    return "none" if isnan(milliseconds) else f"{facts.get('completed', 0)} of {milliseconds:,.0f} ms"


def _configuration_lines(entries: list[Entry]) -> list[str]:
    lines = ["## Versions and configuration", ""]
    seen = set()
    for entry in entries:
        if entry["repetitions"] and entry["engine"] not in seen:
            seen.add(entry["engine"])
            chosen = {**entry["versions"], **entry["facts"].get("configuration", {})}
            lines += [f"### {entry['engine']}", "", *(f"- `{name}`: {value}" for name, value in chosen.items()), ""]
    return lines
