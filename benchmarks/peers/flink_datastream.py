"""Flink's Python DataStream API: the functions run in Python workers beside the Java runtime.

Tables are read and written by the same connectors as in `flink_sql.py`; what lies between is DataStream code. It is
the hand-written counterpart of SQL, so only queries of each kind are here: stateless, windows, a join, sessions.
"""

from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import Any

from pyflink.common import Duration, Row, Time, Types
from pyflink.common.typeinfo import TypeInformation
from pyflink.common.watermark_strategy import TimestampAssigner, WatermarkStrategy
from pyflink.datastream import DataStream, KeyedCoProcessFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.functions import AggregateFunction, ProcessWindowFunction
from pyflink.datastream.state import ListStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from pyflink.table import StreamTableEnvironment

from benchmarks.nexmark import queries as q
from benchmarks.peers.flink_sql import configuration, create_sink, create_source, flink_configuration, tables_of
from benchmarks.worker import Job, serve

# Types are made anew for each use: one that has met the Java side holds a reference to it and cannot be pickled.
_LONG, _TEXT, _DOUBLE = Types.LONG, Types.STRING, Types.DOUBLE


class _ByTs(TimestampAssigner):
    def extract_timestamp(self, value: Row, record_timestamp: int) -> int:
        return int(value["ts"])


class _CountAndSum(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: Row, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + 1, accumulator[1] + value["price"]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int]:
        return a[0] + b[0], a[1] + b[1]


class _WithWindow(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[tuple[int, int]]) -> Iterable[Row]:
        for bids, total in elements:
            yield Row(context.window().start, key, bids, total)


class _SessionOf(ProcessWindowFunction):
    """All bids of a session at once: an AggregateFunction loses bids here when sessions merge (PyFlink 2.3)."""

    def process(self, key: int, context: Any, elements: Iterable[Row]) -> Iterable[Row]:
        times = [row["ts"] for row in elements]
        yield Row(key, len(times), min(times), max(times) + q.SESSION_GAP_MS)


class _JoinSellers(KeyedCoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._seller = runtime_context.get_state(
            ValueStateDescriptor("seller", Types.TUPLE([_TEXT(), _TEXT(), _TEXT()]))
        )
        self._waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", _LONG()))

    def process_element1(self, value: Row, ctx: Any) -> Iterable[Row]:
        seller = (value["name"], value["city"], value["state"])
        self._seller.update(seller)
        for auction in self._waiting.get():
            yield Row(*seller, auction)
        self._waiting.clear()

    def process_element2(self, value: Row, ctx: Any) -> Iterable[Row]:
        seller = self._seller.value()
        if seller is None:
            self._waiting.add(value["id"])
        else:
            yield Row(*seller, value["id"])


def _row(query: str, *types: Callable[[], TypeInformation]) -> TypeInformation:
    return Types.ROW_NAMED(list(q.QUERIES[query].columns), [make() for make in types])


def tumbling(job: Job, keyed_bid: DataStream) -> DataStream:
    key = _LONG if job.key_type == "int" else _TEXT
    windows = keyed_bid.key_by(lambda row: row["auction"], key_type=key()).window(
        TumblingEventTimeWindows.of(Time.milliseconds(q.WINDOW_MS))
    )
    pair = Types.TUPLE([_LONG(), _LONG()])
    return windows.aggregate(_CountAndSum(), _WithWindow(), pair, _row("tumbling", _LONG, key, _LONG, _LONG))


def q0(_: Job, bid: DataStream) -> DataStream:
    return bid.map(lambda row: row, _row("q0", _LONG, _LONG, _LONG, _TEXT, _LONG))


def q1(_: Job, bid: DataStream) -> DataStream:
    def convert(row: Row) -> Row:
        return Row(row["auction"], row["bidder"], q.DOLLAR_TO_EURO * row["price"], row["channel"], row["ts"])

    return bid.map(convert, _row("q1", _LONG, _LONG, _DOUBLE, _TEXT, _LONG))


def q2(_: Job, bid: DataStream) -> DataStream:
    chosen = bid.filter(lambda row: row["auction"] % q.Q2_MODULUS == 0)
    return chosen.map(lambda row: Row(row["auction"], row["price"]), _row("q2", _LONG, _LONG))


def q3(_: Job, person: DataStream, auction: DataStream) -> DataStream:
    sellers = person.filter(lambda row: row["state"] in q.Q3_STATES).key_by(lambda row: row["id"], _LONG())
    offers = auction.filter(lambda row: row["category"] == q.Q3_CATEGORY).key_by(lambda row: row["seller"], _LONG())
    return sellers.connect(offers).process(_JoinSellers(), _row("q3", _TEXT, _TEXT, _TEXT, _LONG))


def q11(_: Job, bid: DataStream) -> DataStream:
    # Flink merges sessions that touch: see flink_sql.py.
    gap = EventTimeSessionWindows.with_gap(Time.milliseconds(q.SESSION_GAP_MS - 1))
    sessions = bid.key_by(lambda row: row["bidder"], key_type=_LONG()).window(gap)
    return sessions.process(_SessionOf(), _row("q11", _LONG, _LONG, _LONG, _LONG))


_QUERIES = {function.__name__: function for function in (tumbling, q0, q1, q2, q3, q11)}


def run(job: Job) -> dict[str, Any]:
    env = StreamExecutionEnvironment.get_execution_environment(flink_configuration(job))
    tables = StreamTableEnvironment.create(env)
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(0)).with_timestamp_assigner(_ByTs())
    streams = []
    for table in tables_of(job):
        create_source(tables, job, table, watermark=False)
        stream = tables.to_data_stream(tables.from_path(table))
        streams.append(stream.assign_timestamps_and_watermarks(in_time) if _needs_time(job) else stream)
    create_sink(tables, job, times_as="BIGINT")
    result = tables.from_data_stream(_QUERIES[job.query](job, *streams))
    result.execute_insert("query_result").wait()
    return {"configuration": {**configuration(job), "python.execution-mode": "process"}}


def _needs_time(job: Job) -> bool:
    return q.QUERIES[job.query].event_time


if __name__ == "__main__":
    serve(run, {"apache-flink": version("apache-flink")})
