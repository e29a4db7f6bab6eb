"""Rows that are there already, as a bounded source: for first steps and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from snapshot_engine.connectors.protocols import EndOfSplit, Position


class CollectionSource:
    """The rows of a table, in order, in one split. The position is the number of the next row."""

    bounded = True

    def __init__(self, table: pa.Table) -> None:
        self._table = table.combine_chunks()
        self.schema: pa.Schema = table.schema

    def __repr__(self) -> str:
        return f"CollectionSource({self._table.num_rows} rows)"

    def splits(self, parallelism: int) -> Sequence[str]:
        return ["all"]

    def open(self, split: str, position: Position) -> CollectionReader:
        return CollectionReader(self._table, position or 0)


class CollectionReader:
    def __init__(self, table: pa.Table, position: int) -> None:
        self._table = table
        self._position = position

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        if self._position >= self._table.num_rows:
            raise EndOfSplit
        batch = self._table.slice(self._position, max_rows).to_batches()[0]
        self._position += batch.num_rows
        return batch

    def position(self) -> Any:
        return self._position

    def lag(self) -> int | None:
        return int(self._table.num_rows - self._position)

    def close(self) -> None:
        """Nothing is held."""
