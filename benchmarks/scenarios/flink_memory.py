"""What a key of a running count and sum costs in Flink's heap backend: the counterpart of `memory`.

    benchmarks/.envs/flink/bin/python -m benchmarks.scenarios.flink_memory

Keys are picked at random until nearly all have come, with a checkpoint each second. What is counted is the live heap,
after a collection: what Flink could not do without, far less than its process takes.
"""

import argparse
import math
import tempfile
import time
from typing import Any

from pyflink.common import Configuration
from pyflink.java_gateway import get_gateway
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.peers.flink_rest import FlinkJob, free_port, rest_configuration
from benchmarks.scenarios.figures import keep_figures

_COLLECTIONS = 3


def start(keys: int, folder: str, port: int) -> FlinkJob:
    chosen = {
        "parallelism.default": "2",
        "pipeline.object-reuse": "true",
        "state.backend.type": "hashmap",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{folder}",
        "execution.checkpointing.storage": "filesystem",
        **rest_configuration(port),
    }
    settings = Configuration()
    for name, value in chosen.items():
        settings.set_string(name, value)
    env = TableEnvironment.create(EnvironmentSettings.new_instance().with_configuration(settings).build())
    env.execute_sql(f"""
        CREATE TEMPORARY TABLE numbers (k BIGINT, price BIGINT) WITH (
            'connector' = 'datagen', 'rows-per-second' = '100000000', 'fields.k.min' = '0',
            'fields.k.max' = '{keys - 1}', 'fields.price.min' = '0', 'fields.price.max' = '999')""")
    env.execute_sql("CREATE TEMPORARY TABLE nowhere (k BIGINT, c BIGINT, s BIGINT) WITH ('connector' = 'blackhole')")
    submitted = env.execute_sql("INSERT INTO nowhere SELECT k, COUNT(*), SUM(price) FROM numbers GROUP BY k")
    return FlinkJob(port, str(submitted.get_job_client().get_job_id()))


def live_heap() -> int:
    """Bytes in use after a collection; the mini-cluster is in the gateway's own virtual machine."""
    jvm = get_gateway().jvm
    found = []
    for _ in range(_COLLECTIONS):
        jvm.System.gc()
        runtime = jvm.Runtime.getRuntime()
        found.append(runtime.totalMemory() - runtime.freeMemory())
    return int(min(found))


def heap_holds(keys: int, timeout: float) -> dict[str, Any]:
    """With nearly all keys in state; how many that are follows from the number of rows."""
    with tempfile.TemporaryDirectory() as folder:
        job = start(keys, folder, free_port())
        deadline = time.monotonic() + timeout
        wanted = max(4 * keys, 1_000_000)
        while (rows := job.rows_sent_by_sources()) < wanted:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{rows:,} rows of {wanted:,} within {timeout:.0f} s")
            time.sleep(0.5)
        held = live_heap()
        job.cancel()
        time.sleep(2.0)
    return {"keys": round(keys * (1 - math.exp(-rows / keys))), "live_bytes": held}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", default="1000,4000000", help="few and many")
    parser.add_argument("--timeout", type=float, default=120.0)
    chosen = parser.parse_args()
    few, *_, many = rows = [heap_holds(int(keys), chosen.timeout) for keys in chosen.keys.split(",")]
    figures = {
        "engine": "flink-sql-heap",
        "bytes_per_key": (many["live_bytes"] - few["live_bytes"]) / (many["keys"] - few["keys"]),
        "keys": [row["keys"] for row in rows],
        "live_bytes": [row["live_bytes"] for row in rows],
    }
    keep_figures("flink_memory", [figures])
    print(figures)


if __name__ == "__main__":
    main()
