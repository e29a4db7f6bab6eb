"""What users write pipelines with: everything a pipeline needs can be imported from here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from snapshot_engine.api.connected import ConnectedStreams
from snapshot_engine.api.environment import Environment
from snapshot_engine.api.keyed import KeyedStream
from snapshot_engine.api.sinks import StreamEnd
from snapshot_engine.api.stream import DataStream
from snapshot_engine.api.windowed import WindowedStream
from snapshot_engine.api.windows import Session, Sliding, Tumbling
from snapshot_engine.graph.job_graph import Exchange
from snapshot_engine.operators.aggregates import Avg, Count, CountDistinct, Max, Min, Sum
from snapshot_engine.operators.functions import (
    AggregateFunction,
    BatchKeyedProcessFunction,
    CoProcessFunction,
    Function,
    KeyedProcessFunction,
    ProcessContext,
    ProcessWindowFunction,
    RuntimeContext,
    WindowContext,
)
from snapshot_engine.state.descriptors import ListState, MapState, ReducingState, ValueState

if TYPE_CHECKING:
    from polars import col, lit, when

_FROM_POLARS = ("col", "lit", "when")


def __getattr__(name: str) -> Any:
    """Column expressions are Polars' own; it is imported only by pipelines that use them."""
    if name in _FROM_POLARS:
        import polars

        return getattr(polars, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AggregateFunction",
    "Avg",
    "BatchKeyedProcessFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "Count",
    "CountDistinct",
    "DataStream",
    "Environment",
    "Exchange",
    "Function",
    "KeyedProcessFunction",
    "KeyedStream",
    "ListState",
    "MapState",
    "Max",
    "Min",
    "ProcessContext",
    "ProcessWindowFunction",
    "ReducingState",
    "RuntimeContext",
    "Session",
    "Sliding",
    "StreamEnd",
    "Sum",
    "Tumbling",
    "ValueState",
    "WindowContext",
    "WindowedStream",
    "col",
    "lit",
    "when",
]
