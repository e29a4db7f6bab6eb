"""Shopping sessions by city and customer: what was ordered until twenty seconds passed without an order.

Shows records and columns side by side: a `map` over records with a dataclass as its schema, column
expressions, event-time sessions, and what to do with rows that come too late.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from snapshot_engine.api import Avg, Count, Environment, Session, Sum, col
from snapshot_engine.connectors.generated_columns import Choice, EventTimes, UniformFloat, UniformInt
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.jsonl_sink import JsonLinesSink
from snapshot_engine.connectors.parquet_sink import ParquetSink

CITIES = ["Berlin", "Hamburg", "Leipzig", "München", "Köln"]


@dataclass
class Order:
    city: str
    customer: int
    amount: float
    ts: datetime


def rounded(order) -> Order:
    return Order(order.city, order.customer, round(order.amount, 2), order.ts)


def orders(rows: int) -> GeneratorSource:
    """A thousand orders per second of event time, up to half a minute out of order: some come too late."""
    columns = {
        "city": Choice(CITIES, seed=1),
        "customer": UniformInt(0, 4_000, seed=2),
        "amount": UniformFloat(5, 200, seed=3),
        "ts": EventTimes(per_second=1_000, start_ms=1_700_000_000_000, jitter_ms=30_000),
    }
    return GeneratorSource(columns, rate=20_000, count=rows)


def pipeline(env: Environment, out: str = "out/orders-by-city", rows: int = 200_000) -> None:
    sessions = (
        env.from_source(orders(rows), name="orders", uid="orders")
        .map(rounded)
        .where(col("amount") >= 10)
        .with_watermark("ts", delay="5s", idle_timeout="30s")
        .key_by("city", "customer")
        .window(Session("20s"))
        .late_output("late")
        .aggregate(orders=Count(), revenue=Sum("amount"), average=Avg("amount"))
        .uid("sessions")
    )
    sessions.sink_to(ParquetSink(f"{out}/sessions"), uid="sessions-out")
    sessions.side_output("late").sink_to(JsonLinesSink(f"{out}/late"), uid="late-out")
