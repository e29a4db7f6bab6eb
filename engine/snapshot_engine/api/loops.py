"""Loops: a stream that is iterated, with a body that says what goes round again and what leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from snapshot_engine.api.durations import size_in_bytes
from snapshot_engine.api.keyed import KeyedStream
from snapshot_engine.api.unions import difference
from snapshot_engine.graph.building import Input, Upstream, add_operator
from snapshot_engine.graph.job_graph import LoopTraits, Partitioning
from snapshot_engine.graph.logical import EdgeTraits, LogicalEdge, LogicalNode, Step
from snapshot_engine.graph.loops import comes_from
from snapshot_engine.operators.loop_head import LoopHeadOperator
from snapshot_engine.operators.stream_type import StreamType

if TYPE_CHECKING:
    from snapshot_engine.api.stream import DataStream

Body = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True)
class LoopOptions:
    """What `iterate` was told about the loop as a whole."""

    rounds: bool = False
    budget: str | int | None = None
    name: str | None = None
    uid: str | None = None
    parallelism: int | None = None


def iterate(stream: DataStream, body: Body, options: LoopOptions) -> Any:
    """Put a head behind `stream`, let `body` go on from it, and lead back what it says."""
    graph = stream.env.graph
    head = add_operator(graph, "iterate", [stream._end], _head, keyed=isinstance(stream, KeyedStream))
    head.name = options.name or f"iterate {getattr(body, '__name__', type(body).__name__)}".replace(" <lambda>", "")
    head.uid, head.parallelism = options.uid, options.parallelism
    try:
        head.loop = _traits(options)
    except ValueError as error:
        graph.refuse(head, str(error))
    again, out = _parts(stream, head, body(_inside(stream, head)))
    for returning in again:
        _lead_back(stream, head, returning)
    return out


def _head(input: StreamType) -> Step:
    return Step(LoopHeadOperator, input, stateful=True)


def _traits(options: LoopOptions) -> LoopTraits:
    if options.budget is None:
        return LoopTraits(options.rounds)
    budget = size_in_bytes(options.budget)
    if budget <= 0:
        raise ValueError(f"budget {options.budget!r} is no room at all: give the loop's head some memory, such as 64M")
    return LoopTraits(options.rounds, budget)


def _inside(stream: DataStream, head: LogicalNode) -> DataStream:
    """What the body is given. Rows of a keyed loop stay where their key belongs."""
    from snapshot_engine.api.stream import DataStream

    if not isinstance(stream, KeyedStream):
        return DataStream(stream.env, Input((Upstream(head),), head.output))
    traits = EdgeTraits(Partitioning.HASH, stream._keys, already_keyed=True)
    inside = KeyedStream(stream.env, Input((Upstream(head, None, traits),), head.output), stream._keys)
    inside._key_function = stream._key_function
    return inside


def _parts(stream: DataStream, head: LogicalNode, result: Any) -> tuple[list[DataStream], Any]:
    from snapshot_engine.api.stream import DataStream

    if not isinstance(result, tuple) or len(result) != 2:
        stream.env.graph.refuse(
            head, f"the body must return two things, `return again, out`, but returned {type(result).__name__}"
        )
        return [], stream
    again, out = result
    several: Sequence[Any] = again if isinstance(again, list | tuple) else [again]
    wrong = [one for one in several if not isinstance(one, DataStream)]
    if wrong or not several:
        what = f"{type(wrong[0]).__name__}" if wrong else "no stream at all"
        stream.env.graph.refuse(
            head, f"what goes round again must be a stream or a list of streams, not {what}: return again, out"
        )
    return [one for one in several if isinstance(one, DataStream)], out


def _lead_back(stream: DataStream, head: LogicalNode, again: DataStream) -> None:
    graph = stream.env.graph
    returning = _keyed_like(stream, again)
    end = returning._end
    problem = _why_not(stream, head, returning)
    if problem:
        graph.refuse(head, problem)
        return
    for upstream in end.upstreams:
        graph.edges.append(LogicalEdge(upstream.node, head, upstream.traits, end.type, 0, upstream.tag, feedback=True))


def _keyed_like(stream: DataStream, again: DataStream) -> DataStream:
    """In a keyed loop, what comes back goes to the owner of its key, without the body having to say so."""
    said = any(upstream.traits.partitioning is not None for upstream in again._end.upstreams)
    if not isinstance(stream, KeyedStream) or isinstance(again, KeyedStream) or said:
        return again
    keys = [stream._key_function] if stream._key_function is not None else stream._keys
    return again.key_by(*keys)


def _why_not(stream: DataStream, head: LogicalNode, again: DataStream) -> str | None:
    nodes = [upstream.node for upstream in again._end.upstreams]
    outside = [node for node in nodes if not comes_from(stream.env.graph, node, head)]
    if outside:
        return (
            f"{outside[0].name!r} at {outside[0].location} does not come from this loop, so it cannot go round in it: "
            "join it to the stream before iterate(...), with union"
        )
    other = difference(head.output, again._end.type)
    if other:
        return f"what goes round again is not what came in: {other}"
    if isinstance(stream, KeyedStream) and isinstance(again, KeyedStream) and again._keys != stream._keys:
        return (
            f"the loop is keyed by {', '.join(stream._keys)}, but what goes round again by {', '.join(again._keys)}: "
            "rows would come back to another subtask than the owner of their key"
        )
    return None
