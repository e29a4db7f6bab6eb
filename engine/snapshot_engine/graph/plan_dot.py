"""The plan in Graphviz' language, for whoever has it."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_engine.graph.plan_text import shown_keys
from snapshot_engine.graph.plan_view import EdgeView, PlanView, VertexView


def plan_as_dot(view: PlanView) -> str:
    return "\n".join(_lines(view)) + "\n"


def _lines(view: PlanView) -> Iterator[str]:
    yield f"digraph {_quoted(view.job)} {{"
    yield "  rankdir=LR;"
    yield '  node [shape=box, style="rounded,filled", fillcolor=white, fontname="sans-serif"];'
    yield '  edge [fontname="sans-serif", fontsize=10];'
    for number, group in enumerate(view.groups):
        label = f"{len(group.regions)} regions" if len(group.regions) > 1 else f"region {group.regions[0]}"
        yield f"  subgraph cluster_{number} {{"
        yield f"    label={_quoted(label)}; style=filled; color=gray92;"
        for uid in group.vertices:
            yield f"    {_quoted(uid)} [label={_quoted(_vertex_label(view.vertex(uid)))}];"
        yield "  }"
    for edge in view.edges:
        style = "dashed" if edge.cuts or edge.feedback else "solid"
        label = _quoted(edge_label(edge))
        yield f"  {_quoted(edge.producer)} -> {_quoted(edge.consumer)} [label={label}, style={style}];"
    yield "}"


def _vertex_label(vertex: VertexView) -> str:
    return "\n".join([f"{vertex.uid} ×{vertex.parallelism}", *(operator.name for operator in vertex.operators)])


def edge_label(edge: EdgeView) -> str:
    keys = f" {', '.join(shown_keys(edge))}" if edge.keys else ""
    lines = [f"{edge.partitioning}{keys}"]
    if edge.tag is not None:
        lines.append(f"side output {edge.tag}")
    if edge.exchange != "pipelined":
        lines.append(edge.exchange)
    if edge.feedback:
        lines.append("feedback")
    return "\n".join(lines)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
