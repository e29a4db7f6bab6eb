"""Structured Streaming over its own generator of batches, with its HDFS-backed state store, Spark's default."""

import tempfile
import threading
from typing import Any

from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's documentation uses)
from pyspark.sql.streaming import StreamingQueryListener

from benchmarks.scenarios.generated import KEYS, PRICES, ROWS_PER_MS, SLOTS, asked_seconds, measure
from benchmarks.scenarios.spark_latency import session

_BATCH = 1_000_000


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


def main() -> None:
    seconds = asked_seconds()
    spark = session()
    rows = Rows()
    spark.streams.addListener(rows)
    numbers = (
        spark.readStream.format("rate-micro-batch").options(rowsPerBatch=_BATCH, numPartitions=SLOTS).load()
    ).select("value")
    bids = numbers.select(
        ((F.col("value") * 48271) % 2147483647 % KEYS).alias("auction"),
        ((F.col("value") * 69621) % 2147483647 % PRICES).alias("price"),
        F.timestamp_millis((F.col("value") / ROWS_PER_MS).cast("long")).alias("rt"),
    )
    windows = bids.withWatermark("rt", "1 second").groupBy(F.window("rt", "10 seconds"), "auction")
    counted = windows.agg(F.count("*").alias("bids"), F.sum("price").alias("total"))
    with tempfile.TemporaryDirectory() as folder:
        writer = counted.writeStream.format("noop").outputMode("append").option("checkpointLocation", folder)
        query = writer.start()
        rows.some.wait(timeout=120)
        measure(lambda: rows.total, lambda: rows.batches, seconds)
        query.stop()


if __name__ == "__main__":
    main()
