"""How the API puts an operator into the logical graph: its node, its edges, and what was wrong with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snapshot_engine.graph.call_site import user_location
from snapshot_engine.graph.columns import keep_columns
from snapshot_engine.graph.logical import (
    NOTHING_SAID,
    EdgeTraits,
    LogicalEdge,
    LogicalGraph,
    LogicalNode,
    Step,
)
from snapshot_engine.operators.stream_type import StreamType


@dataclass(frozen=True)
class Upstream:
    """One output of one node, and what was said about the edge that will leave it."""

    node: LogicalNode
    tag: str | None = None
    traits: EdgeTraits = NOTHING_SAID


@dataclass(frozen=True)
class Input:
    """What arrives at one port: one stream, or the union of several."""

    upstreams: tuple[Upstream, ...]
    type: StreamType | None

    def with_traits(self, **changes: Any) -> Input:
        """The same, its next edges changed."""
        changed = tuple(replace(one, traits=replace(one.traits, **changes)) for one in self.upstreams)
        return replace(self, upstreams=changed)


def add_operator(
    graph: LogicalGraph,
    kind: str,
    inputs: Sequence[Input],
    build: Callable[..., Step],
    *,
    keyed: bool = False,
) -> LogicalNode:
    """Add a node that reads `inputs`, port by port; `build` is given their types and says what the operator
    is.

    Whatever `build` raises becomes a problem of this node. It is not called where a type is unknown: the
    reason has been reported already.
    """
    node = graph.add_node(kind, user_location())
    node.keyed = keyed
    types = [port.type for port in inputs]
    if all(type is not None for type in types):
        try:
            step = build(*types)
            step.factory()  # what a constructor refuses should be known now, not in a slot
            node.step = step
        except Exception as error:
            graph.refuse(node, explain(error))
    for port, source in enumerate(inputs):
        _connect(graph, node, port, source)
    return node


def where_event_time_went(graph: LogicalGraph, source: Input) -> str | None:
    """The operator upstream that had event time at its input and has none at its output, told to the user."""
    waiting = [upstream.node for upstream in source.upstreams]
    while waiting:
        node = waiting.pop()
        inputs = [edge for edge in graph.inputs_of(node) if not edge.feedback]
        if node.output is not None and any(edge.type and edge.type.event_time for edge in inputs):
            column = next(edge.type.event_time.column for edge in inputs if edge.type and edge.type.event_time)
            return f"{node.name!r} at {node.location} does not keep its column {column!r}"
        waiting.extend(edge.producer for edge in inputs)
    return None


def explain(error: Exception) -> str:
    """Errors made for the user speak for themselves; any other is named by its type."""
    text = str(error) or repr(error)
    return text if isinstance(error, ValueError | TypeError) else f"{type(error).__name__}: {text}"


def _connect(graph: LogicalGraph, node: LogicalNode, port: int, source: Input) -> None:
    columns = _columns_to_send(node.step, source.type)
    for upstream in source.upstreams:
        if upstream.node not in graph.nodes:
            other = f"{upstream.node.name!r} at {upstream.node.location}"
            graph.refuse(node, f"its input {other} belongs to another Environment than this one")
            continue
        graph.edges.append(LogicalEdge(upstream.node, node, upstream.traits, source.type, port, upstream.tag, columns))


def _columns_to_send(step: Step | None, type: StreamType | None) -> tuple[str, ...] | None:
    if step is None or type is None or step.needs is None:
        return None
    columns = tuple(keep_columns(type.schema, step.needs).names)
    return columns if len(columns) < len(type.schema) else None
