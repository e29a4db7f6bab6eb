"""What must be true of a job's regions: whether its cuts cut, and what was declared of them can hold."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import Exchange, JobEdge, JobGraph, JobVertex, Partitioning
from snapshot_engine.graph.problems import Problem
from snapshot_engine.graph.regions import cuts
from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.failover import Strategy


def edge_name(graph: JobGraph, edge: JobEdge) -> str:
    """How messages to the user name an edge."""
    producer, consumer = graph.vertices[edge.producer], graph.vertices[edge.consumer]
    return f"{producer.operators[-1].name!r} -> {consumer.operators[0].name!r}"


def check_strategy(execution: ExecutionGraph, strategy: Strategy) -> Iterator[Problem]:
    """Individual restarts one slot: only where every slot is its own region, and takes no other along."""
    if strategy is not Strategy.INDIVIDUAL:
        return
    yield from _edges_that_take_consumers_along(execution)
    graph = execution.graph
    for edge in graph.edges:
        several = len(execution.region_of[SubtaskId(edge.producer, 0)].slots()) > 1
        if edge.partitioning is not Partitioning.FORWARD and several and _within_one_region(execution, edge):
            how = (
                f"is {edge.exchange.value}, but its regions depend on each other in a cycle, which"
                if cuts(edge)
                else f"is {edge.exchange.value} and"
            )
            yield _problem(
                graph.vertices[edge.consumer],
                f"recovery strategy Individual is not possible: the {edge.partitioning.value} edge "
                f"{edge_name(graph, edge)} {how} joins several slots into one region; "
                "cut it with a committed, durable or memory exchange, or use strategy Region",
            )


def _edges_that_take_consumers_along(execution: ExecutionGraph) -> Iterator[Problem]:
    graph = execution.graph
    for edge in graph.edges:
        exchange = execution.exchange_of(edge)
        producer = graph.vertices[edge.producer]
        if exchange.cuts_regions and not exchange.producer_may_restart_alone(producer.declared_deterministic):
            cure = (
                "make it committed"
                if exchange is Exchange.BLOCKING
                else "make it committed, or declare its producer deterministic"
            )
            yield _problem(
                graph.vertices[edge.consumer],
                f"recovery strategy Individual is not possible: the {exchange.value} exchange {edge_name(graph, edge)} "
                f"restarts its consumers with its producer; {cure}, or use strategy Region",
            )


def _within_one_region(execution: ExecutionGraph, edge: JobEdge) -> bool:
    """One pair of subtasks tells it: the ends of an all-to-all edge are in one region all or none."""
    producer, consumer = SubtaskId(edge.producer, 0), SubtaskId(edge.consumer, 0)
    return execution.region_of[producer] is execution.region_of[consumer]


def check_cuts(execution: ExecutionGraph) -> Iterator[tuple[Problem, bool]]:
    """Exchanges whose two ends are in one region all the same, and whether that is an error.

    A blocking one would wait for itself. The others only cost time.
    """
    graph = execution.graph
    for edge in graph.edges:
        if cuts(edge) and _within_one_region(execution, edge):
            blocking = edge.exchange is Exchange.BLOCKING
            consequence = "so its consumer would have to start before it ends" if blocking else "so it cuts nothing"
            yield (
                _problem(
                    graph.vertices[edge.consumer],
                    f"the {edge.exchange.value} exchange {edge_name(graph, edge)} joins two ends of one "
                    f"region (another path between them is pipelined, or leads back), {consequence}; "
                    "cut the other path as well, or leave this edge pipelined",
                ),
                blocking,
            )


def check_determinism(execution: ExecutionGraph) -> Iterator[Problem]:
    """A declaration holds for a whole region; each reason against it is named, with its operator."""
    graph = execution.graph
    declared = [vertex for vertex in graph.vertices.values() if vertex.declared_deterministic]
    for vertex in declared:
        for other in region_mates(execution, vertex.uid):
            for reason in _reasons_against(graph, graph.vertices[other]):
                yield _problem(
                    vertex,
                    f"declared deterministic, but {reason}: the same rows in the same order cannot be "
                    "promised; leave out deterministic(), or cut the region before it",
                )


def region_mates(execution: ExecutionGraph, vertex: str) -> list[str]:
    """The vertices that share a region with `vertex`, itself included, in the order of the graph."""
    parallelism = execution.graph.vertices[vertex].parallelism
    regions = {execution.region_of[SubtaskId(vertex, index)].id for index in range(parallelism)}
    mates = {other for number in regions for other in execution.regions[number].vertices()}
    return [uid for uid in execution.graph.vertices if uid in mates]


def _reasons_against(graph: JobGraph, vertex: JobVertex) -> Iterator[str]:
    channels = 0
    for edge in graph.inputs_of(vertex.uid):
        forward = edge.partitioning is Partitioning.FORWARD
        channels += 1 if forward else graph.vertices[edge.producer].parallelism
    if channels > 1:
        yield f"{vertex.operators[0].name!r} has {channels} input channels, whose rows meet in no fixed order"
    yield from _reasons_of_the_source(vertex)
    for edge in graph.outputs_of(vertex.uid):
        if edge.partitioning is Partitioning.REBALANCE and graph.vertices[edge.consumer].parallelism > 1:
            yield f"{vertex.operators[-1].name!r} hands whole batches out in turn, which are cut differently each time"
    for operator in vertex.operators:
        if operator.nondeterminism:
            yield f"{operator.name!r} at {operator.location} is not: {operator.nondeterminism}"


def _reasons_of_the_source(vertex: JobVertex) -> Iterator[str]:
    """Splits that are read in turn meet in an order that depends on when each had rows."""
    source = vertex.operators[0].source
    if source is None or getattr(source, "sequential", False):
        return
    try:
        splits = -(-len(source.splits(vertex.parallelism)) // vertex.parallelism)
    except Exception as error:
        yield f"the splits of {vertex.operators[0].name!r} cannot be listed ({error}), and it may have several"
        return
    if splits > 1:
        yield f"{vertex.operators[0].name!r} reads {splits} splits in turn, whose rows meet in no fixed order"


def _problem(vertex: JobVertex, message: str) -> Problem:
    return Problem(message, vertex.operators[0].name, vertex.operators[0].location)
