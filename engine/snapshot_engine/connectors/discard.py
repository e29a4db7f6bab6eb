"""A sink that only counts, for benchmarks and tests."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from snapshot_engine.connectors.protocols import Committable, SweptJob, WriterContext


class DiscardSink:
    """Drops all rows. `rows` is how many were committed, in the process that commits: exact, whatever failed."""

    exactly_once = True

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return "DiscardSink()"

    @property
    def rows(self) -> int:
        return sum(self._counts.values())

    def open(self, context: WriterContext) -> DiscardWriter:
        return DiscardWriter(context.unique)

    def commit(self, committables: Sequence[Committable]) -> None:
        """Each names its writer's total so far: so their order does not matter, nor how often they come."""
        for committable in committables:
            writer = committable["writer"]
            self._counts[writer] = max(self._counts.get(writer, 0), committable["rows"])

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None:
        """Nothing is ever left behind."""


class DiscardWriter:
    def __init__(self, name: str) -> None:
        self.rows = 0
        self._name = name
        self._prepared = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self.rows += batch.num_rows

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        if self.rows == self._prepared:
            return []
        self._prepared = self.rows
        return [{"writer": self._name, "rows": self.rows}]

    def close(self) -> None:
        """Nothing is held."""
