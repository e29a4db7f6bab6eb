"""The project's goals beside what was measured: which are reached, and by how much the others are not."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from benchmarks.cells import OUR_ENGINE, Entry
from benchmarks.nexmark.queries import QUERIES
from benchmarks.regression import Ratio, ratios_to_best_peer

_LEAST_RATIOS = {"window": 10.0, "stateless": 2.0, "join": 3.0, "session": 3.0}
_MILLION = 1_000_000
_LINEAR = 1.5
"""Ten times the subtasks may cost ten times as much, and half again for what one measurement differs from the next."""


@dataclass(frozen=True)
class Goal:
    """`wanted` is the least that is good enough, or the most where `at_most`.

    `measured` is None where nobody has looked. `worst`: the same by the least lucky of the repeated runs, if there were
    several: a goal that is reached by it does not hang on noise.
    """

    name: str
    wanted: float
    measured: float | None
    unit: str = ""
    at_most: bool = False
    worst: float | None = None

    @property
    def reached(self) -> bool:
        return self.measured is not None and self._good_enough(self.measured)

    def verdict(self) -> str:
        """Whether it is reached, and how far what was measured is from what was wanted."""
        if self.measured is None:
            return "not measured"
        distance = abs(self.measured - self.wanted) / self.wanted if self.wanted else 0.0
        side = "below" if self.measured < self.wanted else "above"
        return f"{'yes' if self.reached else '**no**'}, {distance:.0%} {side}"

    def row(self) -> str:
        limit = f"{'at most' if self.at_most else 'at least'} {self.wanted:.3g}{self.unit}"
        return (
            f"| {self.name} | {limit} | {self._shown(self.measured)} | {self._shown(self.worst)} | {self.verdict()} |"
        )

    def _good_enough(self, value: float) -> bool:
        return value <= self.wanted if self.at_most else value >= self.wanted

    def _shown(self, value: float | None) -> str:
        return "" if value is None else f"{value:.3g}{self.unit}"


def goals_of(entries: list[Entry], scenarios: dict[str, list[Entry]]) -> list[Goal]:
    """All of them: one that nobody has measured is listed as such."""
    ratios = [ratio for ratio in ratios_to_best_peer(entries, OUR_ENGINE) if _counts(ratio.entry)]
    return [
        *_ratio_goals(ratios),
        _slowest_goal(ratios),
        *_string_goals(entries),
        _generated_goal(scenarios),
        *_headline_goals(scenarios),
        *_restart_goals(scenarios),
        *_memory_goals(entries, scenarios),
        *_coordinator_goals(scenarios),
    ]


def render_goals(goals: list[Goal]) -> list[str]:
    heading = [
        "## Goals",
        "",
        "Ratios are of rows per core-second, to the best peer in the same cell. Worst: this engine's slowest run "
        "beside the peer's quickest.",
        "",
        "| | wanted | measured | worst | reached |",
        "|---|---|---:|---:|---|",
    ]
    return [*heading, *(goal.row() for goal in goals), ""]


def _counts(entry: Entry) -> bool:
    """Windows are compared with checkpoints on: that is what they are for."""
    return entry["input"] == "files" and bool(entry["checkpoint_interval"] or not QUERIES[entry["query"]].stateful)


def _ratio_goals(ratios: list[Ratio]) -> Iterator[Goal]:
    """The cells that were measured, and each query of the list that was not."""
    for ratio in ratios:
        entry = ratio.entry
        name = f"{entry['query']}, {entry['keys']:,} {entry['key_type']} keys, {entry['parallelism']} slots"
        wanted = _LEAST_RATIOS[QUERIES[entry["query"]].kind]
        yield Goal(name, wanted, ratio.ratio, "×", worst=ratio.worst)
    measured = {ratio.entry["query"] for ratio in ratios}
    for query in (query for name, query in QUERIES.items() if name not in measured):
        yield Goal(query.name, _LEAST_RATIOS[query.kind], None, "×")


def _slowest_goal(ratios: list[Ratio]) -> Goal:
    least = min(ratios, key=lambda ratio: ratio.ratio, default=None)
    name = "no query slower than the best peer: the least of these ratios"
    return Goal(name, 1.0, least.ratio if least else None, "×", worst=min((r.worst for r in ratios), default=None))


def _own(entries: list[Entry], engine: str, keys: int, key_type: str) -> Entry | None:
    wanted = ("tumbling", engine, keys, key_type, 2, "files")
    names = ("query", "engine", "keys", "key_type", "parallelism", "input")
    found = (e for e in entries if e["repetitions"] and e["checkpoint_interval"])
    return next((e for e in found if tuple(e[name] for name in names) == wanted), None)


def _string_goals(entries: list[Entry]) -> Iterator[Goal]:
    integers = _own(entries, OUR_ENGINE, 100_000, "int")
    for kind, name in (("string", "string keys"), ("long-string", "string keys of 36 bytes")):
        name += ", of the rate of integer keys"
        strings = _own(entries, OUR_ENGINE, 100_000, kind)
        if strings and integers:
            share = strings["rows_per_core_s"] / integers["rows_per_core_s"]
            worst = min(strings["all_rows_per_core_s"]) / max(integers["all_rows_per_core_s"])
            yield Goal(name, 0.6, share, worst=worst)
        else:
            yield Goal(name, 0.6, None)


def _generated_goal(scenarios: dict[str, list[Entry]]) -> Goal:
    name = "generated bids, rows per second beside the better peer"
    rows = scenarios.get("generated_bids", [])
    ours = next((row for row in rows if row["engine"] == OUR_ENGINE), None)
    peers = [row for row in rows if row["engine"] != OUR_ENGINE]
    if ours is None or not peers:
        return Goal(name, _LEAST_RATIOS["window"], None, "×")
    ratio = ours["rows_per_s"] / max(row["rows_per_s"] for row in peers)
    worst = min(ours["all_rows_per_s"]) / max(rate for row in peers for rate in row["all_rows_per_s"])
    return Goal(name, _LEAST_RATIOS["window"], ratio, "×", worst=worst)


def _headline_goals(scenarios: dict[str, list[Entry]]) -> Iterator[Goal]:
    name = "price of a checkpoint each second at full load"
    rows = scenarios.get("headline", [])
    if not rows:
        yield Goal(name, 0.05, None, at_most=True)
    for row in rows:
        yield Goal(f"{name}, {row['keys']:,} keys", 0.05, 1 - row["rate_with_of_without"], at_most=True)


def _restart_goals(scenarios: dict[str, list[Entry]]) -> Iterator[Goal]:
    killed = [row for row in scenarios.get("recovery", []) if row.get("case", "") == "recovery, committed, Region"]
    seconds = killed[0]["kill_to_first_output_median_seconds"] if killed else None
    worst = max(killed[0]["all_seconds"]) if killed else None
    yield Goal("kill -9 to first new output of the region", 0.5, seconds, " s", at_most=True, worst=worst)
    flink = [row["median_s"] for row in scenarios.get("flink_recovery", []) if row["restart_delay"] == "0 ms"]
    ours = scenarios.get("exception_recovery", [])
    name = "an exception until all run again, beside Flink with a delay of 0"
    if flink and ours:
        yield Goal(name, flink[0], ours[0]["median_s"], " s", at_most=True, worst=max(ours[0]["all_s"]))
    else:
        yield Goal(name, flink[0] if flink else 0.39, None, " s", at_most=True)


def _memory_goals(entries: list[Entry], scenarios: dict[str, list[Entry]]) -> Iterator[Goal]:
    """By what a million keys add to the memory in use, and by the whole of what the engines take."""
    ours, flink = (scenarios.get(name, []) for name in ("memory", "flink_memory"))
    name = "memory per million keys of a count and a sum, of Flink's live heap"
    added = ours[0]["bytes_per_key"] / flink[0]["bytes_per_key"] if ours and flink else None
    yield Goal(name, 1.0, added, "", at_most=True)
    mine, peer = _own(entries, OUR_ENGINE, _MILLION, "int"), _own(entries, "flink-sql-heap", _MILLION, "int")
    name = "memory of all processes with a million keys, of Flink's with heap state"
    whole = mine["peak_memory"] / peer["peak_memory"] if mine and peer else None
    yield Goal(name, 1.0, whole, "", at_most=True)


def _coordinator_goals(scenarios: dict[str, list[Entry]]) -> Iterator[Goal]:
    rows = scenarios.get("coordinator", [])
    name = "driver's CPU time of a checkpoint, 10,000 subtasks"
    largest = [row for row in rows if row["subtasks"] >= 10_000]
    if not largest:
        yield Goal(name, 1.0, None, " s", at_most=True)
    for row in largest:
        yield Goal(f"{name}, {row['shape']}", 1.0, row["cpu_seconds"], " s", at_most=True)
    yield from _growth_goals(rows)


def _growth_goals(rows: list[Entry]) -> Iterator[Goal]:
    """Linear: ten times as many subtasks cost no more than about ten times as much."""
    for shape in dict.fromkeys(row["shape"] for row in rows):
        own = sorted((row for row in rows if row["shape"] == shape), key=lambda row: row["subtasks"])
        for fewer, more in pairwise(own):
            growth = (more["cpu_seconds"] / fewer["cpu_seconds"]) / (more["subtasks"] / fewer["subtasks"])
            name = f"driver's cost per subtask with {more['subtasks']:,}, of that with {fewer['subtasks']:,}, {shape}"
            yield Goal(name, _LINEAR, growth, "", at_most=True)
