"""The jobs that end-to-end tests run, as inline source, and what their output must be."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

REGIONS = '''
import os
import time

import numpy as np

from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.parquet_sink import ParquetSink


def pipeline(env, out, count, rate):
    """As many regions as subtasks. Each row says where and when it was made."""
    splits = env.parallelism
    columns = {
        "n": lambda o: o.astype(np.int64),
        "region": lambda o: (o % splits).astype(np.int64),
        "at": lambda o: np.full(len(o), time.time()),
        "pod": lambda o: np.full(len(o), os.environ.get("SPARK_EXECUTOR_POD_NAME", "?")),
    }
    rows = GeneratorSource(columns, count=count, rate=rate, splits=splits)
    env.from_source(rows, uid="rows").sink_to(ParquetSink(out), uid="out")
'''

KEYED = '''
import numpy as np

from snapshot_engine.api import Count, Max, Min, Sum, Tumbling
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.parquet_sink import ParquetSink

KEYS = 64


def pipeline(env, out, count, rate):
    """One region: rows are counted by key in windows of a second of event time, a thousand rows each."""
    columns = {
        "key": lambda o: (o % KEYS).astype(np.int64),
        "seq": lambda o: (o // KEYS).astype(np.int64),
        "ts": lambda o: o.astype(np.int64),
    }
    (
        env.from_source(GeneratorSource(columns, count=count, rate=rate, splits=8), uid="rows")
        .with_watermark("ts", delay="100ms")
        .key_by("key")
        .window(Tumbling("1s"))
        .aggregate(rows=Count(), total=Sum("seq"), first=Min("seq"), last=Max("seq"))
        .uid("windows")
        .sink_to(ParquetSink(out), uid="out")
    )
'''


def rows_of(folder: Path) -> pa.Table:
    """What is committed so far."""
    files = [str(file) for file in folder.glob("*.parquet")]
    return pa.concat_tables([pq.read_table(file) for file in files]) if files else pa.table({})


def check_regions(folder: Path, count: int) -> pa.Table:
    """Every row once; returns them."""
    table = rows_of(folder)
    numbers = table["n"].to_numpy()
    assert len(numbers) == count, f"{len(numbers)} rows instead of {count}"
    assert len(set(numbers.tolist())) == count, "rows are there twice"
    assert (numbers.min(), numbers.max()) == (0, count - 1)
    return table


WINDOW = ["key", "window", "rows", "total", "first", "last"]
WINDOW_ORDER = [("key", "ascending"), ("window", "ascending")]


def check_windows(folder: Path, count: int) -> None:
    """Every row counted once, in its window, whatever happened meanwhile."""
    found, expected = windows_of(folder), expected_windows(count)
    assert found.num_rows == expected.num_rows, f"{found.num_rows} windows instead of {expected.num_rows}"
    assert found.cast(expected.schema).equals(expected), "a window was counted wrongly"


def check_windows_begun_twice(folder: Path, count: int) -> None:
    """As after a job that began anew: every window is there, those of the first beginning once more, each the same."""
    found, expected = windows_of(folder), expected_windows(count)
    times = found.group_by(WINDOW, use_threads=False).aggregate([([], "count_all")])
    assert found.num_rows > expected.num_rows, "nothing is there twice: it did not begin anew"
    assert pc.max(times["count_all"]).as_py() == 2
    once = times.select(WINDOW).sort_by(WINDOW_ORDER).cast(expected.schema)
    assert once.equals(expected), "a window was counted wrongly"


def windows_of(folder: Path) -> pa.Table:
    table = rows_of(folder)
    start = pc.cast(pc.cast(table["window_start"], pa.timestamp("ms")), pa.int64())
    return table.append_column("window", start).select(WINDOW).sort_by(WINDOW_ORDER)


def expected_windows(count: int) -> pa.Table:
    offsets = np.arange(count)
    everything = pa.table({"key": offsets % 64, "seq": offsets // 64, "window": offsets // 1000 * 1000})
    wanted = [("seq", "count"), ("seq", "sum"), ("seq", "min"), ("seq", "max")]
    return everything.group_by(["key", "window"]).aggregate(wanted).rename_columns(WINDOW).sort_by(WINDOW_ORDER)
