"""This project's engine as a worker: the same queries by `snapshot_engine.api`, run by its own JobMaster.

Slots are Spark tasks on an embedded Spark, as `streamingjob run` has them, or forked processes (option `launcher`),
which shows what Spark itself adds. A source's subtasks take its files in
turn, each the next one after the other.
"""

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.nexmark import queries as q
from benchmarks.worker import Job, serve
from snapshot_engine.api import Avg, Count, DataStream, Environment, Max, Session, Sliding, Sum, Tumbling, col, lit
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.kafka_source import KafkaSource
from snapshot_engine.connectors.parquet_files import ParquetSource
from snapshot_engine.connectors.parquet_sink import ParquetSink
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.runtime.embedded import run_to_end, slots_of
from snapshot_engine.runtime.forked import ForkedLauncher
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_result import Outcome
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.pieces import PieceOptions, StorageConfig

_WINDOW, _SLIDE, _GAP = f"{q.WINDOW_MS}ms", f"{q.SLIDE_MS}ms", f"{q.SESSION_GAP_MS}ms"
_AUCTION_BITS = 40
_LARGEST_AUCTION = 2**_AUCTION_BITS - 1


def tumbling(keyed_bid: DataStream) -> DataStream:
    windows = keyed_bid.with_watermark("ts").key_by("auction").window(Tumbling(_WINDOW))
    return windows.aggregate(bids=Count(), total=Sum("price")).uid("windows")


def q0(bid: DataStream) -> DataStream:
    return bid


def q1(bid: DataStream) -> DataStream:
    return bid.with_columns(price=col("price") * q.DOLLAR_TO_EURO)


def q2(bid: DataStream) -> DataStream:
    return bid.where(col("auction") % q.Q2_MODULUS == 0).select("auction", "price")


def q3(person: DataStream, auction: DataStream) -> DataStream:
    sellers = person.where(col("state").is_in(q.Q3_STATES)).select("id", "name", "city", "state")
    offers = auction.where(col("category") == q.Q3_CATEGORY).select("seller", auction=col("id"))
    joined = sellers.join(offers).on(id="seller").unbounded().uid("join")
    return joined.select("name", "city", "state", "auction")


def q4(auction: DataStream, bid: DataStream) -> DataStream:
    """The window results' own time is the last millisecond of their window, so they fall into the same one again."""
    sold = auction.with_watermark("ts").select("id", "category", "expires", "ts")
    offers = bid.with_watermark("ts").select("auction", "price", "ts")
    valid = sold.join(offers).on(id="auction").within(after=f"{q.AUCTION_MS}ms").uid("valid-bids")
    inside = valid.where(col("ts_right") <= col("expires"))
    highest = inside.key_by("id").window(Tumbling(_WINDOW)).aggregate(price=Max("price"), category=Max("category"))
    by_category = highest.uid("highest").key_by("category").window(Tumbling(_WINDOW))
    averages = by_category.aggregate(average=Avg("price")).uid("averages")
    return averages.select("window_start", "category", "average")


def q5(bid: DataStream) -> DataStream:
    """The winner is the largest of (bids, smaller auction first), packed into one number."""
    hops = bid.with_watermark("ts").key_by("auction").window(Sliding(_WINDOW, _SLIDE))
    counted = hops.aggregate(bids=Count()).uid("counts")
    score = col("bids").cast(int) * 2**_AUCTION_BITS + (_LARGEST_AUCTION - col("auction"))
    # Hopping windows end 2 s apart, so each falls alone into a tumbling window of 2 s.
    scored = counted.with_columns(score=score, end=col("window_end").dt.epoch("ms"))
    best = scored.key_by("end").window(Tumbling(_SLIDE)).aggregate(best=Max("score")).uid("winners")
    return best.select(
        window_start=col("end") - q.WINDOW_MS,
        auction=_LARGEST_AUCTION - col("best") % 2**_AUCTION_BITS,
        bids=col("best") // 2**_AUCTION_BITS,
    )


def q7(bid: DataStream) -> DataStream:
    """Each batch sends on only the highest bids of each window; those few are compared one by one."""
    few = bid.with_watermark("ts").map_in_arrow(_highest_of_batch).with_columns(all=lit(0))
    best = few.key_by("all").window(Tumbling(_WINDOW)).reduce(_better).uid("winner")
    return best.select("auction", "bidder", "price", window_start=col("ts") - col("ts") % q.WINDOW_MS)


def _highest_of_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch spans few windows, mostly one."""
    times = pc.min_max(batch.column("ts")).as_py()
    if batch.num_rows == 0 or times["min"] // q.WINDOW_MS == times["max"] // q.WINDOW_MS:
        return _highest(batch)
    windows = pc.divide(batch.column("ts"), q.WINDOW_MS)
    kept = [_highest(batch.filter(pc.equal(windows, window))) for window in pc.unique(windows)]
    return pa.Table.from_batches(kept, batch.schema).combine_chunks().to_batches()[0]


def _highest(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch.column("price"), pc.max(batch.column("price"))))


def _better(old: Any, new: Any) -> Any:
    return min(old, new, key=lambda row: (-row.price, row.auction, row.bidder))


def q8(person: DataStream, auction: DataStream) -> DataStream:
    """Sales are counted first, so that a person joins one row per window however much was sold."""
    joined = person.with_watermark("ts").select("id", "name", "ts")
    sales = auction.with_watermark("ts").key_by("seller").window(Tumbling(_WINDOW))
    sold = sales.aggregate(sales=Count()).uid("sales").select("seller", "window_end")
    both = joined.join(sold).on(id="seller").window(Tumbling(_WINDOW)).uid("join")
    return both.select("window_start", "id", "name")


def q11(bid: DataStream) -> DataStream:
    sessions = bid.with_watermark("ts").key_by("bidder").window(Session(_GAP))
    counted = sessions.aggregate(bids=Count()).uid("sessions")
    return counted.select("bidder", "bids", session_start=col("window_start"), session_end=col("window_end"))


def q12(bid: DataStream) -> DataStream:
    """Time of arrival as event time: a window closes as soon as rows of the next one arrive."""
    arrived = bid.map_in_arrow(_with_arrival, schema="bidder bigint, arrival bigint").with_watermark("arrival")
    counted = arrived.key_by("bidder").window(Tumbling(_WINDOW)).aggregate(bids=Count()).uid("counts")
    return counted.select("bidder", "window_start", "bids")


def _with_arrival(batch: pa.RecordBatch) -> pa.RecordBatch:
    now = pa.repeat(pa.scalar(time.time_ns() // 1_000_000, pa.int64()), batch.num_rows)
    return pa.record_batch({"bidder": batch.column("bidder"), "arrival": now})


_QUERIES: dict[str, Callable[..., DataStream]] = {
    function.__name__: function for function in (tumbling, q0, q1, q2, q3, q4, q5, q7, q8, q11, q12)
}
# What a query does not look at is not read.
_COLUMNS = {
    "tumbling": {"keyed_bid": ("auction", "price", "ts")},
    "q2": {"bid": ("auction", "price")},
    "q3": {"person": ("id", "name", "city", "state"), "auction": ("id", "seller", "category")},
    "q4": {"auction": ("id", "category", "expires", "ts"), "bid": ("auction", "price", "ts")},
    "q5": {"bid": ("auction", "ts")},
    "q7": {"bid": ("auction", "bidder", "price", "ts")},
    "q8": {"person": ("id", "name", "ts"), "auction": ("seller", "ts")},
    "q11": {"bid": ("bidder", "ts")},
    "q12": {"bid": ("bidder",)},
}


class CheckpointTimes(JobEvents):
    """Durations of the completed checkpoints, but for the one of final states that each bounded job ends with."""

    def __init__(self) -> None:
        self.durations: list[float] = []
        self.aborted = 0

    def checkpoint_completed(self, _manifest: Any, outcome: Any, _path: Any, _uri: str, _written: int) -> None:
        self.durations.append(outcome.completed_at - outcome.triggered_at)

    def checkpoint_aborted(self, _action: Any) -> None:
        self.aborted += 1

    def facts(self) -> dict[str, Any]:
        milliseconds = [round(seconds * 1000, 1) for seconds in self.durations[:-1]]
        return {"completed": len(milliseconds), "failed": self.aborted, "duration_ms": milliseconds}


class Launchers:
    """One launcher for all jobs of this worker: starting Spark is no part of a query's time."""

    def __init__(self) -> None:
        self._open: dict[str, SlotLauncher] = {}

    def for_job(self, kind: str, slots: int) -> SlotLauncher:
        if kind == "forked":
            return ForkedLauncher()
        if kind not in self._open:
            from snapshot_engine.runtime.spark import SparkLauncher, embedded_context

            self._open[kind] = SparkLauncher(embedded_context("benchmark", max(slots, 8), {}))
        return self._open[kind]


_launchers = Launchers()


def run(job: Job) -> dict[str, Any]:
    options = PlanOptions(job="benchmark", parallelism=job.parallelism)
    graph = ExecutionGraph(plan_pipeline(lambda env: build(env, job), None, job.parallelism, options))
    checkpoints = CheckpointTimes()
    launcher = _launchers.for_job(job.options.get("launcher", "spark"), slots_of(graph))
    result = run_to_end(job_settings(job), graph, launcher, checkpoints)
    if result.outcome is not Outcome.FINISHED:
        raise SystemExit(f"the job ended as {result.outcome.value}: {result.message}\n{result.history}")
    return {"configuration": configuration(job), "checkpoints": checkpoints.facts()}


def build(env: Environment, job: Job) -> None:
    tables = [env.from_source(_source(job, table), uid=table) for table in q.QUERIES[job.query].tables]
    sink = ParquetSink(job.output) if job.writes_files else DiscardSink()
    _QUERIES[job.query](*tables).sink_to(sink, uid="out")


def _source(job: Job, table: str) -> ParquetSource | KafkaSource:
    source = ParquetSource(job.files[table])
    wanted = _COLUMNS.get(job.query, {}).get(table, source.schema.names)
    schema = pa.schema([source.schema.field(name) for name in wanted])
    if job.topics:
        return KafkaSource(job.servers, job.topics[table], schema, bounded=True)
    return ParquetSource(job.files[table], schema)


def configuration(job: Job) -> dict[str, Any]:
    return {
        "launcher": job.options.get("launcher", "spark"),
        "parallelism": job.parallelism,
        "checkpoint interval (ms)": job.checkpoint_interval_ms or "none",
        "incremental": job.options.get("incremental", True),
    }


def job_settings(job: Job) -> JobSettings:
    interval = job.checkpoint_interval_ms / 1000 if job.checkpoint_interval_ms else None
    return JobSettings(
        name="benchmark",
        namespace="benchmarks",
        uid="benchmark",
        storage=StorageConfig(job.checkpoints, Layout("benchmarks", "benchmark"), {}, PieceOptions()),
        checkpoint=CheckpointConfig(interval=interval),
        incremental=job.options.get("incremental", True),
    )


if __name__ == "__main__":
    serve(run, {"streamingjob": version("streamingjob"), "pyspark": version("pyspark")})
