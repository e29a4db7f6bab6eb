"""Latency of Structured Streaming at half load: a count kept by key, batches as quickly as they follow each other.

    benchmarks/.envs/spark/bin/python -m benchmarks.scenarios.spark_latency

A row is out when its batch is; the rate source makes rows evenly in time, so the ages of a batch's rows lie evenly
between those of its oldest and its newest. Half load is half of what the same query takes of a source with more than
it can read.
"""

import argparse
import os
import sys
import tempfile
import time
from statistics import quantiles
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's documentation uses)

from benchmarks.scenarios.figures import keep_figures

KEYS = 1_000
_POINTS = 50
_MOST_ROWS = 4_000_000


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    builder = SparkSession.builder.appName("latency")
    for name, value in settings.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def run(spark: SparkSession, source: dict[str, Any], seconds: float) -> list[tuple[float, int]]:
    """(when it was out, its newest row's number) of each batch."""
    batches: list[tuple[float, int]] = []

    def out(batch: Any, _number: int) -> None:
        newest = batch.agg(F.max("newest")).first()[0]
        if newest is not None:
            batches.append((time.time(), newest))

    name = "rate-micro-batch" if "rowsPerBatch" in source else "rate"
    rows = spark.readStream.format(name).options(**source).load()
    counted = rows.groupBy((F.col("value") % KEYS).alias("k")).agg(
        F.count("*").alias("rows"), F.max("value").alias("newest")
    )
    with tempfile.TemporaryDirectory() as folder:
        stream = counted.writeStream.outputMode("update").option("checkpointLocation", folder).foreachBatch(out).start()
        time.sleep(seconds)
        stream.stop()
    return batches


def ages_of(batches: list[tuple[float, int]], rate: float) -> list[float]:
    """Milliseconds, evenly spread over each batch's rows. Row n was made n / rate after the first; the least age that
    any batch's newest row had is taken for none, since when the source began is not known."""
    newest_ages = [1000 * (out - newest / rate) for out, newest in batches]
    least = min(newest_ages)
    ages = []
    for (_, before), (_, newest), age in zip(batches, batches[1:], newest_ages[1:], strict=False):
        oldest = 1000 * (newest - before) / rate
        ages += [age - least + oldest * point / _POINTS for point in range(_POINTS)]
    return ages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=18.0)
    chosen = parser.parse_args()
    spark = session()
    flat_out = run(spark, {"rowsPerBatch": _MOST_ROWS, "numPartitions": 2}, chosen.seconds)
    (first, few), (last, many) = flat_out[len(flat_out) // 3], flat_out[-1]
    rate = int((many - few) / (last - first) / 2)
    batches = run(spark, {"rowsPerSecond": rate, "numPartitions": 2}, chosen.seconds)
    ages = ages_of(batches[len(batches) // 3 :], rate)
    cuts = quantiles(ages, n=100)
    row = {
        "engine": "spark-hdfs-store",
        "query": "count by key, half load",
        "rows_per_s": rate,
        "median_ms": cuts[49],
        "percentile_99_ms": cuts[98],
        "highest_ms": max(ages),
        "batches": len(batches),
    }
    print(row)
    keep_figures("spark_latency", [row])


if __name__ == "__main__":
    main()
