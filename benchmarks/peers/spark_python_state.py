"""Structured Streaming's Python state API (transformWithState in pandas): user code keeps state per key.

The work around it (sources, sinks, RocksDB, micro-batches) is that of `structured_streaming.py`. Only queries that
need hand-written state are here.
"""

from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (the name that Spark's documentation uses)
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from benchmarks.nexmark import queries as q
from benchmarks.peers.structured_streaming import run_query, timed
from benchmarks.worker import Job, serve


class _WindowSums(StatefulProcessor):
    """Count and sum per window of one auction; a timer at the window's end gives them out."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._windows = handle.getMapState("windows", "start BIGINT", "bids BIGINT, total BIGINT")

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        for frame in rows:
            starts = frame["ts"] - frame["ts"] % q.WINDOW_MS
            for start, prices in frame["price"].groupby(starts):
                self._add(int(start), len(prices), int(prices.sum()))
        yield pd.DataFrame()

    def handleExpiredTimer(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        start = expiredTimerInfo.getExpiryTimeInMs() - q.WINDOW_MS
        bids, total = self._windows.getValue((start,))
        self._windows.removeKey((start,))
        yield pd.DataFrame({"window_start": [start], "auction": [key[0]], "bids": [bids], "total": [total]})

    def close(self) -> None:
        pass

    def _add(self, start: int, bids: int, total: int) -> None:
        known = self._windows.getValue((start,)) if self._windows.containsKey((start,)) else None
        if known is None:
            self._handle.registerTimer(start + q.WINDOW_MS)
            known = (0, 0)
        self._windows.updateValue((start,), (known[0] + bids, known[1] + total))


class _Sessions(StatefulProcessor):
    """The open session of one bidder. Rows come in time order from batch to batch; within one they are sorted."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._open = handle.getValueState("open", "bids BIGINT, first BIGINT, last BIGINT")

    def handleInputRows(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        times = sorted(int(ts) for frame in rows for ts in frame["ts"])
        before = self._open.get() if self._open.exists() else None
        session, ended = before, []
        for ts in times:
            if session and ts < session[2] + q.SESSION_GAP_MS:
                session = (session[0] + 1, session[1], ts)
            else:
                ended += [session] if session else []
                session = (1, ts, ts)
        if before:
            self._handle.deleteTimer(before[2] + q.SESSION_GAP_MS)
        self._open.update(session)
        self._handle.registerTimer(session[2] + q.SESSION_GAP_MS)
        yield _session_rows(key[0], ended)

    def handleExpiredTimer(  # noqa: N802 (Spark's name)
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[pd.DataFrame]:
        session = self._open.get()
        self._open.clear()
        yield _session_rows(key[0], [session])

    def close(self) -> None:
        pass


def _session_rows(bidder: int, sessions: list[tuple[int, int, int]]) -> pd.DataFrame:
    rows = [(bidder, bids, first, last + q.SESSION_GAP_MS) for bids, first, last in sessions]
    return pd.DataFrame(rows, columns=list(q.QUERIES["q11"].columns)).astype("int64")


def tumbling(job: Job, keyed_bid: DataFrame) -> DataFrame:
    key = "BIGINT" if job.key_type == "int" else "STRING"
    grouped = timed(keyed_bid.where(F.col("price").isNotNull())).groupBy("auction")
    schema = f"window_start BIGINT, auction {key}, bids BIGINT, total BIGINT"
    return grouped.transformWithStateInPandas(_WindowSums(), schema, "Append", "EventTime")


def q11(_: Job, bid: DataFrame) -> DataFrame:
    schema = "bidder BIGINT, bids BIGINT, session_start BIGINT, session_end BIGINT"
    return timed(bid).groupBy("bidder").transformWithStateInPandas(_Sessions(), schema, "Append", "EventTime")


_QUERIES: dict[str, Callable[..., DataFrame]] = {"tumbling": tumbling, "q11": q11}


def run(job: Job) -> dict[str, Any]:
    return run_query(job, lambda *tables: _QUERIES[job.query](job, *tables))


if __name__ == "__main__":
    serve(run, {"pyspark": version("pyspark")})
