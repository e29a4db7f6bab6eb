"""A loop: which vertices of a graph hang together, while its edges still come in.

Every vertex knows the smallest number it has heard of, its component. When it learns of a smaller one it tells its
neighbours, who may tell theirs: messages go round the loop until there is no news. New edges may come at any time.

    streamingjob run examples/connected_components.yaml
    python examples/connected_components.py out/components     # draws out/components/components.png
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from snapshot_engine.api import Environment, KeyedProcessFunction, MapState, ValueState
from snapshot_engine.connectors.generated_columns import UniformInt
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.connectors.parquet_sink import ParquetSink

MESSAGE = "vertex long, neighbour long, component long"
"""To `vertex`: that it has an edge to `neighbour` (-1: no news), which belongs to `component`."""


def edges(count: int, vertices: int) -> GeneratorSource:
    columns = {"a": UniformInt(0, vertices, seed=1), "b": UniformInt(0, vertices, seed=2)}
    return GeneratorSource(columns, rate=5_000, count=count)


def both_ends(edge):
    yield {"vertex": edge.a, "neighbour": edge.b, "component": edge.a}
    yield {"vertex": edge.b, "neighbour": edge.a, "component": edge.b}


class Vertex(KeyedProcessFunction):
    def open(self, context) -> None:
        self.component = context.state(ValueState("component", int))
        self.neighbours = context.state(MapState("neighbours", int, bool))

    def process(self, message, context):
        known = self.component.value()
        best = min(message.component, context.current_key if known is None else known)
        if message.neighbour >= 0 and message.neighbour not in self.neighbours:
            self.neighbours.put(message.neighbour, True)
            yield self.tell(message.neighbour, best)
        if best != known:
            self.component.update(best)
            context.emit_side("components", {"vertex": context.current_key, "component": best})
            for neighbour in self.neighbours:
                yield self.tell(neighbour, best)

    def tell(self, vertex, component):
        return {"vertex": vertex, "neighbour": -1, "component": component}


def spread(messages):
    told = messages.process(Vertex(), schema=MESSAGE).uid("vertices")
    return told, told.side_output("components", schema="vertex long, component long")


def pipeline(env: Environment, out: str = "out/components", count: int = 1_200, vertices: int = 2_400) -> None:
    source = env.from_source(edges(count, vertices), name="edges", uid="edges")
    source.sink_to(ParquetSink(f"{out}/edges"), uid="edges-out")
    messages = source.flat_map(both_ends, schema=MESSAGE).key_by("vertex")
    messages.iterate(spread, uid="spread").sink_to(ParquetSink(f"{out}/components"), uid="components-out")


def components(out: str) -> dict[int, int]:
    """The last word on each vertex: the smallest, since it only ever gets smaller."""
    import pyarrow.parquet as pq

    last = pq.read_table(f"{out}/components").group_by("vertex").aggregate([("component", "min")])
    return dict(zip(last["vertex"].to_pylist(), last["component_min"].to_pylist(), strict=True))


def draw(out: str) -> Path:
    """The twelve largest components, each for itself."""
    import matplotlib

    matplotlib.use("Agg")
    import networkx as nx
    import pyarrow.parquet as pq
    from matplotlib import pyplot as plt

    table = pq.read_table(f"{out}/edges")
    graph = nx.Graph(zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True))
    found = components(out)
    sizes = Counter(found.values())
    figure, axes = plt.subplots(3, 4, figsize=(13, 10))
    for place, (component, size), colour in zip(axes.flat, sizes.most_common(12), plt.cm.tab20.colors, strict=False):
        part = graph.subgraph(vertex for vertex in graph if found[vertex] == component)
        layout = nx.kamada_kawai_layout(part) if size < 200 else nx.spring_layout(part, seed=1, iterations=30)
        nx.draw(part, layout, place, node_size=14, node_color=[colour], edge_color="grey")
        place.set_title(f"{size} vertices, the smallest is {component}", fontsize=9)
    figure.suptitle(f"{len(found)} vertices in {len(sizes)} components; the 12 largest")
    picture = Path(out) / "components.png"
    figure.savefig(picture, dpi=110)
    return picture


if __name__ == "__main__":
    print(draw(sys.argv[1] if len(sys.argv) > 1 else "out/components"))
