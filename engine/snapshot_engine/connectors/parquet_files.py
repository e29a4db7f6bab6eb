"""Parquet files as a source."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_engine.connectors.files import FileSource, ReplacedFile, open_input
from snapshot_engine.connectors.parquet_strings import read_strings, string_columns
from snapshot_engine.connectors.protocols import EndOfSplit, Position

_DECODED_ROWS = 65_536
"""A step that takes a few milliseconds, so that a barrier is not kept waiting."""
_BATCH_BYTES = 2 << 20
"""What is decoded is handed on in equal parts of at most so much: few batches, and none that no cache could hold."""


class ParquetSource(FileSource):
    """The schema is that of the first file, unless given. Given, it may be a choice of the files' columns."""

    pattern = "*.parquet"
    batch_rows = _DECODED_ROWS

    def find_schema(self, file: str) -> pa.Schema:
        with open_input(file) as opened:
            return pq.read_schema(opened).remove_metadata()

    def open_file(self, file: str, position: Position) -> ParquetReader:
        return ParquetReader(file, self.schema, position)


class ParquetReader:
    """The position is (row group, row in it), so that going on needs no reading of earlier row groups. Behind them
    is what the file is known by; positions of earlier versions lack it.
    """

    def __init__(self, file: str, schema: pa.Schema, position: Position) -> None:
        self._file = file
        self._schema = schema
        self._input = open_input(file)
        # Reading ahead by threads of Arrow is for storage that is far away; here they would only be waited for.
        far = "://" in file
        self._parquet = pq.ParquetFile(self._input, pre_buffer=far)
        self._footer = _footer_sign(self._input, self._parquet.metadata.serialized_size)
        self._refuse_other_columns(self._parquet.schema_arrow)
        strings = {} if far else string_columns(self._parquet)
        self._strings = {name: strings[name] for name in schema.names if name in strings}
        self._groups = self._parquet.metadata.num_row_groups
        start: tuple[int, int] = (position or (0, 0))[:2]
        self._group, self._row = start
        self._refuse_another_file(position[2:] if position else ())
        self._rows_left = self._count_rows_left()
        self._batches = self._decode(self._group, self._row)
        self._rest: pa.RecordBatch | None = None
        self._part_rows = 0

    def read(self, max_rows: int) -> pa.RecordBatch:
        batch = self._rest or self._next_batch()
        rows = min(max_rows, self._part_rows)
        self._rest = batch.slice(rows) if batch.num_rows > rows else None
        taken = batch.slice(0, rows)
        self._row += taken.num_rows
        self._rows_left -= taken.num_rows
        return taken

    def position(self) -> Position:
        return [self._group, self._row, self._footer]

    def lag(self) -> int | None:
        return self._rows_left

    def close(self) -> None:
        self._parquet.close(force=True)

    def _next_batch(self) -> pa.RecordBatch:
        """Never "nothing right now" between two row groups: a source that says so is left alone for a while."""
        while (batch := next(self._batches, None)) is None:
            if self._group >= self._groups:
                raise EndOfSplit
            self._group, self._row = self._group + 1, 0
            self._batches = self._decode(self._group, 0)
        parts = -(-batch.nbytes // _BATCH_BYTES) or 1
        self._part_rows = -(-batch.num_rows // parts)
        return batch

    def _decode(self, group: int, row: int) -> Iterator[pa.RecordBatch]:
        """The rows of one row group from `row` on, decoded step by step."""
        if group >= self._groups:
            return
        found = {name: read_strings(self._input, self._parquet, group, at) for name, at in self._strings.items()}
        strings = {name: column for name, column in found.items() if column is not None}
        others = [name for name in self._schema.names if name not in strings]
        decoded = self._parquet.iter_batches(_DECODED_ROWS, row_groups=[group], columns=others, use_threads=False)
        begin = 0
        for batch in decoded:
            end = begin + batch.num_rows
            if end > row:
                start = max(begin, row)
                rows = batch.slice(start - begin)
                for name, column in strings.items():
                    rows = rows.append_column(name, column.rows(start, end - start))
                yield self._fitted(rows)
            begin = end

    def _count_rows_left(self) -> int:
        groups = range(self._group, self._groups)
        return sum(int(self._parquet.metadata.row_group(group).num_rows) for group in groups) - self._row

    def _fitted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            chosen = batch if batch.schema.names == self._schema.names else batch.select(self._schema.names)
            return chosen if chosen.schema.equals(self._schema) else chosen.cast(self._schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise ValueError(
                f"{self._file}: row group {self._group} does not fit the schema of the source: {error}"
            ) from error

    def _refuse_another_file(self, known: Sequence[str]) -> None:
        if known and known[0] != self._footer:
            raise ReplacedFile(self._file, "its footer is not the one that the job's position was in")
        rows = self._parquet.metadata.row_group(self._group).num_rows if self._group < self._groups else 0
        if self._group > self._groups or self._row > rows:
            place = f"row {self._row} of row group {self._group}"
            raise ReplacedFile(self._file, f"the job has read up to {place}, which it does not have")

    def _refuse_other_columns(self, found: pa.Schema) -> None:
        missing = [name for name in self._schema.names if name not in found.names]
        if missing:
            raise ValueError(f"{self._file} has no column {', '.join(missing)}; it has {', '.join(found.names)}")


def _footer_sign(opened: pa.NativeFile, footer_bytes: int) -> str:
    """Differs for other rows: the footer has the places, sizes and bounds of all pages."""
    size = opened.size()
    ending = min(size, footer_bytes + 8)  # with its length and the magic number behind it
    return f"{size}-{zlib.crc32(opened.read_at(ending, size - ending)):08x}"
