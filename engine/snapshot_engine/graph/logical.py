"""The logical graph: what the user's pipeline function said, one node per operator, before anything is chained.

The API adds nodes as the pipeline function runs. A node whose type could not be worked out has `output=None`; what was
wrong with it is among the graph's problems, and nothing that follows from it is reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapshot_engine.graph.job_graph import Exchange, Partitioning, SourceLocation
from snapshot_engine.graph.problems import Problem
from snapshot_engine.operators.operator import Operator
from snapshot_engine.operators.stream_type import StreamType


@dataclass(frozen=True)
class Step:
    """What one operator is: how to make it, and what is known of its output."""

    factory: Callable[[], Operator]
    output: StreamType
    stateful: bool = False
    nondeterminism: str | None = None
    """Why the same input may give another output sequence ("sets timers"), or None where it may not."""
    side_outputs: Mapping[str, StreamType] = field(default_factory=dict)
    needs: tuple[str, ...] | None = None
    """The input columns it looks at, where it is known to need no others."""


@dataclass(frozen=True)
class EdgeTraits:
    """What was said about the next edge of a stream."""

    partitioning: Partitioning | None = None
    """None: forward if both sides have the same parallelism, else rebalance."""
    key_columns: tuple[str, ...] = ()
    exchange: Exchange | None = None
    """None: the job's default."""
    budget_bytes: int | None = None
    location: SourceLocation | None = None
    """Where the exchange or the partitioning was asked for."""


@dataclass(eq=False)
class LogicalNode:
    number: int
    kind: str
    """What it does, in the API's words: "map", "window aggregate"."""
    location: SourceLocation
    name: str
    uid: str | None = None
    parallelism: int | None = None
    step: Step | None = None
    source: Any = None
    sink: Any = None
    keyed: bool = False
    declared_deterministic: bool = False

    @property
    def output(self) -> StreamType | None:
        return self.step.output if self.step else None


@dataclass(frozen=True)
class LogicalEdge:
    producer: LogicalNode
    consumer: LogicalNode
    traits: EdgeTraits
    type: StreamType | None
    """What crosses the edge: only the columns that the consumer needs."""
    port: int = 0
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    feedback: bool = False


@dataclass(frozen=True)
class Finding:
    """A problem with a node, kept by the node and not by its name: the user may name it later in the same line."""

    node: LogicalNode
    message: str

    def to_problem(self) -> Problem:
        return Problem(self.message, self.node.name, self.node.location)


@dataclass
class LogicalGraph:
    nodes: list[LogicalNode] = field(default_factory=list)
    edges: list[LogicalEdge] = field(default_factory=list)
    problems: list[Finding] = field(default_factory=list)
    warnings: list[Finding] = field(default_factory=list)

    def add_node(self, kind: str, location: SourceLocation) -> LogicalNode:
        node = LogicalNode(len(self.nodes), kind, location, kind)
        self.nodes.append(node)
        return node

    def refuse(self, node: LogicalNode, message: str) -> None:
        self.problems.append(Finding(node, message))

    def warn(self, node: LogicalNode, message: str) -> None:
        self.warnings.append(Finding(node, message))

    def inputs_of(self, node: LogicalNode) -> list[LogicalEdge]:
        return [edge for edge in self.edges if edge.consumer is node]

    def outputs_of(self, node: LogicalNode) -> list[LogicalEdge]:
        return [edge for edge in self.edges if edge.producer is node]
