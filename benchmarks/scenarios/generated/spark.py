"""Structured Streaming over its own generator of batches, with its HDFS-backed state store, Spark's default.

Batches last about a second, as the others' checkpoints are a second apart: how many rows that is, is tried first.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's documentation uses)
from pyspark.sql.streaming import StreamingQueryListener

from benchmarks.scenarios.generated import KEYS, PRICES, ROWS_PER_MS, SLOTS, asked_seconds, measure
from benchmarks.scenarios.spark_latency import session

_FIRST_BATCH = 1_000_000
_TRY_SECONDS = 12.0


class Rows(StreamingQueryListener):
    """Rows of finished batches."""

    def __init__(self) -> None:
        self.total = 0
        self.batches = 0
        self.some = threading.Event()

    def onQueryStarted(self, event: Any) -> None: ...  # noqa: N802 (Spark's name)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 (Spark's name)
        self.total += event.progress.numInputRows
        self.batches += 1
        self.some.set()

    def onQueryTerminated(self, event: Any) -> None: ...  # noqa: N802 (Spark's name)


@contextmanager
def running(spark: SparkSession, batch: int) -> Iterator[Rows]:
    """The query with batches of so many rows, when the first of them is done."""
    rows = Rows()
    spark.streams.addListener(rows)
    numbers = (
        spark.readStream.format("rate-micro-batch").options(rowsPerBatch=batch, numPartitions=SLOTS).load()
    ).select("value")
    bids = numbers.select(
        ((F.col("value") * 48271) % 2147483647 % KEYS).alias("auction"),
        ((F.col("value") * 69621) % 2147483647 % PRICES).alias("price"),
        F.timestamp_millis((F.col("value") / ROWS_PER_MS).cast("long")).alias("rt"),
    )
    windows = bids.withWatermark("rt", "1 second").groupBy(F.window("rt", "10 seconds"), "auction")
    counted = windows.agg(F.count("*").alias("bids"), F.sum("price").alias("total"))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:  # Spark may still be writing there
        writer = counted.writeStream.format("noop").outputMode("append").option("checkpointLocation", folder)
        query = writer.start()
        rows.some.wait(timeout=120)
        yield rows
        query.stop()
    spark.streams.removeListener(rows)


def main() -> None:
    seconds = asked_seconds()
    spark = session()
    batch = _FIRST_BATCH
    for _ in range(2):
        with running(spark, batch) as rows:
            before = rows.total
            time.sleep(_TRY_SECONDS)
            batch = max(_FIRST_BATCH, int(round((rows.total - before) / _TRY_SECONDS, -5)))
    with running(spark, batch) as rows:
        measure(lambda: rows.total, lambda: rows.batches, seconds)


if __name__ == "__main__":
    main()
