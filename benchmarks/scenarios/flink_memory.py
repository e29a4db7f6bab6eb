"""What a key of a running count and sum costs in Flink's heap backend: the counterpart of `memory`.

    benchmarks/.envs/flink/bin/python -m benchmarks.scenarios.flink_memory

Every key comes once, then all of them again, with a checkpoint each second. What is counted is the live heap, after a
collection: what Flink could not do without, far less than its process takes.
"""

import argparse
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
        CREATE TEMPORARY TABLE numbers (n BIGINT, k AS MOD(n, {keys}), price AS MOD(n, 1000)) WITH (
            'connector' = 'datagen', 'rows-per-second' = '100000000', 'fields.n.kind' = 'sequence',
            'fields.n.start' = '0', 'fields.n.end' = '100000000000')""")
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
    """With all keys in state, twice over."""
    with tempfile.TemporaryDirectory() as folder:
        job = start(keys, folder, free_port())
        deadline = time.monotonic() + timeout
        while job.rows_sent_by_sources() < max(2 * keys, 1_000_000):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{job.rows_sent_by_sources():,} rows of {2 * keys:,} within {timeout:.0f} s")
            time.sleep(0.5)
        held = live_heap()
        job.cancel()
        time.sleep(2.0)
    return {"keys": keys, "live_bytes": held}


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
