"""The outputs of a subtask: which consumer gets a record, and how many went out."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_engine.simulator.channels import Element, Outlet
from snapshot_engine.simulator.records import Batch, count
from snapshot_engine.simulator.topology import Edge, Split


class OutEdge:
    """Sends records along one edge to the consumer each belongs to."""

    __slots__ = ("_turn", "edge", "keys", "outlets", "sent", "sent_inside", "split")

    def __init__(self, edge: Edge, outlets: Sequence[Outlet | CountedOutlet], keys: list[int], sent: int) -> None:
        self.edge = edge
        self.split = edge.split
        self.outlets = outlets
        self.keys = keys
        self.sent = sent
        self.sent_inside = 0
        self._turn = 0

    def emit(self, batch: Batch) -> None:
        outlets = self.outlets
        lanes = count(batch)
        if self.split is Split.BROADCAST:
            self.sent += lanes * len(outlets)
            for outlet in outlets:
                outlet.push(batch)
            return
        self.sent += lanes
        if len(outlets) == 1:
            outlets[0].push(batch)
        elif self.split is Split.HASH:
            self._by_key(batch)
        else:
            self._turn = (self._turn + 1) % len(outlets)
            outlets[self._turn].push(batch)

    def _by_key(self, batch: Batch) -> None:
        width = len(self.outlets)
        for number, outlet in enumerate(self.outlets):
            part = tuple([record for record in batch if self.keys[record] % width == number])
            if part:
                outlet.push(part)


class CountedOutlet:
    """Hands on to the real one."""

    def __init__(self, real: Outlet, edge: OutEdge) -> None:
        self.real = real
        self.channel = real.channel
        self.before_snapshot = real.before_snapshot
        self.completed = real.completed
        self.state = real.state
        self._edge = edge

    @property
    def full(self) -> bool:
        return self.real.full

    def push(self, element: Element) -> None:
        if type(element) is tuple:
            self._edge.sent_inside += len(element)
        self.real.push(element)
