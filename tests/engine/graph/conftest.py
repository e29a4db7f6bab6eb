"""Job graphs and pipelines in one line each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.protocols import DirectSink
from snapshot_engine.graph.job_graph import (
    Exchange,
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorNode,
    Partitioning,
    SourceLocation,
)
from snapshot_engine.graph.planning import PlanOptions, plan_graph
from snapshot_engine.graph.problems import PlanError
from snapshot_engine.operators.operator import Operator


class Rows:
    """A source of nothing, for planning."""

    def __init__(self, bounded: bool = False, **columns: pa.DataType) -> None:
        self.bounded = bounded
        self.schema = pa.schema(columns or {"city": pa.string(), "amount": pa.int64(), "ts": pa.int64()})

    def splits(self, parallelism: int) -> list[str]:
        return ["0"]

    def open(self, split: str, position: Any) -> Any:
        raise AssertionError("nothing is read while planning")


class Discard(DirectSink):
    def open(self, context: Any) -> Any:
        raise AssertionError("nothing is written while planning")


class Transactional(Discard):
    exactly_once = True


@pytest.fixture
def rows() -> type[Rows]:
    return Rows


@pytest.fixture
def discard() -> type[Discard]:
    return Discard


@pytest.fixture
def transactional() -> type[Transactional]:
    return Transactional


@pytest.fixture
def graph_of() -> Callable[..., JobGraph]:
    """`graph_of({"a": 2, "b": 2}, ["a hash b", "b forward c committed"])`."""

    def make(parallelism: Mapping[str, int], edges: Sequence[str], deterministic: Sequence[str] = ()) -> JobGraph:
        consumers = {edge.split()[2] for edge in edges}
        vertices = {
            name: JobVertex(
                name,
                name,
                count,
                (OperatorNode(name, name, Operator, SourceLocation("job.py", 1)),),
                name not in consumers,
                name in deterministic,
            )
            for name, count in parallelism.items()
        }
        return JobGraph("test", vertices, tuple(_edge(number, text) for number, text in enumerate(edges)))

    return make


def _edge(number: int, text: str) -> JobEdge:
    producer, partitioning, consumer, *rest = text.split()
    exchange = Exchange(next((word for word in rest if word != "feedback"), "pipelined"))
    return JobEdge(
        number,
        producer,
        consumer,
        Partitioning(partitioning),
        exchange,
        pa.schema({"x": pa.int64()}),
        feedback="feedback" in rest,
    )


@pytest.fixture
def plan() -> Callable[..., JobGraph]:
    def make(pipeline: Callable[[Environment], Any], parallelism: int = 1, **options: Any) -> JobGraph:
        env = Environment(parallelism=parallelism)
        pipeline(env)
        return plan_graph(env.graph, PlanOptions(parallelism=parallelism, **options))

    return make


@pytest.fixture
def problems(plan: Callable[..., JobGraph]) -> Callable[..., list[str]]:
    """What planning refuses, one text per problem."""

    def find(pipeline: Callable[[Environment], Any], **options: Any) -> list[str]:
        with pytest.raises(PlanError) as caught:
            plan(pipeline, **options)
        return [str(problem) for problem in caught.value.problems]

    return find
