"""The logical graph: what the user's pipeline function said, one node per operator, before anything is
chained.

The API adds nodes as the pipeline function runs. A node whose type could not be worked out has `output=None`;
what was wrong with it is among the graph's problems, and nothing that follows from it is reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from snapshot_engine.graph.call_site import user_location
from snapshot_engine.graph.job_graph import Exchange, LoopTraits, Partitioning, SourceLocation
from snapshot_engine.graph.problems import Problem
from snapshot_engine.operators.operator import Operator
from snapshot_engine.operators.stream_type import StreamType

if TYPE_CHECKING:
    from snapshot_engine.operators.combining import Combining


@dataclass(frozen=True)
class Step:
    """What one operator is: how to make it, and what is known of its output."""

    factory: Callable[[], Operator]
    output: StreamType
    stateful: bool = False
    nondeterminism: str | None = None
    """Why the same input may give another output sequence ("sets timers"), or None where it may not."""
    side_outputs: Mapping[str, StreamType] = field(default_factory=dict)
    any_side_output: bool = False
    """Whether a function of the user's may put out to any tag."""
    uid_by_input: bool = False
    """Whether its state belongs to its input, so that a uid derived from the input's is good enough."""
    needs: tuple[str, ...] | None = None
    """The input columns it looks at, where it is known to need no others."""
    combining: Combining | None = None
    """How rows may be combined before they are sent to it by key, where they may."""
    makes_watermarks: bool = False
    """Whether event time begins with it, or begins anew."""
    takes_silence_for_idle: bool = False
    """Whether rows that do not come may mean that its source has none."""
    max_drift_ms: int | None = None
    """How far the splits of its source may be ahead of the slowest in event time."""


@dataclass(frozen=True)
class EdgeTraits:
    """What was said about the next edge of a stream."""

    partitioning: Partitioning | None = None
    """None: forward if both sides have the same parallelism, else rebalance."""
    key_columns: tuple[str, ...] = ()
    already_keyed: bool = False
    """The rows lie with the subtasks that own their keys, since they come from the head of a keyed loop: they are sent
    by key only where the parallelism changes.
    """
    exchange: Exchange | None = None
    """None: the job's default."""
    budget_bytes: int | None = None
    location: SourceLocation | None = None
    """Where the exchange or the partitioning was asked for."""


NOTHING_SAID = EdgeTraits()


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
    loop: LoopTraits | None = None
    """Set where feedback edges return to: it is the head of a loop."""

    @property
    def output(self) -> StreamType | None:
        return self.step.output if self.step else None


@dataclass(frozen=True)
class LogicalEdge:
    producer: LogicalNode
    consumer: LogicalNode
    traits: EdgeTraits
    type: StreamType | None
    """What the producer puts out."""
    port: int = 0
    tag: str | None = None
    columns: tuple[str, ...] | None = None
    """Only these are sent, where the consumer is known to need no others."""
    feedback: bool = False


@dataclass(frozen=True)
class Finding:
    """A problem with a node, kept by the node and not by its name: the user may name it later in the same
    line."""

    node: LogicalNode | None
    message: str
    call: tuple[str, SourceLocation] | None = None
    """The API call and its line, where it adds no operator of its own."""

    def to_problem(self) -> Problem:
        if self.call is not None:
            return Problem(self.message, *self.call)
        if self.node is not None:
            return Problem(self.message, self.node.name, self.node.location)
        return Problem(self.message)


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

    def refuse_call(self, method: str, message: str) -> None:
        """A problem with a call that adds no operator; must be called below the user's frame."""
        self.problems.append(Finding(None, message, (method, user_location())))

    def warn(self, node: LogicalNode, message: str) -> None:
        self.warnings.append(Finding(node, message))

    def inputs_of(self, node: LogicalNode) -> list[LogicalEdge]:
        return [edge for edge in self.edges if edge.consumer is node]

    def outputs_of(self, node: LogicalNode) -> list[LogicalEdge]:
        return [edge for edge in self.edges if edge.producer is node]
