"""What must be true of a pipeline's loops."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_engine.graph.chaining import ResolvedEdge
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobVertex
from snapshot_engine.graph.logical import LogicalGraph, LogicalNode
from snapshot_engine.graph.loops import edges_inside_loops
from snapshot_engine.graph.problems import Problem


def check_no_other_cycles(graph: LogicalGraph) -> None:
    """Without its feedback edges the graph has no cycle: barriers and watermarks must come to an end."""
    inputs = {node: {edge.producer for edge in graph.inputs_of(node) if not edge.feedback} for node in graph.nodes}
    done: set[LogicalNode] = set()
    while ready := [node for node in graph.nodes if node not in done and inputs[node] <= done]:
        done.update(ready)
    left = [node for node in graph.nodes if node not in done and _leads_back(node, inputs)]
    if left:
        way = ", ".join(f"{node.name!r} at {node.location}" for node in left)
        graph.refuse(
            left[0], f"it takes part in a cycle ({way}) that no iterate(...) closes: only a loop may lead back"
        )


def _leads_back(node: LogicalNode, inputs: dict[LogicalNode, set[LogicalNode]]) -> bool:
    seen: set[LogicalNode] = set()
    waiting = list(inputs[node])
    while waiting:
        upstream = waiting.pop()
        if upstream is node:
            return True
        if upstream not in seen:
            seen.add(upstream)
            waiting.extend(inputs[upstream])
    return False


def check_exchanges_inside(graph: LogicalGraph, edges: list[ResolvedEdge]) -> None:
    """A loop is one region: what is in flight inside it belongs to one snapshot."""
    inside = {id(edge) for edge in edges_inside_loops(graph.edges)}
    for edge in edges:
        logical = edge.logical
        if id(logical) in inside and not logical.feedback and edge.exchange.cuts_regions:
            graph.refuse(
                logical.consumer,
                f"the {edge.exchange.value} exchange {logical.producer.name!r} -> {logical.consumer.name!r} "
                f"({logical.traits.location}) lies inside a loop, and a loop is always one region: leave out "
                ".exchange(...) there, or move it before or behind the loop",
            )


def check_rounds(execution: ExecutionGraph) -> Iterator[Problem]:
    """A round ends when nothing moves in the whole region, so nothing else may begin there for ever."""
    vertices = execution.graph.vertices
    for region in execution.regions:
        members = [vertices[uid] for uid in region.vertices()]
        heads = [vertex for vertex in members if vertex.loop is not None and vertex.loop.rounds]
        for other in heads[1:]:
            yield _problem(
                other,
                f"a second loop with rounds in one region, beside {heads[0].operators[0].name!r} at "
                f"{heads[0].operators[0].location}: the rounds of both would end together; cut the region between "
                "them, or use rounds in one of them",
            )
        for vertex in members if heads else ():
            if vertex.is_source and not getattr(vertex.operators[0].source, "bounded", True):
                yield _problem(
                    heads[0],
                    f"its rounds would never begin: they do when the inputs have ended, and source "
                    f"{vertex.operators[0].name!r} at {vertex.operators[0].location} has no end; "
                    "leave out rounds=True, or use a bounded source",
                )


def _problem(vertex: JobVertex, message: str) -> Problem:
    return Problem(message, vertex.operators[0].name, vertex.operators[0].location)
