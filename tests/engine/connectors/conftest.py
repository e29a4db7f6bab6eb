"""Reading a whole source and writing to a sink, without a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.connectors.protocols import EndOfSplit, Position, Reader, WriterContext

Rows = list[dict[str, Any]]


def read_all(reader: Reader, max_rows: int = 1000) -> Rows:
    rows: Rows = []
    while True:
        try:
            batch = reader.read(max_rows)
        except EndOfSplit:
            return rows
        if batch is not None:
            assert batch.num_rows <= max_rows
            rows += batch.to_pylist()


def read_source(source: Any, max_rows: int = 1000) -> Rows:
    return [row for split in source.splits(1) for row in read_all(source.open(split, None), max_rows)]


def check_every_position(source: Any, split: str, max_rows: int) -> None:
    """The obligation of every reader: one that is opened at a position returns exactly what would have come next."""
    whole = read_all(source.open(split, None), max_rows)
    reader = source.open(split, None)
    seen: Rows = []
    positions: list[tuple[Position, int]] = [(reader.position(), 0)]
    while True:
        try:
            batch = reader.read(max_rows)
        except EndOfSplit:
            break
        if batch is not None:
            seen += batch.to_pylist()
        positions.append((reader.position(), len(seen)))
    assert seen == whole
    for position, rows in positions:
        assert read_all(source.open(split, position), 3) == whole[rows:], position


@pytest.fixture
def context() -> Callable[..., WriterContext]:
    def make(**changes: Any) -> WriterContext:
        values: dict[str, Any] = {"job": "job", "vertex": "out", "subtask": 0, "generation": 1, "attempt": 1}
        values |= {"lineage": "1a", **changes}
        return WriterContext(**values)

    return make


@pytest.fixture
def batch() -> Callable[..., pa.RecordBatch]:
    return lambda *numbers: pa.RecordBatch.from_pydict({"n": list(numbers)}, pa.schema({"n": pa.int64()}))


@pytest.fixture
def reading() -> Any:
    class Reading:
        all = staticmethod(read_all)
        source = staticmethod(read_source)
        every_position = staticmethod(check_every_position)

    return Reading
