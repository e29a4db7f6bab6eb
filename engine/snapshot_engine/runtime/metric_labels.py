"""The values of the labels `vertex` and `region`, bounded in number whatever the job looks like.

Regions that consist of the same vertices, such as the 128 of a forward pipeline, share one value. Of very many
vertices the last ones share one as well.
"""

from __future__ import annotations

from collections import defaultdict

from snapshot_engine.graph.execution import ExecutionGraph

MOST_VALUES = 32
THE_REST = "other"


class MetricLabels:
    def __init__(self, graph: ExecutionGraph) -> None:
        vertices = list(graph.graph.vertices.values())
        self._vertices = {
            vertex.uid: vertex.uid if number < MOST_VALUES else THE_REST for number, vertex in enumerate(vertices)
        }
        self._operators = {node.uid: vertex.uid for vertex in vertices for node in vertex.operators}
        self._regions = _shared_names(graph)
        sinks = {vertex.uid for vertex in vertices if any(node.sink is not None for node in vertex.operators)}
        self._sinks = {
            region.id: [subtask.vertex for subtask in region.subtasks if subtask.vertex in sinks]
            for region in graph.regions
        }

    def vertex(self, uid: str) -> str:
        return self._vertices.get(uid, THE_REST)

    def vertices(self) -> list[str]:
        return list(dict.fromkeys(self._vertices.values()))

    def vertex_of_operator(self, uid: str) -> str:
        return self.vertex(self._operators.get(uid, uid))

    def region(self, number: int) -> str:
        return self._regions[number]

    def regions(self) -> list[str]:
        return sorted(set(self._regions.values()))

    def sinks_of(self, region: int) -> list[str]:
        """One for each sink subtask of the region."""
        return [self.vertex(uid) for uid in self._sinks[region]]

    def sink_vertices(self) -> list[str]:
        return sorted({self.vertex(uid) for uids in self._sinks.values() for uid in uids})


def _shared_names(graph: ExecutionGraph) -> dict[int, str]:
    alike: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for region in graph.regions:
        alike[tuple(region.vertices())].append(region.id)
    names: dict[int, str] = {}
    for number, regions in enumerate(alike.values()):
        name = str(regions[0]) if len(regions) == 1 else f"{regions[0]}-{regions[-1]}"
        names.update(dict.fromkeys(regions, name if number < MOST_VALUES else THE_REST))
    return names
