"""The plan as a picture, drawn without any other program."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from snapshot_engine.graph.layered_layout import MARGIN, Box, Layout, place
from snapshot_engine.graph.plan_dot import edge_label
from snapshot_engine.graph.plan_view import EdgeView, PlanView, VertexView

LINE = 17.0
CHARACTER = 7.0
PADDING = 12.0
FONT = "font-family=\"ui-sans-serif, 'Segoe UI', Helvetica, Arial, sans-serif\""
TINTS = ("#dbeafe", "#dcfce7", "#fef3c7", "#fce7f3", "#ede9fe", "#cffafe", "#ffedd5", "#e2e8f0")
"""One per group of regions: boxes of one colour restart together."""


def plan_as_svg(view: PlanView) -> str:
    header = 2 * LINE + MARGIN
    sizes = {vertex.uid: _size(vertex) for vertex in view.vertices}
    arcs = [(edge.producer, edge.consumer) for edge in view.edges if not edge.feedback]
    layout = place(sizes, arcs, top=header + LINE)
    boxes = layout.boxes
    width = max((box.x + box.width for box in boxes.values()), default=0) + MARGIN
    drawn = [*boxes.values(), *(passage for passages in layout.detours.values() for passage in passages)]
    bottom = max((box.y + box.height for box in drawn), default=header) + MARGIN
    height = bottom + LINE * len(view.groups) + MARGIN
    width = max(width, 2 * MARGIN + CHARACTER * max(map(len, _legend(view)), default=0) + 24)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" {FONT} font-size="12">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#475569"/></marker></defs>',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>',
        f'<text x="{MARGIN}" y="{MARGIN}" font-size="16" font-weight="600">{escape(view.job)}</text>',
        f'<text x="{MARGIN}" y="{MARGIN + LINE}" fill="#64748b">{escape(_summary(view))}</text>',
        *(part for edge in view.edges for part in _edge(edge, layout)),
        *(part for vertex in view.vertices for part in _vertex(vertex, boxes[vertex.uid], _tint(view, vertex))),
        *_legend_rows(view, bottom),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _size(vertex: VertexView) -> tuple[float, float]:
    lines = [_title(vertex), *(_operator_line(vertex, index) for index in range(len(vertex.operators)))]
    return (
        max(110.0, CHARACTER * max(map(len, lines)) + 2 * PADDING),
        LINE * len(lines) + 2 * PADDING,
    )


def _title(vertex: VertexView) -> str:
    return f"{vertex.uid} ×{vertex.parallelism}"


def _operator_line(vertex: VertexView, index: int) -> str:
    operator = vertex.operators[index]
    return f"{operator.name}{' (state)' if operator.stateful else ''}"


def _summary(view: PlanView) -> str:
    regions = sum(len(group.regions) for group in view.groups)
    latency = f" · {view.latency}" if view.latency else ""
    return f"{regions} region{'' if regions == 1 else 's'} · {view.slots} slots{latency}"


def _tint(view: PlanView, vertex: VertexView) -> str:
    number = next(index for index, group in enumerate(view.groups) if vertex.uid in group.vertices)
    return TINTS[number % len(TINTS)]


def _vertex(vertex: VertexView, box: Box, tint: str) -> Iterator[str]:
    where = "&#10;".join(escape(f"{operator.name}: {operator.location}") for operator in vertex.operators)
    yield f"<g><title>{where}</title>"
    yield (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="8" '
        f'fill="{tint}" stroke="#475569"/>'
    )
    y = box.y + PADDING + LINE * 0.75
    yield f'<text x="{box.x + PADDING:.1f}" y="{y:.1f}" font-weight="600">{escape(_title(vertex))}</text>'
    for index in range(len(vertex.operators)):
        y += LINE
        text = escape(_operator_line(vertex, index))
        yield f'<text x="{box.x + PADDING:.1f}" y="{y:.1f}">{text}</text>'
    yield "</g>"


def _edge(edge: EdgeView, layout: Layout) -> Iterator[str]:
    start, end = layout.boxes[edge.producer], layout.boxes[edge.consumer]
    x, y = start.x + start.width, start.middle
    path = f"M{x:.1f},{y:.1f}"
    if edge.feedback:
        low = max(start.y + start.height, end.y + end.height) + 30
        path += f" C{x + 60:.1f},{low:.1f} {end.x - 60:.1f},{low:.1f} {end.x:.1f},{end.middle:.1f}"
        label_x, label_y = (x + end.x) / 2, low
    else:
        passages = layout.detours[edge.producer, edge.consumer]
        first = passages[0] if passages else end
        label_x, label_y = (x + first.x) / 2, (y + first.middle) / 2 - 6
        for passage in passages:
            path += _curve(x, y, passage.x, passage.middle) + f" H{passage.x + passage.width:.1f}"
            x, y = passage.x + passage.width, passage.middle
        path += _curve(x, y, end.x, end.middle)
    dash = ' stroke-dasharray="6 4"' if edge.cuts or edge.feedback else ""
    yield f'<path d="{path}" fill="none" stroke="#475569"{dash} marker-end="url(#arrow)"/>'
    yield from _edge_labels(edge_label(edge).split("\n"), label_x, label_y)


def _curve(x1: float, y1: float, x2: float, y2: float) -> str:
    bend = (x2 - x1) / 2
    return f" C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"


def _edge_labels(lines: list[str], x: float, y: float) -> Iterator[str]:
    for index, line in enumerate(lines):
        line_y = y - LINE * 0.8 * (len(lines) - 1 - index)
        yield (
            f'<text x="{x:.1f}" y="{line_y:.1f}" text-anchor="middle" font-size="10" fill="#334155" '
            f'stroke="white" stroke-width="3" paint-order="stroke">{escape(line)}</text>'
        )


def _legend(view: PlanView) -> list[str]:
    rows = []
    for group in view.groups:
        several = len(group.regions) > 1
        what = f"{len(group.regions)} regions of" if several else f"region {group.regions[0]}:"
        cut = {edge.exchange: edge.latency for edge in view.edges if edge.id in group.cut_by}
        because = "; ".join(f"{name}: adds {added}" if added else name for name, added in cut.items())
        rows.append(f"{what} {', '.join(group.vertices)}{f' (cut by {because})' if because else ''}")
    return rows


def _legend_rows(view: PlanView, top: float) -> Iterator[str]:
    for index, text in enumerate(_legend(view)):
        y = top + LINE * index
        tint = TINTS[index % len(TINTS)]
        yield f'<rect x="{MARGIN}" y="{y:.1f}" width="12" height="12" rx="3" fill="{tint}" stroke="#94a3b8"/>'
        yield f'<text x="{MARGIN + 20}" y="{y + 10:.1f}" fill="#334155">{escape(text)}</text>'
