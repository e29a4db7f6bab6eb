"""What checkpoints cost a loop: its rate with one every second against its rate without any, in one run.

Numbers go round ten times each; the two ways take turns, so that whatever else the machine does hits both. Run it in
the project's own environment, on a machine with nothing else to do:

    .venv/bin/python -m benchmarks.scenarios.loops --rows 3000000 --pairs 3
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.paths import OUT
from snapshot_engine.api import Environment, col
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.runtime.forked import ForkedLauncher
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.testing import Outcome, run_pipeline

TURNS = 10
TARGET = 0.9


@dataclass(frozen=True)
class LoopRun:
    interval: float | None
    seconds: float
    rows_per_second: float
    """Rows through the head: each number counts once for every turn."""
    checkpoints: int
    most_in_queue: int
    most_in_logs: int


class Stopwatch(JobEvents):
    """From the moment that all slots run until the last one has nothing to do."""

    def __init__(self) -> None:
        self.began = self.ended_at = 0.0
        self.checkpoints = self.most_in_queue = self.most_in_logs = 0

    def all_running(self) -> None:
        self.began = time.perf_counter()

    def region_finished(self, run: Any) -> None:
        self.ended_at = time.perf_counter()

    def checkpoint_completed(self, manifest: Any, outcome: Any, path: Any, uri: str, written: int) -> None:
        self.checkpoints += 1

    def heartbeat(self, connection: Any, subtasks: dict[str, dict[str, Any]]) -> None:
        for figures in subtasks.values():
            self.most_in_queue = max(self.most_in_queue, figures.get("loop_queue_bytes", 0))
            self.most_in_logs = max(self.most_in_logs, figures.get("loop_log_bytes", 0))


def go_round(rows: Any) -> tuple[Any, Any]:
    again = rows.where(col("left") > 0).with_columns(left=col("left") - 1)
    return again, rows.where(col("left") == 0)


def pipeline(env: Environment, rows: int) -> None:
    columns = {"id": lambda offsets: offsets.astype(np.int64), "left": lambda offsets: np.full(len(offsets), TURNS)}
    source = env.from_source(GeneratorSource(columns, count=rows, splits=2), uid="numbers")
    source.key_by("id").iterate(go_round, uid="loop").sink_to(DiscardSink(), uid="out")


def measure(rows: int, interval: float | None, parallelism: int, launcher: ForkedLauncher) -> LoopRun:
    folder = Path(tempfile.mkdtemp(prefix="loops-"))
    watch = Stopwatch()
    try:
        result = run_pipeline(
            pipeline,
            storage=folder,
            parallelism=parallelism,
            args={"rows": rows},
            interval=interval,
            launcher=launcher,
            observers=(watch,),
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert result.outcome is Outcome.FINISHED, result
    seconds = watch.ended_at - watch.began
    return LoopRun(
        interval,
        seconds,
        rows * (TURNS + 1) / seconds,
        watch.checkpoints,
        watch.most_in_queue,
        watch.most_in_logs,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--parallelism", type=int, default=1)
    options = parser.parse_args()
    launcher = ForkedLauncher()
    measure(options.rows // 10, None, options.parallelism, launcher)  # loads the kernels
    pairs = [
        [measure(options.rows, interval, options.parallelism, launcher) for interval in (None, options.interval)]
        for _ in range(options.pairs)
    ]
    launcher.close()
    for run in (run for pair in pairs for run in pair):
        way = "no checkpoints  " if run.interval is None else f"every {run.interval:g} s ({run.checkpoints})"
        print(
            f"{way:>16}  {run.seconds:6.2f} s  {run.rows_per_second / 1e6:6.2f} M rows/s through the head, "
            f"at most {run.most_in_queue / 1e6:.1f} MB in the queue, {run.most_in_logs / 1e6:.1f} MB in logs"
        )
    ratio = statistics.median(with_them.rows_per_second / without.rows_per_second for without, with_them in pairs)
    print(f"rate with checkpoints: {ratio:.1%} of the rate without (target {TARGET:.0%})")
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "loops.json").write_text(json.dumps({"ratio": ratio, "runs": [[asdict(r) for r in p] for p in pairs]}))
    return 0 if ratio >= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
