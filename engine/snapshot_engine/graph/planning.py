"""From what the pipeline said to what runs: chained, with uids, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from snapshot_engine.graph import loop_checks, pipeline_checks, region_checks
from snapshot_engine.graph.blocking_checks import check_blocking_results
from snapshot_engine.graph.chaining import ResolvedEdge, chains_of, resolve_edges
from snapshot_engine.graph.drift_groups import check_drifts, check_idleness, check_split_times
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import (
    DEFAULT_KEY_GROUPS,
    Exchange,
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorNode,
    Partitioning,
)
from snapshot_engine.graph.logical import LogicalGraph, LogicalNode
from snapshot_engine.graph.problems import PlanError, Problem
from snapshot_engine.graph.shipping_checks import check_shipping
from snapshot_engine.graph.uids import assign_uids
from snapshot_engine.operators.operator import Operator
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.protocol.failover import Strategy

if TYPE_CHECKING:
    from snapshot_engine.operators.combining import Combining


@dataclass(frozen=True)
class PlanOptions:
    """What the manifest says that planning has to know."""

    job: str = "job"
    parallelism: int = 1
    key_groups: int = DEFAULT_KEY_GROUPS
    exchange: Exchange = Exchange.PIPELINED
    mode: Mode = Mode.EXACTLY_ONCE
    strategy: Strategy = Strategy.REGION
    require_exactly_once_sinks: bool = False
    """Whether a sink that shows rows at once is an error in an ExactlyOnce job, instead of a warning."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Goes into the job graph's options as it is."""


def plan_graph(logical: LogicalGraph, options: PlanOptions) -> JobGraph:
    """The job graph, or PlanError with everything that is wrong."""
    pipeline_checks.check_names(logical)
    parallelism = _parallelism_of(logical, options.parallelism)
    uids = assign_uids(logical)
    edges = resolve_edges(logical, parallelism, options.exchange)
    pipeline_checks.check_ends(logical)
    pipeline_checks.check_late_outputs(logical)
    pipeline_checks.check_uids_of_state(logical, uids)
    exactly_once = options.mode is Mode.EXACTLY_ONCE
    pipeline_checks.check_sinks(logical, exactly_once, options.require_exactly_once_sinks)
    pipeline_checks.check_parallelism(logical, parallelism, options.key_groups)
    pipeline_checks.check_edges(logical, edges, parallelism)
    loop_checks.check_no_other_cycles(logical)
    loop_checks.check_exchanges_inside(logical, edges)
    check_shipping(logical, options.extra.get("local_modules", ()))
    problems = [finding.to_problem() for finding in logical.problems]
    warnings = [finding.to_problem() for finding in logical.warnings]
    graph = None
    if _has_a_shape(logical, edges, parallelism, uids):
        graph = _job_graph(logical, edges, parallelism, uids, options)
        graph = _check_regions(graph, options.strategy, problems, warnings)
    if problems or graph is None:
        raise PlanError(options.job, _in_order(problems))
    return replace(graph, warnings=tuple(str(warning) for warning in _in_order(warnings)))


def _parallelism_of(logical: LogicalGraph, default: int) -> dict[LogicalNode, int]:
    counts = {}
    for node in logical.nodes:
        count = default if node.parallelism is None else node.parallelism
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            logical.refuse(node, f"parallelism {count!r} is not a number of subtasks: give 1 or more")
            count = 1
        counts[node] = count
    return counts


def _has_a_shape(
    logical: LogicalGraph,
    edges: list[ResolvedEdge],
    parallelism: Mapping[LogicalNode, int],
    uids: Mapping[LogicalNode, str],
) -> bool:
    """Whether regions can be worked out, in spite of other problems: then theirs are reported too."""
    forward_fits = all(
        edge.partitioning.value != "forward" or parallelism[edge.logical.producer] == parallelism[edge.logical.consumer]
        for edge in edges
    )
    return bool(logical.nodes) and forward_fits and len(set(uids.values())) == len(uids)


def _job_graph(
    logical: LogicalGraph,
    edges: list[ResolvedEdge],
    parallelism: Mapping[LogicalNode, int],
    uids: Mapping[LogicalNode, str],
    options: PlanOptions,
) -> JobGraph:
    chains = chains_of(logical, edges)
    vertex_of = {node: uids[chain[0]] for chain in chains for node in chain}
    vertices = {uids[chain[0]]: _vertex(chain, parallelism, uids) for chain in chains}
    between = [
        edge
        for edge in edges
        if vertex_of[edge.logical.producer] != vertex_of[edge.logical.consumer] or edge.logical.feedback
    ]
    job_edges = tuple(_job_edge(number, edge, vertex_of, parallelism) for number, edge in enumerate(between))
    return JobGraph(options.job, vertices, job_edges, options.key_groups, dict(options.extra))


def _vertex(
    chain: list[LogicalNode], parallelism: Mapping[LogicalNode, int], uids: Mapping[LogicalNode, str]
) -> JobVertex:
    return JobVertex(
        uid=uids[chain[0]],
        name=" -> ".join(node.name for node in chain),
        parallelism=parallelism[chain[0]],
        operators=tuple(_operator(node, uids[node]) for node in chain),
        is_source=chain[0].source is not None,
        declared_deterministic=any(node.declared_deterministic for node in chain),
        loop=chain[0].loop,
    )


def _operator(node: LogicalNode, uid: str) -> OperatorNode:
    step = node.step
    return OperatorNode(
        uid=uid,
        name=node.name,
        factory=step.factory if step else _unknown_operator,
        location=node.location,
        stateful=bool(step and step.stateful),
        source=node.source,
        sink=node.sink,
        nondeterminism=step.nondeterminism if step else None,
        makes_watermarks=bool(step and step.makes_watermarks),
        takes_silence_for_idle=bool(step and step.takes_silence_for_idle),
        max_drift_ms=step.max_drift_ms if step else None,
    )


def _unknown_operator() -> Operator:
    raise AssertionError("a job graph with problems is never run")


def _job_edge(
    number: int,
    edge: ResolvedEdge,
    vertex_of: Mapping[LogicalNode, str],
    parallelism: Mapping[LogicalNode, int],
) -> JobEdge:
    logical = edge.logical
    sent = logical.type
    return JobEdge(
        id=number,
        producer=vertex_of[logical.producer],
        consumer=vertex_of[logical.consumer],
        partitioning=edge.partitioning,
        exchange=edge.exchange,
        schema=sent.schema if sent else pa.schema([]),
        port=logical.port,
        tag=logical.tag,
        key_columns=logical.traits.key_columns,
        columns=logical.columns,
        combining=_combining(edge, parallelism[logical.consumer]),
        feedback=logical.feedback,
        budget_bytes=logical.traits.budget_bytes,
        event_time=sent.event_time if sent else None,
    )


def _combining(edge: ResolvedEdge, consumers: int) -> Combining | None:
    """Only where rows are on their way and nowhere else: what exchanges keep is numbered row by row, and read by
    later versions. One consumer alone needs no shuffle that could be spared."""
    step = edge.logical.consumer.step
    shuffled = edge.partitioning is Partitioning.HASH and edge.exchange is Exchange.PIPELINED and consumers > 1
    if step is None or step.combining is None or not shuffled or edge.logical.feedback:
        return None
    return step.combining if step.combining.keys == edge.logical.traits.key_columns else None


def _check_regions(graph: JobGraph, strategy: Strategy, problems: list[Problem], warnings: list[Problem]) -> JobGraph:
    execution = ExecutionGraph(graph)
    problems.extend(region_checks.check_strategy(execution, strategy))
    for problem, is_error in (*region_checks.check_cuts(execution), *check_blocking_results(execution)):
        (problems if is_error else warnings).append(problem)
    problems.extend(region_checks.check_determinism(execution))
    problems.extend(check_drifts(graph))
    warnings.extend(check_split_times(graph))
    warnings.extend(check_idleness(graph))
    problems.extend(loop_checks.check_rounds(execution))
    return _spread_determinism(execution)


def _spread_determinism(execution: ExecutionGraph) -> JobGraph:
    """What is declared of one vertex is declared of its whole region: that is what restarts alone."""
    graph = execution.graph
    declared = {
        mate
        for vertex in graph.vertices.values()
        if vertex.declared_deterministic
        for mate in region_checks.region_mates(execution, vertex.uid)
    }
    vertices = {uid: replace(vertex, declared_deterministic=uid in declared) for uid, vertex in graph.vertices.items()}
    return replace(graph, vertices=vertices)


def _in_order(problems: list[Problem]) -> list[Problem]:
    """By file and line; the same thing said twice of one line is said once."""

    def place(problem: Problem) -> tuple[str, int]:
        return (problem.location.file, problem.location.line) if problem.location else ("", 0)

    return sorted(dict.fromkeys(problems), key=place)
