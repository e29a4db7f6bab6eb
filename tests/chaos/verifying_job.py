"""The job that chaos is let loose on: every row is accounted for, in its order, in the committed output.

Row number o has key o mod KEYS and sequence number o div KEYS. A keyed function fails the job at once if a key's
numbers do not come one after the other; windows sum them up; the sink commits in two phases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from snapshot_engine.api import Count, Environment, KeyedProcessFunction, Max, Min, Sum, Tumbling, ValueState
from snapshot_engine.connectors.failing import DeliberateFailure, Fuse
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.parquet_sink import ParquetSink
from snapshot_engine.connectors.protocols import Sink

KEYS = 64
WINDOW_MS = 1000
ROWS_PER_MS = 20
SPLITS = 8  # KEYS is a multiple of it, so that all rows of a key lie in one split, in order


def rows(count: int, rate: float, first_key: int = 0) -> GeneratorSource:
    return GeneratorSource(
        {
            "key": lambda o: (first_key + o % KEYS).astype(np.int64),
            "seq": lambda o: (o // KEYS).astype(np.int64),
            "ts": lambda o: (o // ROWS_PER_MS).astype(np.int64),
        },
        count=count,
        rate=rate,
        splits=SPLITS,
    )


@dataclass
class Checked:
    key: int
    seq: int
    ts: int


class InOrder(KeyedProcessFunction):
    """Lets rows through, if each key's sequence numbers follow each other without a gap and without a repetition."""

    def __init__(self, strict: bool, fuses: Mapping[str, Fuse]) -> None:
        self.strict = strict
        self.fuses = fuses

    def open(self, context) -> None:
        self.last = context.state(ValueState("last", int, default=-1))
        self.spoilt = context.state(ValueState("spoilt", int, default=0))
        if "restore" in self.fuses and context.attempt[1] > 1:
            self.fuses["restore"].blow("in a restore")

    def process(self, row, context) -> Iterable[Checked]:
        last = self.last.value()
        if self.strict and row.seq != last + 1:
            raise AssertionError(f"key {row.key}: {row.seq} came after {last}")
        self.last.update(max(last, row.seq))
        if "write" in self.fuses and row.seq % 500 == 499:
            self.spoil()
        yield Checked(row.key, row.seq, row.ts)

    def spoil(self) -> None:
        """Keep what no snapshot can hold: it is found out in the background, long after the barrier."""
        try:
            self.fuses["write"].blow("in the writing of a snapshot")
        except DeliberateFailure:
            self.spoilt.update(object())


def pipeline(
    env: Environment,
    out: str,
    count: int,
    rate: float,
    strict: bool = True,
    fuses: Mapping[str, Fuse] | None = None,
    sink: Sink | None = None,
    short: int = 0,
) -> None:
    """`fuses` blow in `map`, in `restore` and in the `write` of a snapshot. `short`: rows of a second source,
    which ends before the first one.
    """
    known = fuses or {}

    def same(row):
        if "map" in known and row.seq == count // KEYS // 2:
            known["map"].blow("in map")
        return Checked(row.key, row.seq, row.ts)

    def timed(source: GeneratorSource, uid: str):
        """Each source has its own watermark: after a restart one may be ahead of the other."""
        return env.from_source(source, uid=uid).map(same, schema=Checked).with_watermark("ts", delay="100ms")

    stream = timed(rows(count, rate), "rows")
    if short:
        stream = stream.union(timed(rows(short, rate, first_key=KEYS), "short"))
    (
        stream.key_by("key")
        .process(InOrder(strict, known), schema=Checked)
        .uid("in-order")
        .key_by("key")
        .window(Tumbling(f"{WINDOW_MS}ms"))
        .aggregate(rows=Count(), total=Sum("seq"), first=Min("seq"), last=Max("seq"))
        .uid("windows")
        .sink_to(sink or ParquetSink(out), uid="out")
    )


def expected(count: int, first_key: int = 0) -> pa.Table:
    offsets = np.arange(count)
    table = pa.table(
        {
            "key": first_key + offsets % KEYS,
            "seq": offsets // KEYS,
            "window": offsets // ROWS_PER_MS // WINDOW_MS * WINDOW_MS,
        }
    )
    wanted = [("seq", "count"), ("seq", "sum"), ("seq", "min"), ("seq", "max")]
    groups = table.group_by(["key", "window"]).aggregate(wanted)
    return _sorted(groups.rename_columns(["key", "window", "rows", "total", "first", "last"]))


def committed(out: Path) -> pa.Table:
    table = pq.read_table(out)
    start = pc.cast(pc.cast(table["window_start"], pa.timestamp("ms")), pa.int64())
    return _sorted(table.append_column("window", start).select(["key", "window", "rows", "total", "first", "last"]))


def together(*tables: pa.Table) -> pa.Table:
    return _sorted(pa.concat_tables(tables))


def _sorted(table: pa.Table) -> pa.Table:
    return table.sort_by([("key", "ascending"), ("window", "ascending")])
