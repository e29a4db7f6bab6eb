"""Results for tests: transactional like any file sink, and readable from the test's own process."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from snapshot_engine.connectors.staged_files import StagedFileSink
from snapshot_engine.connectors.text_rows import python_rows


class CollectSink(StagedFileSink):
    """Keeps committed rows as Arrow files in `folder`, by default a temporary one on this machine."""

    def __init__(self, folder: str | Path | None = None) -> None:
        super().__init__(folder or tempfile.mkdtemp(prefix="collected-"), ArrowFormat())

    def read_committed(self) -> list[Any]:
        """All committed rows, as dicts (or plain values), in no particular order."""
        return [row for batch in self._batches() for row in python_rows(batch)]

    def read_table(self) -> pa.Table:
        """The same as a table. Raises ValueError as long as there is nothing: then there is no schema either."""
        batches = self._batches()
        if not batches:
            raise ValueError(f"nothing is committed in {self.folder}")
        return pa.Table.from_batches(batches)

    def _batches(self) -> list[pa.RecordBatch]:
        files = sorted(self.folder.glob(f"*{self.format.suffix}"))
        return [batch for file in files for batch in read_arrow_file(file)]


@dataclass(frozen=True)
class ArrowFormat:
    suffix: str = ".arrow"

    def create(self, path: Path, schema: pa.Schema) -> pa.RecordBatchFileWriter:
        return pa.ipc.new_file(path, schema)


def read_arrow_file(file: Path) -> list[pa.RecordBatch]:
    with pa.ipc.open_file(file) as reader:
        return [reader.get_batch(index) for index in range(reader.num_record_batches)]
