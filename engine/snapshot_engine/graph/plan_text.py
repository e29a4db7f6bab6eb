"""The plan as plain lines. Its warnings are not among them: whoever shows the plan tells them apart from it."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_engine.graph.plan_view import EdgeView, PlanView, RegionGroup, VertexView


def plan_as_text(view: PlanView) -> str:
    return "\n".join(_lines(view))


def _lines(view: PlanView) -> Iterator[str]:
    regions = sum(len(group.regions) for group in view.groups)
    yield (
        f"job {view.job}: {_count(len(view.vertices), 'vertex', 'vertices')}, {_count(regions, 'region')}, "
        f"{_count(view.slots, 'slot')}, {view.key_groups} key groups"
    )
    yield ""
    yield "vertices"
    for vertex in view.vertices:
        yield from _vertex_lines(vertex)
    if view.edges:
        yield ""
        yield "edges"
        for edge in view.edges:
            yield f"  {_edge_line(edge)}"
    yield ""
    yield "regions"
    for group in view.groups:
        yield from _group_lines(view, group)
    if view.latency:
        yield ""
        yield f"latency added by exchanges: {view.latency}"


def _vertex_lines(vertex: VertexView) -> Iterator[str]:
    known = (
        ("source", vertex.source),
        (vertex.drift, vertex.drift),
        ("deterministic", vertex.deterministic),
        (vertex.loop, vertex.loop),
    )
    traits = ", ".join(str(trait) for trait, holds in known if holds)
    yield f"  {vertex.uid} ×{vertex.parallelism}{f' ({traits})' if traits else ''}"
    width = max(len(operator.name) for operator in vertex.operators)
    for operator in vertex.operators:
        state = "  [state]" if operator.stateful else ""
        yield f"    {operator.name:<{width}}  uid {operator.uid}  {operator.location}{state}"


def _edge_line(edge: EdgeView) -> str:
    keys = f" by {', '.join(shown_keys(edge))}" if edge.keys else ""
    line = f"{edge.producer} -> {edge.consumer}: {edge.partitioning}{keys}, {edge.exchange}"
    if edge.tag is not None:
        line += f", side output {edge.tag!r}"
    if edge.port:
        line += f", input {edge.port}"
    if edge.feedback:
        line += ", feedback"
    if edge.columns is not None:
        line += f", sends {', '.join(edge.columns)}"
    if edge.combined:
        line += ", combined before the shuffle"
    if edge.cuts:
        line += f"; cuts regions{f', adds {edge.latency}' if edge.latency else ''}"
    return line


def shown_keys(edge: EdgeView) -> tuple[str, ...]:
    """A key that a function works out has no column that the user knows."""
    return tuple("a function" if key.startswith("__") else key for key in edge.keys)


def _group_lines(view: PlanView, group: RegionGroup) -> Iterator[str]:
    subtasks = ", ".join(_subtasks(view.vertex(uid), group) for uid in group.vertices)
    yield f"  {_numbers(group)}: {subtasks}; {_count(group.slots, 'slot')}{' each' if len(group.regions) > 1 else ''}"
    for edge in view.edges:
        if edge.id in group.cut_by:
            latency = f", adds {edge.latency}" if edge.latency else ""
            yield f"    cut by the {edge.exchange} exchange {edge.producer} -> {edge.consumer}{latency}"


def _numbers(group: RegionGroup) -> str:
    if len(group.regions) == 1:
        return f"region {group.regions[0]}"
    consecutive = group.regions[-1] - group.regions[0] + 1 == len(group.regions)
    shown = f"{group.regions[0]}-{group.regions[-1]}" if consecutive else ", ".join(map(str, group.regions))
    return f"regions {shown}"


def _subtasks(vertex: VertexView, group: RegionGroup) -> str:
    if len(group.regions) > 1:
        return f"{vertex.uid}[i]"
    return f"{vertex.uid}[{'0' if vertex.parallelism == 1 else f'0-{vertex.parallelism - 1}'}]"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or f'{one}s'}"
