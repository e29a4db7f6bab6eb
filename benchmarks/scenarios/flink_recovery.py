"""How long Flink takes until all tasks run again after one threw: with its restart delay set to 0, and by default.

A keyed aggregate over a generated sequence divides by zero at one row. Each restart goes back to the last checkpoint
and meets that row again, so one job gives as many restarts as it is allowed. Run it in Flink's own environment:

    benchmarks/.envs/flink/bin/python -m benchmarks.scenarios.flink_recovery
"""

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment, TableResult

from benchmarks.peers.flink_log import job_has_failed, restart_times
from benchmarks.scenarios.figures import keep_figures

ROWS_PER_SECOND = 20_000
POISONED_ROW = 3 * ROWS_PER_SECOND
_LAST_ROW = 2 * POISONED_ROW
"""A longer one would be what restarts take their time for: Flink seems to keep a whole sequence in memory and state."""
_DEFAULT_RESTARTS = 3
"""Each waits longer than the one before."""
_PATIENCE_SECONDS = 90.0
_POLL_SECONDS = 0.5


def configuration(restarts: int, delay: str, folder: str) -> dict[str, str]:
    """`delay`: of the fixed-delay strategy, or `default` for what Flink does when nothing is set."""
    chosen = {
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folder}",
        "execution.checkpointing.storage": "filesystem",
    }
    if delay != "default":
        chosen |= {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(restarts),
            "restart-strategy.fixed-delay.delay": delay,
        }
    return chosen


def start(settings: dict[str, str]) -> TableResult:
    flink = Configuration()
    for name, value in settings.items():
        flink.set_string(name, value)
    env = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(flink).build())
    env.execute_sql(f"""
        CREATE TEMPORARY TABLE numbers (n BIGINT, k AS MOD(n, 1000)) WITH (
            'connector' = 'datagen', 'rows-per-second' = '{ROWS_PER_SECOND}', 'fields.n.kind' = 'sequence',
            'fields.n.start' = '1', 'fields.n.end' = '{_LAST_ROW}')""")
    env.execute_sql("CREATE TEMPORARY TABLE nowhere (k BIGINT, c BIGINT, s BIGINT) WITH ('connector' = 'blackhole')")
    return env.execute_sql(f"""
        INSERT INTO nowhere SELECT k, COUNT(*), SUM(1000000 / (n - {POISONED_ROW})) FROM numbers GROUP BY k""")


class FlinkLog:
    """The log of this process' Flink, which writes it from its start on."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def lines(self) -> list[str]:
        return [line for file in sorted(self._folder.glob("*.log")) for line in file.read_text().splitlines()]


def measure(delay: str, restarts: int, log: FlinkLog) -> list[float]:
    """By Flink's own clock, of as many restarts as there are within our patience."""
    before = len(log.lines())
    with tempfile.TemporaryDirectory() as folder:
        job = start(configuration(restarts, delay, folder))
        deadline = time.monotonic() + _PATIENCE_SECONDS
        said: Sequence[str] = []
        while not job_has_failed(said) and len(restart_times(said)) < restarts and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            said = log.lines()[before:]
        with contextlib.suppress(Exception):  # it has failed by then, if it was not to restart any more
            job.get_job_client().cancel().result()
    return restart_times(said)[:restarts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restarts", type=int, default=8)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLINK_LOG_DIR"] = folder
        log = FlinkLog(folder)
        seconds = {"0 ms": measure("0 ms", chosen.restarts, log), "default": measure("default", _DEFAULT_RESTARTS, log)}
    for delay, times in seconds.items():
        print(f"restart delay {delay}: {', '.join(f'{each:.2f}' for each in times)} s")
    keep_figures(
        "flink_recovery",
        [{"restart_delay": delay, "median_s": median(times), "all_s": times} for delay, times in seconds.items()],
    )


if __name__ == "__main__":
    main()
