"""Where boxes go in a picture of a graph that flows from left to right: layers, few crossings, no overlaps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

GAP_X = 150.0
GAP_Y = 36.0
MARGIN = 40.0
PASSAGE = 16.0
"""The height that is kept free for an arc that passes a layer."""


@dataclass(frozen=True)
class Box:
    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


@dataclass(frozen=True)
class Layout:
    boxes: Mapping[str, Box]
    detours: Mapping[tuple[str, str], Sequence[Box]]
    """For each arc that passes layers: the free places in them through which it goes."""


def place(sizes: Mapping[str, tuple[float, float]], arcs: Sequence[tuple[str, str]], top: float = MARGIN) -> Layout:
    """A box for every node, in the layer behind all it depends on; arcs over several layers get room in each."""
    depth = _depths(list(sizes), arcs)
    detours = {
        (start, end): [f"{start}\0{end}\0{layer}" for layer in range(depth[start] + 1, depth[end])]
        for start, end in arcs
    }
    between = {node: (0.0, PASSAGE) for nodes in detours.values() for node in nodes}
    steps = [step for (start, end), nodes in detours.items() for step in pairwise([start, *nodes, end])]
    every = {**sizes, **between}
    boxes = _place_layers(_ordered(_layers(list(every), _depths(list(every), steps)), steps), every, top)
    return Layout(
        {node: boxes[node] for node in sizes},
        {arc: [boxes[node] for node in nodes] for arc, nodes in detours.items()},
    )


def _place_layers(
    layers: Sequence[Sequence[str]], sizes: Mapping[str, tuple[float, float]], top: float
) -> dict[str, Box]:
    tallest = max((_height(layer, sizes) for layer in layers), default=0.0)
    boxes: dict[str, Box] = {}
    x = MARGIN
    for layer in layers:
        y = top + (tallest - _height(layer, sizes)) / 2
        width = max(sizes[node][0] for node in layer)
        for node in layer:
            own, height = sizes[node]
            # A passage is as wide as its layer, so that an arc crosses the layer in a straight line.
            boxes[node] = Box(x + (width - own) / 2, y, own, height) if own else Box(x, y, width, height)
            y += height + GAP_Y
        x += width + GAP_X
    return boxes


def _height(layer: Sequence[str], sizes: Mapping[str, tuple[float, float]]) -> float:
    return sum(sizes[node][1] for node in layer) + GAP_Y * (len(layer) - 1)


def _depths(nodes: Sequence[str], arcs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """The longest path from a node without inputs. `arcs` have no cycle."""
    depth = dict.fromkeys(nodes, 0)
    for _ in nodes:
        before = dict(depth)
        for start, end in arcs:
            depth[end] = max(depth[end], depth[start] + 1)
        if depth == before:
            break
    return depth


def _layers(nodes: Sequence[str], depth: Mapping[str, int]) -> list[list[str]]:
    layers: dict[int, list[str]] = defaultdict(list)
    for node in nodes:
        layers[depth[node]].append(node)
    return [layers[number] for number in sorted(layers)]


def _ordered(layers: list[list[str]], arcs: Sequence[tuple[str, str]]) -> list[list[str]]:
    """Each layer by the mean place of its neighbours, swept to and fro until little changes."""
    before: dict[str, list[str]] = defaultdict(list)
    after: dict[str, list[str]] = defaultdict(list)
    for start, end in arcs:
        before[end].append(start)
        after[start].append(end)
    for sweep in range(6):
        neighbours = before if sweep % 2 == 0 else after
        places = {node: index for layer in layers for index, node in enumerate(layer)}
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            layer.sort(key=lambda node: _mean(neighbours[node], places, places[node]))
            places.update({node: index for index, node in enumerate(layer)})
    return layers


def _mean(nodes: Sequence[str], places: Mapping[str, int], otherwise: int) -> float:
    return sum(places[node] for node in nodes) / len(nodes) if nodes else float(otherwise)
