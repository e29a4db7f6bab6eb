"""Load for exactly as long as a test needs it: rows at a rate until a file is there, then flat out to the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from snapshot_engine.connectors.generator import GeneratorReader, GeneratorSource
from snapshot_engine.connectors.protocols import Position


class Hurried(GeneratorSource):
    """A generator that stops to keep its rate as soon as the file `hurry` is there."""

    def __init__(self, columns: Any, *, rate: float, count: int, splits: int, hurry: Path | str) -> None:
        super().__init__(columns, rate=rate, count=count, splits=splits)
        self.hurry = Path(hurry)

    def open(self, split: str, position: Position) -> GeneratorReader:
        index, _, total = split.partition("-of-")
        return _HurriedReader(self, int(index), int(total), position or 0, self.hurry)


class _HurriedReader(GeneratorReader):
    def __init__(self, source: Hurried, index: int, splits: int, produced: int, hurry: Path) -> None:
        super().__init__(source, index, splits, produced, source._clock)
        self._hurry = hurry

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        if self._rate is not None and self._hurry.exists():
            self._rate = None
        return super().read(max_rows)
