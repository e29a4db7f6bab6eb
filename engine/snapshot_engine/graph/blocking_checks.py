"""What must be true of the edges around blocking results: nothing that makes one may wait for what comes after it.

The consumers of a blocking result start when it is whole, and no checkpoint is taken before all regions run. Until then
nothing crosses a committed exchange, and no log is emptied: a full one pauses the sources of all that feeds it through
logs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import Exchange, JobEdge
from snapshot_engine.graph.problems import Problem
from snapshot_engine.graph.region_checks import edge_name
from snapshot_engine.protocol.elements import SubtaskId


def check_blocking_results(execution: ExecutionGraph) -> Iterator[tuple[Problem, bool]]:
    """Each edge that would keep a blocking result from becoming whole, and whether it does so for certain or in the end
    (an error), or only if more goes through it than may be kept.
    """
    cuts = _Cuts(execution)
    for edge in cuts.edges:
        exchange = execution.exchange_of(edge)
        if exchange is Exchange.COMMITTED and (result := cuts.result_made_by({cuts.consumer(edge)})):
            yield _problem(execution, edge, result, _NEVER_VISIBLE), True
        elif exchange.replays and (result := cuts.result_made_by(cuts.paused_by(edge))):
            if awaited := cuts.result_made_by(cuts.paused_by(edge), cuts.consumer(edge)):
                yield _problem(execution, edge, awaited, _NEVER_READ), True
            elif exchange is Exchange.DURABLE:
                yield _problem(execution, edge, result, _NEVER_EMPTIED), False


_NEVER_VISIBLE = (
    "shows its rows with the next checkpoint, and none is taken before the blocking result {result} is whole, which is "
    "made of them: it would wait for ever; make the edge pipelined, memory or blocking"
)
_NEVER_READ = (
    "is read only when the blocking result {result} is whole, and when its log is full it pauses the sources that this "
    "result is made of: both would wait for ever; make the edge blocking or committed as well"
)
_NEVER_EMPTIED = (
    "keeps all its rows until the blocking result {result} is whole, since no checkpoint is taken before; if they are "
    "more than its budget, its sources pause for ever: see that they fit, or make it pipelined, memory or blocking"
)


def _problem(execution: ExecutionGraph, edge: JobEdge, result: JobEdge, message: str) -> Problem:
    graph = execution.graph
    what = f"the {edge.exchange.value} exchange {edge_name(graph, edge)} "
    first = graph.vertices[edge.consumer].operators[0]
    return Problem(what + message.format(result=edge_name(graph, result)), first.name, first.location)


class _Cuts:
    """The cut edges between regions, one subtask of each vertex standing for all: they are connected alike."""

    def __init__(self, execution: ExecutionGraph) -> None:
        self._execution = execution
        self.edges = [edge for edge in execution.graph.edges if execution.exchange_of(edge) is not Exchange.PIPELINED]
        self._arrows = {(self.producer(edge), self.consumer(edge)) for edge in self.edges}
        self._logged = {
            (self.producer(edge), self.consumer(edge)) for edge in self.edges if execution.exchange_of(edge).replays
        }
        self._results = [edge for edge in self.edges if execution.exchange_of(edge) is Exchange.BLOCKING]
        self._made_by = {edge.id: _upstream(self.producer(edge), self._arrows) for edge in self._results}

    def producer(self, edge: JobEdge) -> int:
        return self._execution.region_of[SubtaskId(edge.producer, 0)].id

    def consumer(self, edge: JobEdge) -> int:
        return self._execution.region_of[SubtaskId(edge.consumer, 0)].id

    def paused_by(self, edge: JobEdge) -> set[int]:
        """The regions whose sources pause when the log of `edge` is full."""
        return _upstream(self.producer(edge), self._logged)

    def result_made_by(self, regions: set[int], reader: int | None = None) -> JobEdge | None:
        """A blocking result that one of `regions` has a part in; with `reader`, one that this region waits for."""
        return next(
            (
                edge
                for edge in self._results
                if regions & self._made_by[edge.id] and (reader is None or self.consumer(edge) == reader)
            ),
            None,
        )


def _upstream(region: int, arrows: Iterable[tuple[int, int]]) -> set[int]:
    found = {region}
    while more := {producer for producer, consumer in arrows if consumer in found} - found:
        found |= more
    return found
