"""A source that makes its rows up: deterministic, seedable, at a rate or flat out.

Row number `offset` is the same row in every run, whichever subtask makes it and however batches are cut:
columns are pure functions of the offset. Split s of S has the offsets s, s+S, s+2S, …, so event times advance
side by side in all splits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.connectors.protocols import EndOfSplit, Position

Offsets = npt.NDArray[np.uint64]
ColumnFunction = Callable[[Offsets], Any]
"""From row numbers to the values of one column: a numpy or Arrow array of the same length."""
BatchFunction = Callable[[Offsets], pa.RecordBatch]

_SHORTEST_PAUSE = 0.005
"""At a rate, a split gives less than a batch this often at most, in seconds: else each poll would find a row or two."""


class GeneratorSource:
    """`columns`: functions of the offsets by column name, or one function that makes the whole batch.

    `rate`: rows per second over all splits; None: as many as are taken. `count`: how many rows in all; None:
    no end.
    """

    def __init__(
        self,
        columns: Mapping[str, ColumnFunction] | BatchFunction,
        *,
        rate: float | None = None,
        count: int | None = None,
        splits: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if splits < 1 or (rate is not None and rate <= 0) or (count is not None and count < 0):
            raise ValueError(f"splits={splits}, rate={rate}, count={count}: splits and rate must be positive")
        self.make: BatchFunction = columns if callable(columns) else Columns(columns)
        self.schema: pa.Schema = self.make(np.zeros(0, np.uint64)).schema
        self.bounded = count is not None
        self.rate = rate
        self.count = count
        self._splits = splits
        self._clock = clock

    def __repr__(self) -> str:
        return f"GeneratorSource({', '.join(self.schema.names)})"

    def splits(self, parallelism: int) -> Sequence[str]:
        return [f"{index:04d}-of-{self._splits:04d}" for index in range(self._splits)]

    def open(self, split: str, position: Position) -> GeneratorReader:
        """The number of splits is in their names, so a job that is restored keeps the one it began with."""
        index, _, total = split.partition("-of-")
        return GeneratorReader(self, int(index), int(total), position or 0, self._clock)


class GeneratorReader:
    def __init__(
        self, source: GeneratorSource, index: int, splits: int, produced: int, clock: Callable[[], float]
    ) -> None:
        self._make = source.make
        self._index = index
        self._splits = splits
        self._produced = produced
        self._limit = None if source.count is None else max(0, -(-(source.count - index) // splits))
        self._rate = None if source.rate is None else source.rate / splits
        self._clock = clock
        # Counted from one fixed moment, so that rounding and late polls never add up.
        self._begun = clock()
        self._produced_before = produced
        self._last_given = -1.0
        self._steps = np.zeros(0, np.uint64)

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        if self._limit is not None and self._produced >= self._limit:
            raise EndOfSplit
        rows = max_rows if self._limit is None else min(max_rows, self._limit - self._produced)
        if self._rate is not None:
            rows = self._due(rows)
        if rows <= 0:
            return None
        batch = self._make(self._offsets(rows))
        self._produced += rows
        return batch

    def position(self) -> Position:
        return self._produced

    def lag(self) -> int | None:
        if self._rate is None:
            return None
        return max(0, self._scheduled(self._clock()) - self._produced)

    def close(self) -> None:
        """Nothing is held."""

    def _scheduled(self, now: float) -> int:
        assert self._rate is not None
        return self._produced_before + int((now - self._begun) * self._rate)

    def _due(self, most: int) -> int:
        """A few rows wait a little for others; as many as may be read at once do not."""
        now = self._clock()
        due = min(most, self._scheduled(now) - self._produced)
        if due <= 0 or (due < most and now - self._last_given < _SHORTEST_PAUSE):
            return 0
        self._last_given = now
        return due

    def _offsets(self, rows: int) -> Offsets:
        if len(self._steps) < rows:
            self._steps = np.arange(rows, dtype=np.uint64) * np.uint64(self._splits)
        return self._steps[:rows] + np.uint64(self._produced * self._splits + self._index)


class Columns:
    """One batch from a function per column."""

    def __init__(self, columns: Mapping[str, ColumnFunction]) -> None:
        if not columns:
            raise ValueError("a generator needs at least one column")
        self._columns = dict(columns)

    def __call__(self, offsets: Offsets) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({name: make(offsets) for name, make in self._columns.items()})
