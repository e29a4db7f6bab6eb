"""The scenarios that belong to the benchmark: each a program of its own that leaves its figures as a file beside the
report, which shows them as one table each."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments import FLINK, PROJECT, SPARK, Environment
from benchmarks.paths import OUT, REPOSITORY

Row = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """`benchmarks.scenarios.<name>`, which writes `<name>.json`."""

    name: str
    title: str
    environment: Environment = PROJECT
    arguments: tuple[str, ...] = ()
    seconds: int = 600

    def run(self) -> bool:
        self.environment.install()
        command = [str(self.environment.python), "-m", f"benchmarks.scenarios.{self.name}", *self.arguments]
        (OUT / f"{self.name}.json").unlink(missing_ok=True)  # what fails has no figures, rather than old ones
        running = subprocess.Popen(command, cwd=REPOSITORY, start_new_session=True)
        try:
            return running.wait(self.seconds) == 0
        except subprocess.TimeoutExpired:
            print(f"{self.name} did not end within {self.seconds} s", flush=True)
            return False
        finally:
            with suppress(ProcessLookupError):  # with all that it started: the next scenario has the machine alone
                os.killpg(running.pid, signal.SIGKILL)


SCENARIOS = (
    Scenario("latency", "Latency at half load: this engine"),
    Scenario("flink_latency", "Latency at half load: Flink", FLINK),
    Scenario("spark_latency", "Latency at half load: Structured Streaming", SPARK),
    Scenario("checkpoint_sizes", "Checkpoints by the number of keys"),
    Scenario("headline", "What checkpoints cost at full load"),
    Scenario("generated_bids", "Generated bids, all engines in turns", seconds=1500),
    Scenario("recovery", "Recovery after kill -9, by exchange and strategy", arguments=("--parts", "recovery")),
    Scenario("exception_recovery", "Restarts after an exception: this engine"),
    Scenario("flink_recovery", "Restarts after an exception: Flink", FLINK),
    Scenario("memory", "Memory of a key: this engine's slots"),
    Scenario("flink_memory", "Memory of a key: Flink's live heap", FLINK),
    Scenario("regions", "Growth with the number of regions"),
    Scenario("records", "Functions on single records"),
    Scenario("coordinator", "The driver's cost of a checkpoint, by simulation"),
)


def run_scenarios(names: list[str], tell: Callable[[str], None]) -> bool:
    """Whether all of them ended well. None named: all."""
    unknown = set(names) - {scenario.name for scenario in SCENARIOS}
    if unknown:
        known = ", ".join(scenario.name for scenario in SCENARIOS)
        raise SystemExit(f"no scenario is called {', '.join(sorted(unknown))}; there are {known}")
    well = True
    for scenario in SCENARIOS:
        if not names or scenario.name in names:
            tell(f"scenario {scenario.name}: {scenario.title}")
            well = scenario.run() and well
    return well


def read_scenarios(directory: Path) -> dict[str, list[Row]]:
    """The rows of every scenario whose figures are there, by its name."""
    found = {}
    for scenario in SCENARIOS:
        file = directory / f"{scenario.name}.json"
        if file.exists():
            found[scenario.name] = json.loads(file.read_text())
    return found


def render_scenarios(found: dict[str, list[Row]]) -> list[str]:
    titles = {scenario.name: scenario.title for scenario in SCENARIOS}
    lines: list[str] = []
    for name, rows in found.items():
        if rows:
            columns = list(dict.fromkeys(column for row in rows for column in row))
            lines += [f"## {titles[name]}", "", _line(column.replace("_", " ") for column in columns)]
            lines += [_line("---" for _ in columns)]
            lines += [_line(_shown(row.get(column)) for column in columns) for row in rows]
            lines += [""]
    return lines


def _line(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        return " ".join(map(_shown, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return f"{value:,}" if type(value) is int else str(value)
