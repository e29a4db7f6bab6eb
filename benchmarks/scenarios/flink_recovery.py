"""How long Flink takes until all tasks run again after one threw: with its restart delay set to 0, and by default.

A keyed aggregate over a generated sequence divides by zero at one row. Each restart goes back to the last checkpoint
and meets that row again, so one job gives as many restarts as it is allowed. Run it in Flink's own environment:

    benchmarks/.envs/flink/bin/python -m benchmarks.scenarios.flink_recovery
"""

import argparse
import tempfile
import time
from statistics import median
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.flink_rest import FlinkJob, free_port, rest_configuration
from benchmarks.scenarios.figures import keep_figures

ROWS_PER_SECOND = 20_000
POISONED_ROW = 3 * ROWS_PER_SECOND
_LAST_ROW = 2 * POISONED_ROW
"""A longer one would be what restarts take their time for: Flink seems to keep a whole sequence in memory and state."""
_POLL_SECONDS = 0.01
_SILENCE_SECONDS = 10.0


def configuration(restarts: int, delay: str, folder: str) -> dict[str, str]:
    """`delay`: of the fixed-delay strategy, or `default` for what Flink does when nothing is set."""
    chosen = {
        "parallelism.default": "2",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folder}",
        "execution.checkpointing.storage": "filesystem",
        # What the REST interface says would else be up to 3 s old.
        "web.refresh-interval": "5",
    }
    if delay != "default":
        chosen |= {
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": str(restarts),
            "restart-strategy.fixed-delay.delay": delay,
        }
    return chosen


def start(port: int, settings: dict[str, str]) -> FlinkJob:
    flink = Configuration()
    for name, value in {**settings, **rest_configuration(port)}.items():
        flink.set_string(name, value)
    env = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(flink).build())
    env.execute_sql(f"""
        CREATE TEMPORARY TABLE numbers (n BIGINT, k AS MOD(n, 1000)) WITH (
            'connector' = 'datagen', 'rows-per-second' = '{ROWS_PER_SECOND}', 'fields.n.kind' = 'sequence',
            'fields.n.start' = '1', 'fields.n.end' = '{_LAST_ROW}')""")
    env.execute_sql("CREATE TEMPORARY TABLE nowhere (k BIGINT, c BIGINT, s BIGINT) WITH ('connector' = 'blackhole')")
    submitted = env.execute_sql(f"""
        INSERT INTO nowhere SELECT k, COUNT(*), SUM(1000000 / (n - {POISONED_ROW})) FROM numbers GROUP BY k""")
    return FlinkJob(port, str(submitted.get_job_client().get_job_id()))


def restart_times(job: FlinkJob, restarts: int, timeout: float) -> list[float]:
    """Seconds from each exception, by Flink's own clock, until every task ran again."""
    found: dict[int, float] = {}
    deadline, heard = time.monotonic() + timeout, None
    while len(found) < restarts and time.monotonic() < deadline:
        details, failures = job.details(), job.failures()
        if details is not None:
            heard = time.monotonic()
        elif heard is not None and time.monotonic() - heard > _SILENCE_SECONDS:
            break  # after its last restart the job has failed, and the cluster that was made for it is gone
        if details is not None and failures and details["state"] in ("FAILED", "RUNNING"):
            newest = failures[0]
            if newest not in found and runs_since(details, newest):
                found[newest] = (last_start(details) - newest) / 1000
            if details["state"] == "FAILED":
                break
        time.sleep(_POLL_SECONDS)
    return [found[moment] for moment in sorted(found)]


def runs_since(details: dict[str, Any], moment: int) -> bool:
    """Whether all tasks run and were started after that moment (epoch ms)."""
    vertices = details["vertices"]
    running = all(vertex["tasks"]["RUNNING"] == vertex["parallelism"] for vertex in vertices)
    return running and all(vertex["start-time"] >= moment for vertex in vertices)


def last_start(details: dict[str, Any]) -> int:
    """When the last task was seen to run (epoch ms, Flink's clock)."""
    return int(details["now"])


def measure(delay: str, restarts: int) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        job = start(free_port(), configuration(restarts, delay, folder))
        try:
            return restart_times(job, restarts, timeout=90)
        finally:
            job.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--restarts", type=int, default=8)
    chosen = parser.parse_args()
    seconds = {delay: measure(delay, chosen.restarts) for delay in ("0 ms", "default")}
    rows = [{"restart_delay": delay, "median_s": median(times), "all_s": times} for delay, times in seconds.items()]
    keep_figures("flink_recovery", rows)
    for delay, times in seconds.items():
        print(f"restart delay {delay}: {', '.join(f'{each:.2f}' for each in times)} s")


if __name__ == "__main__":
    main()
