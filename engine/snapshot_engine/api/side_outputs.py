"""Reading what an operator puts out beside its main output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from snapshot_engine.api.output_types import records_output
from snapshot_engine.api.schemas import SchemaLike, to_schema
from snapshot_engine.graph.building import Input, Upstream
from snapshot_engine.graph.logical import NOTHING_SAID, LogicalNode
from snapshot_engine.operators.stream_type import StreamType

if TYPE_CHECKING:
    from snapshot_engine.api.stream import DataStream


def read_side_output(stream: DataStream, tag: str, schema: SchemaLike | None) -> DataStream:
    from snapshot_engine.api.stream import DataStream

    upstream = stream._end.upstreams[0]
    if len(stream._end.upstreams) > 1 or upstream.traits != NOTHING_SAID or upstream.tag is not None:
        stream.env.graph.refuse_call("side_output", "it does not follow an operator: call it right after the one meant")
        return DataStream(stream.env, Input(stream._end.upstreams, None))
    try:
        type = _type_of(upstream.node, tag, schema)
    except (ValueError, TypeError) as error:
        stream.env.graph.refuse_call("side_output", str(error))
        type = None
    return DataStream(stream.env, Input((Upstream(upstream.node, tag),), type))


def _type_of(node: LogicalNode, tag: str, schema: SchemaLike | None) -> StreamType | None:
    if node.step is None:
        return None
    if tag in node.step.side_outputs:
        return node.step.side_outputs[tag]
    if node.step.any_side_output:
        return records_output(None if schema is None else to_schema(schema), node.step.output.event_time)
    there = ", ".join(repr(name) for name in node.step.side_outputs) or "none"
    raise ValueError(
        f"{node.name!r} has no side output {tag!r} (side outputs: {there}); "
        "late rows need late_output(tag) before the window's aggregate, "
        "others a process function that calls emit_side"
    )
