"""Sources and sinks that are only planned, and what a plan says of one operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.api import DataStream, Environment
from snapshot_engine.connectors.protocols import DirectSink
from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.graph.planning import PlanOptions, plan_graph
from snapshot_engine.graph.problems import PlanError


class Rows:
    bounded = False

    def __init__(self, **columns: pa.DataType) -> None:
        self.schema = pa.schema(
            columns or {"city": pa.string(), "amount": pa.int64(), "price": pa.float64(), "ts": pa.timestamp("ms")}
        )

    def splits(self, parallelism: int) -> list[str]:
        return ["0"]

    def open(self, split: str, position: Any) -> Any:
        raise AssertionError("nothing is read while planning")


class Discard(DirectSink):
    def open(self, context: Any) -> Any:
        raise AssertionError("nothing is written while planning")


@pytest.fixture
def env() -> Environment:
    return Environment(parallelism=2)


@pytest.fixture
def source() -> type[Rows]:
    return Rows


@pytest.fixture
def orders(env: Environment) -> DataStream:
    """city string, amount int64, price double, ts timestamp."""
    return env.from_source(Rows(), name="orders", uid="orders")


@pytest.fixture
def timed(orders: DataStream) -> DataStream:
    return orders.with_watermark("ts", delay="2s")


@pytest.fixture
def sink() -> type[Discard]:
    return Discard


@pytest.fixture
def planned(env: Environment) -> Callable[..., JobGraph]:
    """The job graph of what was built on `env`, each open stream ended with a sink."""

    def make(*streams: DataStream, **options: Any) -> JobGraph:
        for number, stream in enumerate(streams):
            stream.sink_to(Discard(), name=f"out{number}", uid=f"out{number}")
        return plan_graph(env.graph, PlanOptions(parallelism=env.parallelism, **options))

    return make


@pytest.fixture
def refused(planned: Callable[..., JobGraph]) -> Callable[..., str]:
    """The one problem of a plan."""

    def find(*streams: DataStream, **options: Any) -> str:
        with pytest.raises(PlanError) as caught:
            planned(*streams, **options)
        assert len(caught.value.problems) == 1, str(caught.value)
        return str(caught.value.problems[0])

    return find


@pytest.fixture
def operator_named(planned: Callable[..., JobGraph]) -> Callable[..., Any]:
    """A fresh instance of the operator of that name, as a slot would make it."""

    def make(name: str, *streams: DataStream) -> Any:
        graph = planned(*streams)
        nodes = [node for vertex in graph.vertices.values() for node in vertex.operators]
        return next(node for node in nodes if node.name == name).factory()

    return make
