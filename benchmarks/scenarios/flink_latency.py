"""Latency of Flink SQL at half load: through a shuffle and a count kept by key, the same as `latency` has it.

    benchmarks/.envs/flink/bin/python -m benchmarks.scenarios.flink_latency

A row carries the time at which the source made it; behind the keyed count the difference to the clock is taken, and
counted by milliseconds in windows of a second, so that measuring adds few rows. Half load is half of what the same
query takes when the source is not held back. Checkpoints each second go on meanwhile.
"""

import argparse
import tempfile
import time
from collections import Counter
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.flink_rest import FlinkJob, free_port, rest_configuration
from benchmarks.scenarios.figures import keep_figures

KEYS = 1_000
_UNLIMITED = 100_000_000
_NOW = "CAST(CURRENT_ROW_TIMESTAMP() AS TIMESTAMP(3))"
_NOW_MS = f"(EXTRACT(EPOCH FROM {_NOW}) * 1000 + EXTRACT(MILLISECOND FROM {_NOW}))"


def start(rate: int, folder: str, port: int) -> Any:
    settings = Configuration()
    chosen = {
        "parallelism.default": "2",
        "pipeline.object-reuse": "true",
        "table.local-time-zone": "UTC",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folder}",
        "execution.checkpointing.storage": "filesystem",
        # The default of 100 ms is for throughput; this is how long rows wait in a buffer that is not full.
        "execution.buffer-timeout.interval": "5 ms",
    }
    for name, value in {**chosen, **rest_configuration(port)}.items():
        settings.set_string(name, value)
    env = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(settings).build())
    env.execute_sql(f"""
        CREATE TEMPORARY TABLE numbers (n BIGINT, k AS MOD(n, {KEYS}), made AS {_NOW_MS}, pt AS PROCTIME()) WITH (
            'connector' = 'datagen', 'rows-per-second' = '{rate}', 'fields.n.kind' = 'random',
            'fields.n.min' = '0', 'fields.n.max' = '1000000000')""")
    env.execute_sql(f"""
        CREATE TEMPORARY VIEW aged AS SELECT pt, rows_so_far, {_NOW_MS} - made AS age FROM (
            SELECT pt, made, COUNT(*) OVER (PARTITION BY k ORDER BY pt) AS rows_so_far FROM numbers)""")
    return env.execute_sql("""
        SELECT age, COUNT(*), MAX(rows_so_far) FROM TABLE(TUMBLE(TABLE aged, DESCRIPTOR(pt), INTERVAL '1' SECOND))
        GROUP BY age, window_start, window_end""")


def ages_at(rate: int, seconds: float) -> tuple[Counter[int], float]:
    """Rows by their age in milliseconds, and rows per second; the first seconds, in which Flink warms up, left out."""
    ages: Counter[int] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        result = start(rate, folder, port)
        job = FlinkJob(port, str(result.get_job_client().get_job_id()))
        began = None
        with result.collect() as rows:
            for age, count, _ in rows:
                now = time.monotonic()
                began = began or now
                if now - began > seconds / 3:
                    ages[max(0, int(age))] += count
                if now - began > seconds:
                    break
        job.cancel()
    return ages, sum(ages.values()) / (seconds * 2 / 3)


def percentile(ages: Counter[int], share: float) -> int:
    wanted = share * sum(ages.values())
    for age in sorted(ages):
        wanted -= ages[age]
        if wanted <= 0:
            return age
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=18.0)
    chosen = parser.parse_args()
    _, most = ages_at(_UNLIMITED, chosen.seconds)
    ages, rate = ages_at(int(most / 2), chosen.seconds)
    row = {
        "engine": "flink-sql-heap",
        "query": "count by key, half load",
        "checkpoint_interval": 1000,
        "rows_per_s": rate,
        "median_ms": percentile(ages, 0.5),
        "percentile_99_ms": percentile(ages, 0.99),
        "highest_ms": max(ages),
    }
    print(row)
    keep_figures("flink_latency", [row])


if __name__ == "__main__":
    main()
