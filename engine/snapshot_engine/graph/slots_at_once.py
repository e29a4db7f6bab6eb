"""How many slots a job needs at the same time.

All of them, but where a blocking result is: its consumers start when it is whole, and have the slots of those that made
it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import TopologicalSorter

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.exchanges import Exchange


@dataclass(frozen=True)
class _Cut:
    producer: int
    consumer: int
    blocking: bool


def slots_at_once(graph: ExecutionGraph) -> int:
    """Those of the regions that run together when each blocking result is waited for before what comes after it."""
    slots: dict[int, int] = defaultdict(int)
    for region in graph.regions:
        slots[_group_of(graph, region.vertices()[0])] += len(region.slots())
    cuts = _cuts_of(graph)
    order = _producers_first(slots, cuts)
    begins = _first_turns(order, cuts)
    last = max(begins.values(), default=0)
    ends = _last_turns(reversed(order), cuts, begins, last)
    return max(sum(slots[group] for group in order if begins[group] <= turn <= ends[group]) for turn in range(last + 1))


def _group_of(graph: ExecutionGraph, vertex: str) -> int:
    """The region of the vertex's first subtask stands for those of all: they are connected alike."""
    return graph.region_of[SubtaskId(vertex, 0)].id


def _cuts_of(graph: ExecutionGraph) -> list[_Cut]:
    found = []
    for edge in graph.graph.edges:
        producer, consumer = _group_of(graph, edge.producer), _group_of(graph, edge.consumer)
        if producer != consumer:
            found.append(_Cut(producer, consumer, graph.exchange_of(edge) is Exchange.BLOCKING))
    return found


def _producers_first(groups: Iterable[int], cuts: Iterable[_Cut]) -> list[int]:
    """Regions do not depend on each other in a cycle."""
    sorter = TopologicalSorter[int](dict.fromkeys(groups, ()))
    for cut in cuts:
        sorter.add(cut.consumer, cut.producer)
    return list(sorter.static_order())


def _first_turns(order: Iterable[int], cuts: Iterable[_Cut]) -> dict[int, int]:
    """How many blocking results, one after the other, are made before each begins."""
    inputs = defaultdict(list)
    for cut in cuts:
        inputs[cut.consumer].append(cut)
    begins: dict[int, int] = {}
    for group in order:
        begins[group] = max((begins[cut.producer] + cut.blocking for cut in inputs[group]), default=0)
    return begins


def _last_turns(order: Iterable[int], cuts: Iterable[_Cut], begins: Mapping[int, int], last: int) -> dict[int, int]:
    """A blocking result ends, and with it all that it is made of. What nobody waits for may run for ever."""
    outputs = defaultdict(list)
    for cut in cuts:
        outputs[cut.producer].append(cut)
    ends: dict[int, int] = {}
    for group in order:
        found = [begins[group] if cut.blocking else ends[cut.consumer] for cut in outputs[group]]
        ends[group] = max(found, default=last)
    return ends
