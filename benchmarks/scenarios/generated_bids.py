"""Generated bids through all engines, in turns: see `benchmarks.scenarios.generated`.

.venv/bin/python -m benchmarks.scenarios.generated_bids --rounds 3
"""

import argparse
import json
import subprocess
from statistics import median
from typing import Any

from benchmarks.environments import FLINK, PROJECT, SPARK
from benchmarks.paths import REPOSITORY
from benchmarks.scenarios.figures import keep_figures

_ENGINES = {
    "snapshot-engine": (PROJECT, "ours"),
    "flink-sql-heap": (FLINK, "flink"),
    "spark-hdfs-store": (SPARK, "spark"),
}
_PATIENCE_SECONDS = 240


def run(engine: str, seconds: float) -> dict[str, Any]:
    environment, program = _ENGINES[engine]
    command = [str(environment.python), "-m", f"benchmarks.scenarios.generated.{program}", "--seconds", str(seconds)]
    ended = subprocess.run(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=True, timeout=_PATIENCE_SECONDS
    )
    return dict(json.loads(ended.stdout.splitlines()[-1]))


def row_of(engine: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    medians = {name: median(each[name] for each in runs) for name in runs[0]}
    return {"engine": engine, **medians, "all_rows_per_s": [each["rows_per_s"] for each in runs]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=24.0)
    chosen = parser.parse_args()
    for environment, _ in _ENGINES.values():
        environment.install()
    runs: dict[str, list[dict[str, Any]]] = {engine: [] for engine in _ENGINES}
    for _ in range(chosen.rounds):
        for engine in _ENGINES:
            runs[engine].append(run(engine, chosen.seconds))
            print(engine, json.dumps(runs[engine][-1]), flush=True)
    rows = [row_of(engine, told) for engine, told in runs.items()]
    keep_figures("generated_bids", rows)
    ours, *peers = rows
    ratio = ours["rows_per_s"] / max(peer["rows_per_s"] for peer in peers)
    print(f"{ours['rows_per_s'] / 1e6:.1f} M rows/s, {ratio:.1f} times the better peer")


if __name__ == "__main__":
    main()
