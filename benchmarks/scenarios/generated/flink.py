"""Flink SQL over a sequence of numbers: its own generator would keep all of a sequence in memory."""

import tempfile
import time

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource
from pyflink.table import DataTypes, Schema, StreamTableEnvironment

from benchmarks.peers.flink_rest import FlinkJob, free_port, rest_configuration
from benchmarks.scenarios.generated import KEYS, PRICES, ROWS_PER_MS, SLOTS, asked_seconds, measure

_ROWS = 4_000_000_000
"""More than there is time for. Each reader has a share of them, one after the other."""
_SHARE = _ROWS // SLOTS


def start(folder: str, port: int) -> FlinkJob:
    settings = Configuration()
    chosen = {
        "parallelism.default": str(SLOTS),
        "pipeline.object-reuse": "true",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.mode": "EXACTLY_ONCE",
        "execution.checkpointing.dir": f"file://{folder}",
        "execution.checkpointing.storage": "filesystem",
        "table.local-time-zone": "UTC",
    }
    for name, value in {**chosen, **rest_configuration(port)}.items():
        settings.set_string(name, value)
    streams = StreamExecutionEnvironment.get_execution_environment(settings)
    numbers = streams.from_source(
        NumberSequenceSource(0, _ROWS - 1), WatermarkStrategy.no_watermarks(), "numbers", Types.LONG()
    )
    tables = StreamTableEnvironment.create(streams)
    milliseconds = f"MOD(f0, {_SHARE}) * {SLOTS} / {ROWS_PER_MS}"
    schema = (
        Schema.new_builder()
        .column("f0", DataTypes.BIGINT())
        .column_by_expression("auction", f"MOD(MOD(f0 * 48271, 2147483647), {KEYS})")
        .column_by_expression("price", f"MOD(MOD(f0 * 69621, 2147483647), {PRICES})")
        .column_by_expression("rt", f"TO_TIMESTAMP_LTZ({milliseconds}, 3)")
        .watermark("rt", "rt - INTERVAL '1' SECOND")
        .build()
    )
    tables.create_temporary_view("bid", numbers, schema)
    tables.execute_sql("CREATE TEMPORARY TABLE nowhere (a BIGINT, b BIGINT, t BIGINT) WITH ('connector' = 'blackhole')")
    submitted = tables.execute_sql("""
        INSERT INTO nowhere SELECT auction, COUNT(*), SUM(price)
        FROM TABLE(TUMBLE(TABLE bid, DESCRIPTOR(rt), INTERVAL '10' SECOND))
        GROUP BY auction, window_start, window_end""")
    return FlinkJob(port, str(submitted.get_job_client().get_job_id()))


def main() -> None:
    seconds = asked_seconds()
    with tempfile.TemporaryDirectory() as folder:
        job = start(folder, free_port())
        while job.watermark(1) is None:
            time.sleep(0.2)
        measure(lambda: (job.watermark(1) or 0) * ROWS_PER_MS, job.completed_checkpoints, seconds)
        job.cancel()


if __name__ == "__main__":
    main()
