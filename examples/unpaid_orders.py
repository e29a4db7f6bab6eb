"""A join: orders with the payments that came in the same minute, and what is still unpaid by city."""

from __future__ import annotations

from snapshot_engine.api import Count, Environment, Sum, Tumbling, col
from snapshot_engine.connectors.generated_columns import Choice, EventTimes, Sequence64, UniformInt
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.parquet_sink import ParquetSink

START_MS = 1_700_000_000_000


def orders(rows: int) -> GeneratorSource:
    columns = {
        "order_id": Sequence64(),
        "city": Choice(["Berlin", "Hamburg", "Leipzig"], seed=1),
        "amount": UniformInt(5, 200, seed=2),
        "ordered_at": EventTimes(per_second=1_000, start_ms=START_MS),
    }
    return GeneratorSource(columns, rate=50_000, count=rows)


def payments(rows: int) -> GeneratorSource:
    columns = {
        "order": Sequence64(),
        "method": Choice(["card", "invoice", "cash"], seed=3),
        "paid_at": EventTimes(per_second=1_000, start_ms=START_MS + 500, jitter_ms=500),
    }
    return GeneratorSource(columns, rate=50_000, count=rows)


def pipeline(env: Environment, out: str = "out/unpaid-orders", rows: int = 500_000) -> None:
    ordered = env.from_source(orders(rows), name="orders", uid="orders").with_watermark("ordered_at", delay="1s")
    paid = (
        env.from_source(payments(rows), name="payments", uid="payments")
        .where(col("order") % 10 != 0)  # one in ten is never paid
        .with_watermark("paid_at", delay="1s")
    )
    (
        ordered.join(paid, how="left")
        .on(order_id="order")
        .window(Tumbling("1m"))
        .uid("orders-with-payments")
        .where(col("method").is_null())
        .key_by("city")
        .window(Tumbling("1m"))
        .aggregate(unpaid=Count(), amount=Sum("amount"))
        .uid("unpaid-by-city")
        .sink_to(ParquetSink(out), uid="out")
    )
