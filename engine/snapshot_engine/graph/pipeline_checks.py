"""What must be true of the operators and edges a pipeline has, before they are chained.

Every check adds what it finds to the graph's problems or warnings and goes on: a user should see all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from snapshot_engine.graph.chaining import ResolvedEdge
from snapshot_engine.graph.job_graph import Exchange, Partitioning
from snapshot_engine.graph.logical import Finding, LogicalGraph, LogicalNode


def check_ends(graph: LogicalGraph) -> None:
    """Every stream leads to a sink, every sink has an input."""
    if not graph.nodes:
        graph.problems.append(Finding(None, "the pipeline function added nothing: begin with env.from_source(...)"))
    reads = {edge.consumer for edge in graph.edges}
    is_read = {edge.producer for edge in graph.edges}
    for node in graph.nodes:
        if node.sink is not None and node not in reads:
            graph.refuse(node, "this sink has no input")
        if node.sink is None and node.source is None and node not in reads:
            graph.refuse(node, "this operator has no input")
        if node.sink is None and node not in is_read:
            graph.refuse(node, "its stream leads nowhere: end it with sink_to(...), or leave it out")


def check_names(graph: LogicalGraph) -> None:
    """Names go into plans, metrics and derived uids. What is none is made one, so that the other checks can go on."""
    for node in graph.nodes:
        if not isinstance(node.name, str) or not node.name:
            given, node.name = node.name, repr(node.name)
            graph.refuse(node, f"its name is {given!r}, but must be text")


def check_late_outputs(graph: LogicalGraph) -> None:
    read = {(edge.producer, edge.tag) for edge in graph.edges}
    for node in graph.nodes:
        for tag in node.step.side_outputs if node.step else ():
            if (node, tag) not in read:
                graph.warn(node, f"late_output({tag!r}) is never read: call side_output({tag!r}) on the result")


def check_uids_of_state(graph: LogicalGraph, uids: Mapping[LogicalNode, str]) -> None:
    """A derived uid lasts only as long as the pipeline before it stays as it is."""
    for node in graph.nodes:
        if node.uid is None and node.step and node.step.stateful and not node.step.uid_by_input:
            graph.warn(
                node,
                f'it keeps state but has no uid; add .uid("...") (now: {uids[node]!r}), or a change of the '
                "pipeline may make its state unknown",
            )


def check_sinks(graph: LogicalGraph, exactly_once: bool, required: bool) -> None:
    """A sink that shows rows at once makes an exactly-once job at-least-once from end to end."""
    for node in graph.nodes:
        if exactly_once and node.sink is not None and not getattr(node.sink, "exactly_once", True):
            message = (
                "the job is ExactlyOnce, but this sink is not: after a failure it may show rows again; "
                "use a transactional sink, or set checkpoint.mode to AtLeastOnce"
            )
            (graph.refuse if required else graph.warn)(node, message)


def check_parallelism(graph: LogicalGraph, parallelism: Mapping[LogicalNode, int], key_groups: int) -> None:
    for node in graph.nodes:
        count = parallelism[node]
        if node.keyed and count > key_groups:
            graph.refuse(
                node,
                f"its parallelism {count} is more than the job's {key_groups} key groups: "
                f"{count - key_groups} subtasks would never get a row; use .parallelism({key_groups}) "
                "or less, or set env.key_groups before the job's first start",
            )


def check_edges(graph: LogicalGraph, edges: list[ResolvedEdge], parallelism: Mapping[LogicalNode, int]) -> None:
    for edge in edges:
        _check_forward(graph, edge, parallelism)
        _check_keyed(graph, edge)
        _check_exchange(graph, edge)


def _check_forward(graph: LogicalGraph, edge: ResolvedEdge, parallelism: Mapping[LogicalNode, int]) -> None:
    producer, consumer = edge.logical.producer, edge.logical.consumer
    if edge.partitioning is Partitioning.FORWARD and parallelism[producer] != parallelism[consumer]:
        graph.refuse(
            consumer,
            f"forward edge from {producer.name!r}, which has parallelism {parallelism[producer]}, to "
            f"{consumer.name!r} with {parallelism[consumer]}: give both the same, or use rebalance()",
        )


def _check_keyed(graph: LogicalGraph, edge: ResolvedEdge) -> None:
    known = edge.logical.consumer.step is not None
    by_key = edge.partitioning is Partitioning.HASH or edge.logical.traits.already_keyed
    if edge.logical.consumer.keyed and known and not by_key:
        graph.refuse(
            edge.logical.consumer,
            f"it keeps state by key, but its input from {edge.logical.producer.name!r} is not keyed: "
            "call key_by(...) right before it",
        )


def _check_exchange(graph: LogicalGraph, edge: ResolvedEdge) -> None:
    traits, consumer = edge.logical.traits, edge.logical.consumer
    name = f"the {edge.exchange.value} exchange from {edge.logical.producer.name!r}"
    if traits.location is not None and traits.exchange is not None:
        name += f" ({traits.location})"
    if traits.budget_bytes is not None and not edge.exchange.replays:
        graph.refuse(consumer, f"{name} has no budget: only memory and durable exchanges keep a log")
    elif traits.budget_bytes is not None and traits.budget_bytes <= 0:
        graph.refuse(consumer, f"{name}: its budget must be more than 0 bytes")
    if edge.logical.feedback and edge.exchange is not Exchange.PIPELINED:
        graph.refuse(consumer, f"{name} is a feedback edge: a loop is always one region, use pipelined")
    if edge.exchange is Exchange.BLOCKING:
        endless = _unbounded_sources(graph, edge.logical.producer)
        if endless:
            graph.refuse(
                consumer,
                f"{name} would wait for ever: it hands on its whole input at its end, and source "
                f"{endless[0].name!r} at {endless[0].location} has none; use committed, durable or memory",
            )


def _unbounded_sources(graph: LogicalGraph, node: LogicalNode) -> list[LogicalNode]:
    seen: set[LogicalNode] = set()
    waiting = [node]
    while waiting:
        upstream = waiting.pop()
        if upstream not in seen:
            seen.add(upstream)
            waiting.extend(edge.producer for edge in graph.inputs_of(upstream))
    return [
        found
        for found in graph.nodes
        if found in seen and found.source is not None and not getattr(found.source, "bounded", True)
    ]
