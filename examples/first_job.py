"""The first job: how many bids each auction got in every ten seconds, and the highest of them."""

from __future__ import annotations

from snapshot_engine.api import Count, Environment, Max, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.parquet_sink import ParquetSink


def pipeline(env: Environment, out: str = "out/first-job", rows: int = 5_000_000) -> None:
    source = bids(keys=1_000, events_per_second=50_000, rate=250_000, count=rows)
    (
        env.from_source(source, name="bids", uid="bids")
        .with_watermark("ts", delay="1s")
        .key_by("auction")
        .window(Tumbling("10s"))
        .aggregate(bids=Count(), highest=Max("price"))
        .uid("bids-per-auction")
        .sink_to(ParquetSink(out), uid="out")
    )
