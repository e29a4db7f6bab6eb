"""The world beyond the job: a system that takes prepared transactions and shows committed ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from snapshot_engine.simulator.records import Batch, count
from snapshot_engine.simulator.violations import Violation

Transaction = str


@dataclass(slots=True)
class Outside:
    prepared: dict[Transaction, Batch] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    """What is visible, in lanes, by sink vertex."""
    _done: set[Transaction] = field(default_factory=set)

    def prepare(self, transaction: Transaction, records: Batch) -> None:
        self.prepared[transaction] = records

    def commit(self, sink: str, transactions: Iterable[Transaction]) -> None:
        """Idempotent: what is committed already stays as it is."""
        for transaction in transactions:
            if transaction in self._done:
                continue
            if transaction not in self.prepared:
                raise Violation(f"transaction {transaction} is to be committed but was never prepared")
            self._done.add(transaction)
            self.committed[sink] = self.committed.get(sink, 0) + count(self.prepared[transaction])
