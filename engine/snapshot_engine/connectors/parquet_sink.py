"""Parquet files by two-phase commit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_engine.connectors.staged_files import StagedFileSink
from snapshot_engine.operators.stream_type import StreamType


class ParquetSink(StagedFileSink):
    """One file per subtask and checkpoint in `folder`; nothing else ever becomes visible there.

    The schema may change from one run of the job to the next; within a file it cannot.
    """

    def __init__(self, folder: str | Path, *, compression: str = "zstd", row_group_rows: int = 131_072) -> None:
        super().__init__(folder, ParquetFormat(compression, row_group_rows))

    def check(self, schema: pa.Schema) -> None:
        """Called while the job is planned, so that it is known before anything runs."""
        require_columns(schema)


def require_columns(schema: pa.Schema) -> None:
    if StreamType(schema).plain:
        raise TypeError(
            "a Parquet sink needs columns, but this is a stream of plain Python values: "
            "give the step before it a schema, or write JSON lines"
        )


@dataclass(frozen=True)
class ParquetFormat:
    compression: str = "zstd"
    row_group_rows: int = 131_072
    suffix: str = ".parquet"

    def create(self, path: Path, schema: pa.Schema) -> ParquetFileWriter:
        require_columns(schema)
        return ParquetFileWriter(path, schema, self)


class ParquetFileWriter:
    """Collects small batches into row groups."""

    def __init__(self, path: Path, schema: pa.Schema, format: ParquetFormat) -> None:
        self._writer = pq.ParquetWriter(path, schema, compression=format.compression)
        self._schema = schema
        self._row_group_rows = format.row_group_rows
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= self._row_group_rows:
            self._flush()

    def close(self) -> None:
        try:
            self._flush()
        finally:
            self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self._schema))
            self._waiting, self._rows = [], 0
