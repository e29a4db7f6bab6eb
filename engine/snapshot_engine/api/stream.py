"""A stream of rows or records: what most of a pipeline is written with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from snapshot_engine.api import transformations as steps
from snapshot_engine.api.durations import DurationLike, size_in_bytes
from snapshot_engine.api.schemas import SchemaLike
from snapshot_engine.graph.building import Input, Upstream, add_operator
from snapshot_engine.graph.call_site import user_location
from snapshot_engine.graph.job_graph import Exchange, Partitioning
from snapshot_engine.graph.logical import NOTHING_SAID, LogicalNode, Step

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    import pyarrow as pa

    from snapshot_engine.api.connected import ConnectedStreams
    from snapshot_engine.api.environment import Environment
    from snapshot_engine.api.joins import JoinedStreams
    from snapshot_engine.api.keyed import KeyedStream
    from snapshot_engine.api.sinks import StreamEnd
    from snapshot_engine.api.windowed import WindowedStream
    from snapshot_engine.api.windows import Window
    from snapshot_engine.connectors.protocols import Sink
    from snapshot_engine.operators.aggregates import Aggregate

S = TypeVar("S", bound="DataStream")


class DataStream:
    """Every method returns a new stream; the stream it was called on can be used again."""

    def __init__(self, env: Environment, end: Input) -> None:
        self.env = env
        self._end = end

    # -- record by record
    # -------------------------------------------------------------------------------------------

    def map(self, fn: Callable[[Any], Any], *, schema: SchemaLike | None = None) -> DataStream:
        """One record out for each record in.

        With `schema`, or where `fn` is annotated to return a dataclass, NamedTuple or TypedDict, the result
        has columns; otherwise it is a stream of plain values.
        """
        return self._then("map", lambda input: steps.map_records(fn, schema, input), fn)

    def filter(self, condition: Callable[[Any], Any] | pl.Expr) -> DataStream:
        """The records for which the function (or column expression) is true."""
        if not callable(condition):
            return self.where(condition)
        return self._then("filter", lambda input: steps.filter_records(condition, input), condition)

    def flat_map(self, fn: Callable[[Any], Iterable[Any]], *, schema: SchemaLike | None = None) -> DataStream:
        """Any number of records out for each record in: `fn` returns or yields them."""
        return self._then("flat_map", lambda input: steps.flat_map_records(fn, schema, input), fn)

    # -- batch by batch
    # ---------------------------------------------------------------------------------------------

    def map_in_arrow(self, fn: Callable[[pa.RecordBatch], Any], *, schema: SchemaLike | None = None) -> DataStream:
        """`fn` is given Arrow record batches and returns one, or an iterable of them.

        Without `schema` the columns stay as they are. Event time lasts as long as its column is there.
        """
        return self._then("map_in_arrow", lambda input: steps.map_arrow(fn, schema, input), fn)

    def map_in_pandas(self, fn: Callable[[Any], Any], *, schema: SchemaLike | None = None) -> DataStream:
        """The same on pandas data frames."""
        return self._then("map_in_pandas", lambda input: steps.map_pandas(fn, schema, input), fn)

    # -- column expressions
    # -----------------------------------------------------------------------------------------

    def select(self, *columns: str | pl.Expr, **named: pl.Expr | Any) -> DataStream:
        """Only these columns or expressions: `select("city", total=col("price") * col("quantity"))`."""
        return self._then("select", lambda input: steps.select(columns, named, input))

    def with_columns(self, *columns: pl.Expr, **named: pl.Expr | Any) -> DataStream:
        """All columns, and these added or replaced."""
        return self._then("with_columns", lambda input: steps.with_columns(columns, named, input))

    def where(self, condition: pl.Expr | str) -> DataStream:
        """The rows for which the expression is true; text is read as SQL: `where("price > 100")`."""
        return self._then("where", lambda input: steps.where(condition, input))

    # -- event time
    # -------------------------------------------------------------------------------------------------

    def with_watermark(
        self,
        event_time: str | Callable[[Any], int],
        delay: DurationLike = "0s",
        *,
        idle_timeout: DurationLike | None = None,
        max_drift: DurationLike | None = None,
    ) -> DataStream:
        """Take event time from a column (epoch milliseconds or timestamp) or a function of the record.

        Rows may be late by up to `delay`. A source split that is silent for `idle_timeout` no longer holds
        back the others. One that is ahead of the slowest by more than `max_drift` is not read until the
        others have come closer: so much lies in open windows, and no more.
        """
        return self._then(
            "with_watermark", lambda input: steps.watermark(event_time, delay, idle_timeout, max_drift, input)
        )

    # -- keys, and several streams
    # ----------------------------------------------------------------------------------

    def key_by(self, *keys: str | Callable[[Any], Any]) -> KeyedStream:
        """Bring rows of one key together: by columns, or by one function of the record."""
        from snapshot_engine.api.keyed import key_stream

        return key_stream(self, keys)

    def union(self, *others: DataStream) -> DataStream:
        """All rows of all these streams, which must have the same columns and the same event time."""
        from snapshot_engine.api.unions import union_of

        return union_of(self, others)

    def connect(self, other: DataStream) -> ConnectedStreams:
        """Two streams, of any types, into one function with one state."""
        from snapshot_engine.api.connected import ConnectedStreams

        return ConnectedStreams(self, other)

    def join(self, other: DataStream, how: str = "inner") -> JoinedStreams:
        """`left.join(right).on("id").window(Tumbling("10s"))`, or `.unbounded()` instead of the window."""
        from snapshot_engine.api.joins import JoinedStreams

        return JoinedStreams(self, other, how)

    def side_output(self, tag: str, *, schema: SchemaLike | None = None) -> DataStream:
        """What the operator puts out under `tag`: late rows, or what a process function emits there."""
        from snapshot_engine.api.side_outputs import read_side_output

        return read_side_output(self, tag, schema)

    def iterate(
        self,
        body: Callable[[Any], tuple[Any, Any]],
        *,
        rounds: bool = False,
        budget: str | int | None = None,
        name: str | None = None,
        uid: str | None = None,
        parallelism: int | None = None,
    ) -> Any:
        """A loop: `body` is given the stream, with all that comes back in it, and returns `(again, out)`.

        `again` goes round: a stream with the columns of this one, or a list of such streams. `out` is whatever leaves
        the loop; `iterate` returns it as it is. On a keyed stream, what goes round comes back to the owner of its key.

        With `rounds`, what comes back waits until everything of the round before is done; process functions in the
        body may ask to be told (`timers.register_round_end`). `budget` is what the head keeps in memory of records
        on their way round; the rest lies on disk.
        """
        from snapshot_engine.api.loops import LoopOptions, iterate

        return iterate(self, body, LoopOptions(rounds, budget, name, uid, parallelism))

    # -- the next edge
    # ----------------------------------------------------------------------------------------------

    def exchange(self: S, exchange: Exchange | str, *, budget: str | int | None = None) -> S:
        """What the next edge keeps of its data; it cuts the job into regions that restart apart from each
        other."""
        try:
            kind = exchange_of(exchange)
            budget_bytes = None if budget is None else size_in_bytes(budget)
        except ValueError as error:
            self.env.graph.refuse_call("exchange", str(error))
            return self
        return self._with(exchange=kind, budget_bytes=budget_bytes, location=user_location())

    def rebalance(self) -> DataStream:
        """Hand whole batches to the next operator's subtasks in turn."""
        return self._partitioned(Partitioning.REBALANCE)

    def broadcast(self) -> DataStream:
        """Every subtask of the next operator gets every row."""
        return self._partitioned(Partitioning.BROADCAST)

    def forward(self) -> DataStream:
        """Subtask to subtask; an error where the next operator has another parallelism."""
        return self._partitioned(Partitioning.FORWARD)

    # -- about the operator just added
    # ------------------------------------------------------------------------------

    def name(self: S, name: str) -> S:
        """What the operator is called in plans, metrics and messages."""
        for node in self._operator("name"):
            node.name = name
        return self

    def uid(self: S, uid: str) -> S:
        """Under what the operator's state is kept: never change it, and the pipeline around it may change."""
        for node in self._operator("uid"):
            node.uid = uid
        return self

    def parallelism(self: S, parallelism: int) -> S:
        """How many subtasks the operator has."""
        for node in self._operator("parallelism"):
            node.parallelism = parallelism
        return self

    def deterministic(self: S) -> S:
        """Your word that the region of this operator gives the same rows in the same order when it runs
        again.

        Then it may restart alone behind a memory or durable exchange. Refused where it cannot hold.
        """
        for node in self._operator("deterministic"):
            node.declared_deterministic = True
        return self

    # -- ends
    # -------------------------------------------------------------------------------------------------------

    def sink_to(
        self, sink: Sink, *, name: str | None = None, uid: str | None = None, parallelism: int | None = None
    ) -> StreamEnd:
        """Write the stream to `sink`."""
        from snapshot_engine.api.sinks import write_to

        return write_to(self, sink, name, uid, parallelism)

    def print(self, prefix: str = "") -> StreamEnd:
        """Show the rows in the slots' output; for looking, not for exactly-once."""
        from snapshot_engine.api.sinks import write_to
        from snapshot_engine.connectors.console import ConsoleSink

        return write_to(self, ConsoleSink(prefix), "print", None, None)

    def collect(self, folder: str | Path | None = None) -> StreamEnd:
        """Keep the rows where a test can read them: `.sink.read_committed()` on what this returns."""
        from snapshot_engine.api.sinks import write_to
        from snapshot_engine.connectors.collect_sink import CollectSink

        return write_to(self, CollectSink(folder), "collect", None, None)

    # -- what needs a key: planned as errors, so that all of a pipeline's problems are reported together
    # ----------------

    def reduce(self, fn: Callable[[Any, Any], Any]) -> DataStream:
        return self._needs_key("reduce")

    def aggregate(self, **aggregates: Aggregate) -> DataStream:
        return self._needs_key("aggregate")

    def process(self, function: Any, *, schema: SchemaLike | None = None) -> DataStream:
        return self._needs_key("process")

    def window(self, window: Window) -> WindowedStream:
        from snapshot_engine.api.windowed import WindowedStream

        return WindowedStream(self, window, ())

    # -- inside the API
    # ---------------------------------------------------------------------------------------------

    def _then(self, kind: str, build: Callable[..., Step], fn: Callable[..., Any] | None = None) -> DataStream:
        node = add_operator(self.env.graph, kind, [self._end], build)
        node.name = _name_for(kind, fn)
        return self._after(node)

    def _after(self, node: LogicalNode) -> DataStream:
        return DataStream(self.env, Input((Upstream(node),), node.output))

    def _with(self: S, **traits: Any) -> S:
        changed = object.__new__(type(self))
        changed.__dict__.update(self.__dict__)
        changed._end = self._end.with_traits(**traits)
        return changed

    def _partitioned(self, partitioning: Partitioning) -> DataStream:
        end = self._end.with_traits(
            partitioning=partitioning, key_columns=(), already_keyed=False, location=user_location()
        )
        return DataStream(self.env, end)

    def _of_unknown_type(self) -> DataStream:
        """The same where its columns could not be found out: what follows is not checked."""
        return DataStream(self.env, replace(self._end, type=None))

    def _needs_key(self, kind: str) -> DataStream:
        node = add_operator(self.env.graph, kind, [self._end], steps.refuse_unkeyed)
        return self._after(node)

    def _operator(self, method: str) -> list[LogicalNode]:
        """The operator that this stream comes out of; a problem where there is not exactly one."""
        upstream = self._end.upstreams[0]
        if len(self._end.upstreams) == 1 and upstream.traits == NOTHING_SAID and upstream.tag is None:
            return [upstream.node]
        self.env.graph.refuse_call(
            method, "it does not follow an operator: call it right after the operator it is meant for"
        )
        return []


def exchange_of(given: Exchange | str) -> Exchange:
    kinds = [exchange.value for exchange in Exchange]
    if isinstance(given, str) and given not in kinds:
        raise ValueError(f"{given!r} is not an exchange: use {', '.join(kinds)}")
    return Exchange(given)


def _name_for(kind: str, fn: Callable[..., Any] | None) -> str:
    given = getattr(fn, "__name__", None) or (type(fn).__name__ if fn is not None else None)
    return kind if given in (None, "<lambda>", "partial") else f"{kind} {given}"
