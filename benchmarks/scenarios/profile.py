"""Where a slot spends its time: py-spy watches the worker and its slots while a query runs.

    benchmarks/.envs/harness/bin/python -m benchmarks.scenarios.profile --query tumbling

writes a flame graph (profile-<query>.svg). Slots are forked processes here, because py-spy follows
child processes and a Spark task is one of a virtual machine's.
"""

import argparse
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

from benchmarks.engines import Session
from benchmarks.environments import HARNESS
from benchmarks.nexmark.queries import NEXMARK_QUERIES
from benchmarks.paths import OUT
from benchmarks.plan import EVERY_SECOND, headline, nexmark
from benchmarks.registry import engines_named
from benchmarks.settings import Run, Settings
from benchmarks.sizing import small_settings

SAMPLES_PER_SECOND = 200


def profile(engine_name: str, settings: Settings, target: Path) -> Run:
    """Run a small job first, so that compiling is not what is seen."""
    (engine,) = engines_named([engine_name])
    with engine.open() as session:
        session.run(small_settings(settings, engine.scale))
        return _watched_run(session, settings, target)


def _watched_run(session: Session, settings: Settings, target: Path) -> Run:
    target.parent.mkdir(parents=True, exist_ok=True)
    watcher = subprocess.Popen(_py_spy(session.worker.pid, target))
    try:
        return session.run(settings)
    finally:
        watcher.send_signal(signal.SIGINT)
        watcher.wait(timeout=60)


def _py_spy(pid: int, target: Path) -> list[str]:
    command = [str(HARNESS.directory / "bin" / "py-spy"), "record", "--pid", str(pid), "--subprocesses"]
    return [*command, "--rate", str(SAMPLES_PER_SECOND), "--output", str(target)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--query", default="tumbling", choices=("tumbling", *NEXMARK_QUERIES))
    parser.add_argument("--engine", default="snapshot-engine-forked")
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--key-type", default="int", choices=("int", "string", "long-string"))
    parser.add_argument("--slices", type=int, default=200, help="of 100,000 events each")
    chosen = parser.parse_args()
    tumbling = headline(chosen.keys, EVERY_SECOND, chosen.key_type)
    cell = tumbling if chosen.query == "tumbling" else nexmark(chosen.query, EVERY_SECOND)
    target = OUT / f"profile-{chosen.query}.svg"
    run = profile(chosen.engine, replace(cell, slices=chosen.slices), target)
    print(f"{run.rows:,} rows at {run.rows_per_core_s:,.0f} per core-second; flame graph: {target}")


if __name__ == "__main__":
    main()
