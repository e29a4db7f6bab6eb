"""The bids of an auction: the stream that tests, examples and benchmarks have in common."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from snapshot_engine.connectors.generated_columns import below, milliseconds, mix
from snapshot_engine.connectors.generator import GeneratorSource, Offsets
from snapshot_engine.kernels.bids import fill_bids, fill_times

SCHEMA = pa.schema({"auction": pa.int64(), "bidder": pa.int64(), "price": pa.int64(), "ts": pa.timestamp("ms")})


@dataclass(frozen=True, slots=True)
class Bids:
    """A batch of bids from row numbers. Compiled, since it shares its core with what is to be measured."""

    keys: int
    bidders: int
    prices: int
    step_ms: float
    start_ms: int
    jitter_ms: int
    seed: int

    def __call__(self, offsets: Offsets) -> pa.RecordBatch:
        auction, bidder, price, times = (np.empty(len(offsets), np.int64) for _ in range(4))
        fill_bids(offsets, self.seed, self.keys, self.bidders, self.prices, auction, bidder, price)
        fill_times(offsets, self.step_ms, self.start_ms, times)
        if self.jitter_ms:
            times -= below(mix(offsets, self.seed), self.jitter_ms + 1)
        columns = [pa.array(auction), pa.array(bidder), pa.array(price), milliseconds(times)]
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def bids(
    *,
    keys: int = 100_000,
    bidders: int = 10_000,
    prices: int = 10_000,
    events_per_second: float = 1_000_000.0,
    start_ms: int = 0,
    jitter_ms: int = 0,
    seed: int = 0,
    rate: float | None = None,
    count: int | None = None,
    splits: int = 8,
) -> GeneratorSource:
    """Columns auction (uniform in [0, keys)), bidder, price and ts, as in the Nexmark benchmark.

    `events_per_second` is the pace of event time over all splits; `rate` is that of the clock on the wall.
    With `jitter_ms`, each row is up to that much earlier than its place says.
    """
    if not all(0 < bound < 2**32 for bound in (keys, bidders, prices)):
        raise ValueError(f"keys={keys}, bidders={bidders}, prices={prices}: each must be in 1 … 2^32 - 1")
    make = Bids(keys, bidders, prices, 1000.0 / events_per_second, start_ms, jitter_ms, seed)
    return GeneratorSource(make, rate=rate, count=count, splits=splits)
