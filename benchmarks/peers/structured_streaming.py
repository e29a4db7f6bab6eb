"""Spark Structured Streaming: micro-batches from the same Parquet files, as large as the harness finds best.

Every micro-batch is a checkpoint. The state store is the HDFS-backed one (Spark's default) or RocksDB with
changelog checkpoints, as Spark's documentation recommends for large state. Windows of a stream without end
close only when a later event comes: a last file holds one row in the far future.
"""

import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's documentation uses)

from benchmarks.nexmark import queries as q
from benchmarks.worker import Job, link_files, serve

_SCHEMAS = {
    "person": "id BIGINT, name STRING, city STRING, state STRING, ts BIGINT",
    "auction": "id BIGINT, seller BIGINT, category BIGINT, expires BIGINT, ts BIGINT",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, ts BIGINT",
    "keyed_bid": "auction {key}, bidder BIGINT, price BIGINT, ts BIGINT",
}
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state."
_STORES = {
    "hdfs": {"spark.sql.streaming.stateStore.providerClass": _PROVIDERS + "HDFSBackedStateStoreProvider"},
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": _PROVIDERS + "RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        # Counting rows looks each key up once more when it is written; Spark's guide advises against it.
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    },
}
_WINDOW = f"{q.WINDOW_MS} milliseconds"
_SLIDE = f"{q.SLIDE_MS} milliseconds"
_SPLITS_PER_CORE = 3
_SMALLEST_SPLIT, _LARGEST_SPLIT = 4 << 20, 128 << 20  # the larger one is Spark's default


def timed(table: DataFrame) -> DataFrame:
    return table.withColumn("rt", F.timestamp_millis("ts")).withWatermark("rt", "0 seconds")


def _start(window: str = "window") -> Column:
    return F.unix_millis(F.col(f"{window}.start")).alias("window_start")


def tumbling(keyed_bid: DataFrame) -> DataFrame:
    counted = timed(keyed_bid).groupBy(F.window("rt", _WINDOW), "auction")
    return counted.agg(F.count("*").alias("bids"), F.sum("price").alias("total")).select(
        _start(), "auction", "bids", "total"
    )


def q0(bid: DataFrame) -> DataFrame:
    return bid.select("auction", "bidder", "price", "channel", "ts")


def q1(bid: DataFrame) -> DataFrame:
    euros = (F.lit(q.DOLLAR_TO_EURO) * F.col("price")).alias("price")
    return bid.select("auction", "bidder", euros, "channel", "ts")


def q2(bid: DataFrame) -> DataFrame:
    return bid.where(F.col("auction") % q.Q2_MODULUS == 0).select("auction", "price")


def q3(person: DataFrame, auction: DataFrame) -> DataFrame:
    sellers = person.where(F.col("state").isin(*q.Q3_STATES)).withColumnRenamed("id", "person")
    offers = auction.where(F.col("category") == q.Q3_CATEGORY).withColumnRenamed("id", "auction")
    joined = sellers.join(offers, F.col("person") == F.col("seller"))
    return joined.select("name", "city", "state", "auction")


def q4(auction: DataFrame, bid: DataFrame) -> DataFrame:
    offers = auction.withColumn("opened", F.timestamp_millis("ts")).withWatermark("opened", "0 seconds")
    offers = offers.select("id", "category", "expires", "opened")
    bids = timed(bid).select("auction", "price", F.col("ts").alias("bid_ts"), "rt")
    valid = offers.join(
        bids,
        F.expr(f"""id = auction AND rt >= opened
            AND rt <= opened + interval {q.AUCTION_MS // 1000} seconds AND bid_ts <= expires"""),
    )
    highest = valid.groupBy(F.window("rt", _WINDOW), "id", "category").agg(F.max("price").alias("price"))
    averages = highest.groupBy("window", "category").agg(F.avg("price").alias("average"))
    return averages.select(_start(), "category", "average")


def q5(bid: DataFrame) -> DataFrame:
    counted = timed(bid).groupBy(F.window("rt", _WINDOW, _SLIDE), "auction").agg(F.count("*").alias("bids"))
    order = F.struct("bids", (-F.col("auction")).alias("smaller_first"))
    winners = counted.groupBy("window").agg(F.max(order).alias("winner"))
    return winners.select(_start(), (-F.col("winner.smaller_first")).alias("auction"), F.col("winner.bids"))


def q7(bid: DataFrame) -> DataFrame:
    order = F.struct("price", (-F.col("auction")).alias("auction"), (-F.col("bidder")).alias("bidder"))
    winners = timed(bid).groupBy(F.window("rt", _WINDOW)).agg(F.max(order).alias("winner"))
    auction, bidder = (-F.col("winner.auction")).alias("auction"), (-F.col("winner.bidder")).alias("bidder")
    return winners.select(_start(), auction, bidder, F.col("winner.price"))


def q8(person: DataFrame, auction: DataFrame) -> DataFrame:
    joined = timed(person).select("id", "name", F.window("rt", _WINDOW).alias("joined_in"))
    sold = timed(auction).select("seller", F.window("rt", _WINDOW).alias("sold_in"))
    both = joined.join(sold, F.expr("id = seller AND joined_in = sold_in"))
    return both.groupBy("joined_in", "id", "name").count().select(_start("joined_in"), "id", "name")


def q11(bid: DataFrame) -> DataFrame:
    sessions = timed(bid).groupBy(F.session_window("rt", f"{q.SESSION_GAP_MS} milliseconds"), "bidder")
    start = F.unix_millis("session_window.start").alias("session_start")
    end = F.unix_millis("session_window.end").alias("session_end")
    return sessions.agg(F.count("*").alias("bids")).select("bidder", "bids", start, end)


def q12(bid: DataFrame) -> DataFrame:
    arrived = bid.withColumn("arrival", F.current_timestamp()).withWatermark("arrival", "0 seconds")
    counted = arrived.groupBy(F.window("arrival", _WINDOW), "bidder").agg(F.count("*").alias("bids"))
    return counted.select("bidder", _start(), "bids")


_QUERIES = {function.__name__: function for function in (tumbling, q0, q1, q2, q3, q4, q5, q7, q8, q11, q12)}


def configuration(job: Job) -> dict[str, str]:
    chosen = {
        "spark.master": f"local[{job.parallelism}]",
        "spark.driver.memory": "6g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(job.parallelism),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.files.maxPartitionBytes": str(_split_bytes(job)),
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.streaming.metricsEnabled": "false",
    }
    return chosen | _STORES[job.options["state_store"]] | job.options.get("configuration", {})


def session_for(job: Job) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName("benchmark")
    for name, value in configuration(job).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def _split_bytes(job: Job) -> int:
    """A few splits of a batch for each core: all of them have work, and starting tasks is not most of it."""
    files = [file for table in job.files.values() for file in table]
    batch = sum(map(os.path.getsize, files)) * min(1.0, files_per_batch(job) * len(job.files) / len(files))
    return int(min(_LARGEST_SPLIT, max(_SMALLEST_SPLIT, batch / (_SPLITS_PER_CORE * job.parallelism))))


def read(session: SparkSession, job: Job, table: str) -> DataFrame:
    files = list(job.files[table])
    if q.QUERIES[job.query].event_time:
        files.append(job.closing[table])
    directory = link_files(files, Path(job.directory) / "input" / table)
    schema = _SCHEMAS[table].format(key="BIGINT" if job.key_type == "int" else "STRING")
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch(job))
    return reader.parquet(directory)


def files_per_batch(job: Job) -> int:
    """A million rows until the harness has seen how quick the engine is: see `benchmarks.batching`."""
    slices = len(next(iter(job.files.values())))
    rows = job.options.get("batch_rows", 1_000_000)
    return max(1, round(rows * slices / job.rows))


def run(job: Job) -> dict[str, Any]:
    return run_query(job, _QUERIES[job.query])


def run_query(job: Job, build: Callable[..., DataFrame]) -> dict[str, Any]:
    session = session_for(job)
    tables = [read(session, job, table) for table in q.QUERIES[job.query].tables]
    result = build(*tables)
    mode = "update" if job.query == "q12" else "append"
    writer = result.writeStream.outputMode(mode).option("checkpointLocation", job.checkpoints)
    stream = _with_sink(writer, job).trigger(availableNow=True).start()
    stream.awaitTermination()
    return {"configuration": configuration(job), "checkpoints": _checkpoint_facts(stream.recentProgress)}


def _checkpoint_facts(batches: list[Any]) -> dict[str, Any]:
    """What writing logs and committing state cost, of batches that had rows."""
    durations = [batch.durationMs for batch in batches if batch.numInputRows]
    commits = [operator.commitTimeMs for batch in batches for operator in batch.stateOperators]
    return {
        "completed": len(batches),
        "batch_ms": [batch.batchDuration for batch in batches],
        "batch_rows": [batch.numInputRows for batch in batches],
        "log_ms": [times.get("walCommit", 0) + times.get("commitOffsets", 0) for times in durations],
        "state_commit_task_ms": commits,
        "state_memory_bytes": max((sum(o.memoryUsedBytes for o in b.stateOperators) for b in batches), default=0),
    }


def _with_sink(writer: Any, job: Job) -> Any:
    if not job.writes_files:
        return writer.format("noop")
    if job.query == "q12":
        # Updates cannot go into Spark's file sink; each batch is written on its own.
        return writer.foreachBatch(lambda batch, _: batch.write.mode("append").parquet(job.output))
    return writer.format("parquet").option("path", job.output)


if __name__ == "__main__":
    serve(run, {"pyspark": version("pyspark")})
