"""The project's goals beside what was measured: which are reached, and by how much the others are not."""

from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.cells import Entry
from benchmarks.regression import ratios_to_best_peer

_OURS = "snapshot-engine"
_LEAST_RATIOS = {
    "tumbling": 10.0,
    **dict.fromkeys(("q0", "q1", "q2"), 2.0),
    **dict.fromkeys(("q3", "q4", "q8", "q11"), 3.0),
    **dict.fromkeys(("q5", "q7", "q12"), 1.0),
}


@dataclass(frozen=True)
class Goal:
    """`wanted` is the least that is good enough, or the most where `at_most`."""

    name: str
    wanted: float
    measured: float
    unit: str
    at_most: bool = False

    @property
    def reached(self) -> bool:
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted

    def row(self) -> str:
        limit = f"{'at most' if self.at_most else 'at least'} {self.wanted:g}{self.unit}"
        return f"| {self.name} | {limit} | {self.measured:.3g}{self.unit} | {'yes' if self.reached else '**no**'} |"


def goals_of(entries: list[Entry], scenarios: dict[str, list[Entry]]) -> list[Goal]:
    """Of all that was measured; what was not has no line."""
    return [
        *_ratio_goals(entries),
        *_string_goal(entries),
        *_memory_goal(entries),
        *_scenario_goals(scenarios),
    ]


def render_goals(goals: list[Goal]) -> list[str]:
    if not goals:
        return []
    heading = ["## Goals", "", "Ratios are of rows per core-second, to the best peer in the same cell.", ""]
    return [*heading, "| | wanted | measured | reached |", "|---|---|---:|---|", *(goal.row() for goal in goals), ""]


def _ratio_goals(entries: list[Entry]) -> Iterator[Goal]:
    for entry, ratio in ratios_to_best_peer(entries, _OURS):
        # Windows are compared with checkpoints on: that is what they are for.
        if entry["input"] == "files" and (entry["query"] != "tumbling" or entry["checkpoint_interval"]):
            name = f"{entry['query']}, {entry['keys']:,} {entry['key_type']} keys, {entry['parallelism']} slots"
            yield Goal(name, _LEAST_RATIOS[entry["query"]], ratio, "×")


def _own(entries: list[Entry], engine: str, keys: int, key_type: str) -> Entry | None:
    wanted = ("tumbling", engine, keys, key_type, 2, "files")
    names = ("query", "engine", "keys", "key_type", "parallelism", "input")
    found = (e for e in entries if e["repetitions"] and e["checkpoint_interval"])
    return next((e for e in found if tuple(e[name] for name in names) == wanted), None)


def _string_goal(entries: list[Entry]) -> Iterator[Goal]:
    strings, integers = _own(entries, _OURS, 100_000, "string"), _own(entries, _OURS, 100_000, "int")
    if strings and integers:
        share = strings["rows_per_core_s"] / integers["rows_per_core_s"]
        yield Goal("string keys, of the rate of integer keys", 0.6, share, "")


def _memory_goal(entries: list[Entry]) -> Iterator[Goal]:
    ours, flink = _own(entries, _OURS, 1_000_000, "int"), _own(entries, "flink-sql-heap", 1_000_000, "int")
    if ours and flink:
        share = ours["peak_memory"] / flink["peak_memory"]
        yield Goal("memory with a million keys, of Flink's with heap state", 1.0, share, "", at_most=True)


def _scenario_goals(scenarios: dict[str, list[Entry]]) -> Iterator[Goal]:
    for row in scenarios.get("headline", []):
        price = 1 - row["rate_with_of_without"]
        yield Goal(
            f"price of a checkpoint each second at full load, {row['keys']:,} keys", 0.05, price, "", at_most=True
        )
    yield from _restart_goals(scenarios)
    for row in scenarios.get("coordinator", []):
        if row["subtasks"] >= 10_000:
            name = f"driver's CPU time of a checkpoint, {row['subtasks']:,} subtasks, {row['shape']}"
            yield Goal(name, 1.0, row["cpu_seconds"], " s", at_most=True)


def _restart_goals(scenarios: dict[str, list[Entry]]) -> Iterator[Goal]:
    for row in scenarios.get("recovery", []):
        if row.get("case", "") == "recovery, committed, Region":
            seconds = row["kill_to_first_output_median_seconds"]
            yield Goal("kill -9 to first new output of the region", 0.5, seconds, " s", at_most=True)
    flink = [row["median_s"] for row in scenarios.get("flink_recovery", []) if row["restart_delay"] == "0 ms"]
    ours = [row["median_s"] for row in scenarios.get("exception_recovery", [])]
    if flink and ours:
        name = "an exception until all run again, beside Flink with a delay of 0"
        yield Goal(name, flink[0], ours[0], " s", at_most=True)
