"""The job graph as the runtime sees it: vertices of chained operators, and the edges between them.

Made from the logical graph that the API builds; everything in it pickles, since Spark ships it to the slots.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from snapshot_engine.operators.operator import Operator
from snapshot_engine.operators.stream_type import EventTime, StreamType
from snapshot_engine.protocol.exchanges import Exchange as Exchange

if TYPE_CHECKING:
    from snapshot_engine.operators.combining import Combining

DEFAULT_KEY_GROUPS = 128
DEFAULT_LOOP_BUDGET = 64 << 20
"""In how many parts keyed state is dealt out; never changes for a job."""


class Partitioning(Enum):
    """Which consumer subtask gets a row."""

    FORWARD = "forward"  # the subtask with the same index; both sides have the same parallelism
    HASH = "hash"  # by key group of the key columns
    REBALANCE = "rebalance"  # whole batches in turn
    BROADCAST = "broadcast"  # every subtask gets every row


@dataclass(frozen=True)
class SourceLocation:
    """Where in the user's file an operator was written, for every message about it."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class OperatorNode:
    """One operator of a chain: a factory that makes a fresh instance for each subtask."""

    uid: str
    name: str
    factory: Callable[[], Operator]
    location: SourceLocation
    stateful: bool = False
    source: Any = None
    """The Source object, where the operator reads one: the driver has it materialised if it needs that."""
    sink: Any = None
    """The Sink object, where the operator is one: the JobMaster commits through it."""
    nondeterminism: str | None = None
    """Why the same input may give another output sequence (timers by clock, output with watermarks)."""
    makes_watermarks: bool = False
    """Whether event time begins with it: for each split apart, where the source is in its chain."""
    takes_silence_for_idle: bool = False
    """Whether rows that do not come may mean that the source in its chain has none."""
    max_drift_ms: int | None = None
    """How far the splits of the source in its chain may be ahead of the slowest; None: as far as they like."""


@dataclass(frozen=True)
class LoopTraits:
    """What was said of a loop, kept at its head."""

    rounds: bool = False
    """Whether what comes back waits until everything of the round before is done."""
    budget_bytes: int = DEFAULT_LOOP_BUDGET
    """How much the head keeps in memory of what is on its way round; the rest lies on the slot's disk."""


@dataclass(frozen=True)
class JobVertex:
    """A chain of operators that runs as one subtask per parallel instance. Its uid is that of its first
    operator."""

    uid: str
    name: str
    parallelism: int
    operators: tuple[OperatorNode, ...]
    is_source: bool
    declared_deterministic: bool = False
    """The user's word for the whole region; planning refuses it where it cannot hold."""
    loop: LoopTraits | None = None
    """Set if its first operator is the head of a loop: the feedback edges return to it."""


@dataclass(frozen=True)
class JobEdge:
    """A connection between two vertices. Data leaves the producer's chain at its last operator, by `tag`."""

    id: int
    producer: str
    consumer: str
    partitioning: Partitioning
    exchange: Exchange
    schema: pa.Schema
    """Of the producer's output, before `columns` are picked from it."""
    port: int = 0
    """At which input of the consumer's first operator the data arrives."""
    tag: str | None = None
    """None: the main output; else the side output of that name."""
    key_columns: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    """Only these columns are sent, where the consumer is known to need no others."""
    combining: Combining | None = None
    """Rows of one key are combined before they are sent, where that makes them much fewer."""
    feedback: bool = False
    """Closes a loop: not counted when the graph is checked for cycles."""
    budget_bytes: int | None = None
    """How much a memory or durable exchange may keep per producer subtask; None: the job's default."""
    event_time: EventTime | None = None
    """Where the producer's rows carry their event time: records become rows by it."""

    @property
    def uid(self) -> str:
        """How checkpoints name what the edge keeps: stable over restarts, and unlike its number over changed graphs."""
        side = f"#{self.tag}" if self.tag is not None else ""
        return f"{self.producer}{side}->{self.consumer}.{self.port}"

    @property
    def type(self) -> StreamType:
        """Of the producer's output, before `columns` are picked from it."""
        return StreamType(self.schema, self.event_time)

    @property
    def sent_schema(self) -> pa.Schema:
        """What crosses the edge: the producer's columns, those that the consumer needs, or what is made of them."""
        if self.combining is not None:
            return self.combining.sent_schema()
        if self.columns is None:
            return self.schema
        return pa.schema([self.schema.field(name) for name in self.columns])


@dataclass(frozen=True)
class JobGraph:
    name: str
    vertices: Mapping[str, JobVertex]
    edges: tuple[JobEdge, ...]
    key_groups: int = DEFAULT_KEY_GROUPS
    options: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    """What planning found doubtful, each with the operator and its line."""

    def inputs_of(self, vertex: str) -> list[JobEdge]:
        return [edge for edge in self.edges if edge.consumer == vertex]

    def outputs_of(self, vertex: str) -> list[JobEdge]:
        return [edge for edge in self.edges if edge.producer == vertex]
