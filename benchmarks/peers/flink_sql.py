"""Flink SQL: the work is done by Flink's Java runtime, Python only submits it.

Configured as Flink's documentation recommends for SQL jobs: window table-valued functions, window top-n,
object reuse; RocksDB with incremental checkpoints where it is asked for.
"""

import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.nexmark import queries as q
from benchmarks.peers.flink_rest import CheckpointWatch, FlinkJob, free_port, rest_configuration, wait_for_rows
from benchmarks.worker import Job, link_files, serve

_COLUMNS = {
    "person": "id BIGINT, name STRING, city STRING, state STRING, ts BIGINT",
    "auction": "id BIGINT, seller BIGINT, category BIGINT, expires BIGINT, ts BIGINT",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts BIGINT",
    "keyed_bid": "auction {key}, bidder BIGINT, price BIGINT, ts BIGINT",
}
_TYPES = {"name": "STRING", "city": "STRING", "state": "STRING", "channel": "STRING", "average": "DOUBLE"}
_STATES = ", ".join(f"'{state}'" for state in q.Q3_STATES)
_WINDOW = f"INTERVAL '{q.WINDOW_MS // 1000}' SECOND"
_SLIDE = f"INTERVAL '{q.SLIDE_MS // 1000}' SECOND"
# Flink merges sessions that touch; a gap of one millisecond less makes "10 s of silence" end a session as
# elsewhere.
_GAP = f"INTERVAL '{(q.SESSION_GAP_MS - 1) / 1000}' SECOND(2, 3)"


def _tumble(table: str, time: str = "rt") -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR({time}), {_WINDOW}))"


_SQL = {
    "tumbling": f"""
        SELECT window_start, auction, COUNT(*) AS bids, SUM(price) AS total
        FROM {_tumble("keyed_bid")} GROUP BY auction, window_start, window_end""",
    "q0": "SELECT auction, bidder, price, channel, ts FROM bid",
    "q1": f"SELECT auction, bidder, CAST({q.DOLLAR_TO_EURO} AS DOUBLE) * price AS price, channel, ts FROM bid",
    "q2": f"SELECT auction, price FROM bid WHERE MOD(auction, {q.Q2_MODULUS}) = 0",
    "q3": f"""
        SELECT p.name, p.city, p.state, a.id AS auction FROM auction a JOIN person p ON a.seller = p.id
        WHERE a.category = {q.Q3_CATEGORY} AND p.state IN ({_STATES})""",
    "q4": f"""
        SELECT window_start, category, AVG(CAST(price AS DOUBLE)) AS average FROM (
            SELECT window_start, window_end, id, category, MAX(price) AS price FROM {_tumble("valid_bid")}
            GROUP BY window_start, window_end, id, category)
        GROUP BY window_start, window_end, category""",
    "q5": f"""
        SELECT window_start, auction, bids FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY bids DESC, auction ASC) AS place FROM (
                SELECT window_start, window_end, auction, COUNT(*) AS bids
                FROM TABLE(HOP(TABLE bid, DESCRIPTOR(rt), {_SLIDE}, {_WINDOW}))
                GROUP BY window_start, window_end, auction)) WHERE place <= 1""",
    "q7": f"""
        SELECT window_start, auction, bidder, price FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY price DESC, auction ASC, bidder ASC) AS place
            FROM {_tumble("bid")}) WHERE place <= 1""",
    "q8": f"""
        SELECT p.window_start, p.id, p.name FROM (
            SELECT id, name, window_start, window_end FROM {_tumble("person")}
            GROUP BY id, name, window_start, window_end) p
        JOIN (SELECT seller, window_start, window_end FROM {_tumble("auction")}
            GROUP BY seller, window_start, window_end) a
        ON p.id = a.seller AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q11": f"""
        SELECT bidder, COUNT(*) AS bids, MIN(ts) AS session_start, MAX(ts) + {q.SESSION_GAP_MS} AS session_end
        FROM TABLE(SESSION(TABLE bid PARTITION BY bidder, DESCRIPTOR(rt), {_GAP}))
        GROUP BY bidder, window_start, window_end""",
    "q12": f"""
        SELECT bidder, window_start, COUNT(*) AS bids
        FROM TABLE(TUMBLE(TABLE bid_by_arrival, DESCRIPTOR(arrival), {_WINDOW}))
        GROUP BY bidder, window_start, window_end""",
}
_NEVER_ENDING = ("q12",)
_VIEWS = {
    "q4": f"""
        CREATE TEMPORARY VIEW valid_bid AS
        SELECT a.id, a.category, b.price, b.rt FROM auction a JOIN bid b ON a.id = b.auction
        AND b.rt BETWEEN a.rt AND a.rt + INTERVAL '{q.AUCTION_MS // 1000}' SECOND
        AND b.ts <= a.expires""",
    "q12": "CREATE TEMPORARY VIEW bid_by_arrival AS SELECT *, PROCTIME() AS arrival FROM bid",
}


def configuration(job: Job) -> dict[str, str]:
    chosen = {
        "parallelism.default": str(job.parallelism),
        "taskmanager.numberOfTaskSlots": str(job.parallelism),
        "pipeline.object-reuse": "true",
        "execution.runtime-mode": "STREAMING",
        "table.local-time-zone": "UTC",
        "taskmanager.memory.network.max": "256mb",
        "taskmanager.memory.managed.size": "1gb",
        "state.backend.type": job.options.get("state_backend", "hashmap"),
    }
    if job.options.get("state_backend") == "rocksdb":
        chosen["execution.checkpointing.incremental"] = "true"
    if job.checkpoint_interval_ms:
        chosen |= {
            "execution.checkpointing.interval": f"{job.checkpoint_interval_ms} ms",
            "execution.checkpointing.mode": "EXACTLY_ONCE",
            "execution.checkpointing.storage": "filesystem",
            "execution.checkpointing.dir": f"file://{job.checkpoints}",
        }
    return chosen | job.options.get("configuration", {})


def flink_configuration(job: Job, more: dict[str, str] | None = None) -> Configuration:
    settings = Configuration()
    settings.set_string("pipeline.jars", ";".join(f"file://{jar}" for jar in _jar_files()))
    for name, value in {**configuration(job), **(more or {})}.items():
        settings.set_string(name, value)
    return settings


def create_environment(job: Job, more: dict[str, str]) -> TableEnvironment:
    settings = EnvironmentSettings.new_instance().with_configuration(flink_configuration(job, more)).build()
    return TableEnvironment.create(settings)


def tables_of(job: Job) -> tuple[str, ...]:
    return q.QUERIES[job.query].tables


def create_source(env: TableEnvironment, job: Job, table: str, watermark: bool = True) -> None:
    columns = _COLUMNS[table].format(key="BIGINT" if job.key_type == "int" else "STRING")
    event_time = ", rt AS TO_TIMESTAMP_LTZ(ts, 3), WATERMARK FOR rt AS rt - INTERVAL '0.001' SECOND"
    env.execute_sql(f"""
        CREATE TEMPORARY TABLE {table} ({columns}{event_time if watermark else ""})
        WITH ({_connector(job, table)})""")


def _connector(job: Job, table: str) -> str:
    if job.topics:
        return f"""'connector' = 'kafka', 'topic' = '{job.topics[table]}', 'format' = 'json',
            'properties.bootstrap.servers' = '{job.servers}', 'scan.startup.mode' = 'earliest-offset',
            'scan.bounded.mode' = 'latest-offset'"""
    directory = link_files(job.files[table], Path(job.directory) / "input" / table)
    return f"'connector' = 'filesystem', 'path' = 'file://{directory}', 'format' = 'parquet'{_monitoring(job)}"


def _monitoring(job: Job) -> str:
    return ", 'source.monitor-interval' = '1 s'" if job.query in _NEVER_ENDING else ""


def create_sink(env: TableEnvironment, job: Job, times_as: str = "TIMESTAMP(3)") -> None:
    connector = "'connector' = 'blackhole'"
    if job.writes_files:
        connector = f"'connector' = 'filesystem', 'path' = 'file://{job.output}', 'format' = 'parquet'"
        connector += ", 'parquet.utc-timezone' = 'true'"
    columns = ", ".join(f"{name} {_type_of(job, name, times_as)}" for name in q.QUERIES[job.query].columns)
    env.execute_sql(f"CREATE TEMPORARY TABLE query_result ({columns}) WITH ({connector})")


def run(job: Job) -> dict[str, Any]:
    port = free_port()
    env = create_environment(job, rest_configuration(port))
    for table in tables_of(job):
        create_source(env, job, table, watermark=q.QUERIES[job.query].event_time)
    if job.query in _VIEWS:
        env.execute_sql(_VIEWS[job.query])
    create_sink(env, job)
    started = time.perf_counter()
    submitted = env.execute_sql(f"INSERT INTO query_result {_SQL[job.query]}")
    running = FlinkJob(port, str(submitted.get_job_client().get_job_id()))
    watch = CheckpointWatch(running)
    watch.start()
    facts: dict[str, Any] = {"configuration": configuration(job)}
    if job.query in _NEVER_ENDING:
        facts["seconds"] = _stop_after_last_window(submitted, running, job, started)
    else:
        submitted.wait()
    return {**facts, "checkpoints": watch.stop()}


def _stop_after_last_window(submitted: Any, running: FlinkJob, job: Job, started: float) -> float:
    """Flink drops windows of processing time that are open when the input ends, so the input is left open.

    The time that counts ends when the last row has been taken in; waiting for the clock is not work.
    """
    wait_for_rows(running, job.rows)
    seconds = time.perf_counter() - started
    window = q.WINDOW_MS / 1000
    time.sleep(window - time.time() % window + 2)
    running.stop(f"file://{job.directory}/savepoint")
    submitted.wait()
    return seconds


def _jar_files() -> list[Path]:
    return sorted((Path(sys.prefix) / "benchmark-jars").glob("*.jar"))


def _type_of(job: Job, column: str, times_as: str) -> str:
    if column == "window_start":
        return times_as
    if column == "auction" and job.key_type != "int" and job.query == "tumbling":
        return "STRING"
    if column == "price" and job.query == "q1":
        return "DOUBLE"
    return _TYPES.get(column, "BIGINT")


if __name__ == "__main__":
    serve(run, {"apache-flink": version("apache-flink")})
