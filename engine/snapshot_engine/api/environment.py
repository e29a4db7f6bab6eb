"""What a pipeline function is given: where streams begin, and what the manifest said."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from snapshot_engine.graph.building import Input, Upstream, add_operator, explain
from snapshot_engine.graph.job_graph import DEFAULT_KEY_GROUPS, Exchange
from snapshot_engine.graph.logical import LogicalGraph, Step
from snapshot_engine.operators.stream_type import RESERVED, StreamType

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from snapshot_engine.api.schemas import SchemaLike
    from snapshot_engine.api.stream import DataStream
    from snapshot_engine.connectors.protocols import Source


class Environment:
    """One job under construction. The pipeline function builds on it; nothing runs before it has been
    planned."""

    def __init__(
        self,
        *,
        parallelism: int = 1,
        args: Mapping[str, Any] | None = None,
        exchange: Exchange | str = Exchange.PIPELINED,
    ) -> None:
        self.parallelism = parallelism
        """How many subtasks an operator has that does not say otherwise. A pipeline may change it."""
        self.args: Mapping[str, Any] = MappingProxyType(dict(args or {}))
        """`spec.pipeline.args` of the manifest."""
        self.exchange = Exchange(exchange)
        """What the edges between vertices keep, where a stream does not say otherwise."""
        self.key_groups = DEFAULT_KEY_GROUPS
        """In how many parts keyed state can be dealt out: the most a keyed operator's parallelism can be.

        Set it before the job's first start, if at all: it can never change for a job that has state.
        """
        self.graph = LogicalGraph()

    @property
    def spark(self) -> SparkSession:
        """The session of the Spark that runs the job, for `DataFrameSource`. Starts it if it does not run yet."""
        from snapshot_engine.runtime.spark import embedded_session

        return embedded_session()

    def from_source(
        self,
        source: Source,
        *,
        name: str | None = None,
        uid: str | None = None,
        parallelism: int | None = None,
    ) -> DataStream:
        """The rows of `source`. Give it a `uid`: its positions are kept under that in every checkpoint."""
        from snapshot_engine.api.stream import DataStream

        node = add_operator(self.graph, "source", [], lambda: _read(source))
        node.source = source
        node.name = name or _name_of(source)
        node.uid = uid
        node.parallelism = parallelism
        return DataStream(self, Input((Upstream(node),), node.output))

    def from_collection(
        self,
        rows: Iterable[Any],
        *,
        schema: SchemaLike | None = None,
        name: str = "from_collection",
        uid: str | None = None,
    ) -> DataStream:
        """Rows that are there already: dicts, dataclasses, named tuples, an Arrow table, or plain values."""
        from snapshot_engine.api.collections import table_of
        from snapshot_engine.connectors.collection import CollectionSource

        try:
            source = CollectionSource(table_of(rows, schema))
        except Exception as error:
            self.graph.refuse_call(name, explain(error))
            unknown = self.from_source(CollectionSource(pa.table({})), name=name, uid=uid, parallelism=1)
            return unknown._of_unknown_type()
        return self.from_source(source, name=name, uid=uid, parallelism=1)


def _read(source: Source) -> Step:
    from snapshot_engine.operators.fitting import decoded_schema
    from snapshot_engine.operators.source import SourceReaderOperator

    lacking = [member for member in ("bounded", "schema", "splits", "open") if not hasattr(source, member)]
    if lacking or isinstance(source, type):
        what = "is a class: make an object of it" if isinstance(source, type) else f"has no {', '.join(lacking)}"
        raise TypeError(f"{source!r} is not a Source: it {what}")
    reserved = [name for name in source.schema.names if name in RESERVED]
    if reserved:
        raise ValueError(f"column {reserved[0]!r} has a name that the engine uses for a column of its own: rename it")
    return Step(partial(SourceReaderOperator, source), StreamType(decoded_schema(source.schema)), stateful=True)


def _name_of(source: object) -> str:
    return (source if isinstance(source, type) else type(source)).__name__
