"""JSON lines and CSV as sources. A row that cannot be read is an error that names its file and line.

Whole blocks of lines are parsed by Arrow. Only when that fails, the block's lines are tried one by one, to find the bad
one.
"""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.json

from snapshot_engine.connectors.files import FileSource, ReplacedFile, open_input
from snapshot_engine.connectors.protocols import EndOfSplit, Position

_CHUNK = 1 << 20
_COMPRESSED = (".gz", ".bz2", ".zst", ".xz", ".lz4")
_SAMPLE_ROWS = 10_000
_REMEMBERED = 4096
"""A file that was replaced is told by so many bytes before the position. It may grow."""
_NULLS = [""]
"""What stands for no value in CSV. NA, null or NaN are texts like others: a country, a name, a number."""
BAD_TEXT = (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError)


class BadRow(ValueError):
    """A line that is not what the schema says."""

    def __init__(self, file: str, line: int, reason: str, text: bytes) -> None:
        shown = text[:200].decode(errors="replace").rstrip("\r\n")
        super().__init__(f"{file}:{line}: {reason}\n  {shown}{'…' if len(text) > 200 else ''}")
        self.file = file
        self.line = line


class LineFormat:
    """How a block of whole lines becomes rows."""

    quote: str | None = None
    """A field that begins with it is quoted: a newline in it does not end the row."""
    delimiter: str = ""

    def parse(self, block: bytes, schema: pa.Schema) -> pa.Table:
        raise NotImplementedError


class LineReader:
    """The position is (byte, line) of the next row. Byte 0 of a CSV file is its header, which is never a row.

    Behind them is the checksum of what stands just before; positions of earlier versions lack it.
    """

    def __init__(self, file: str, schema: pa.Schema, format: LineFormat, position: Position, skip: int = 0) -> None:
        self._file = file
        self._schema = schema
        self._format = format
        self._input = open_input(file)
        size = self._input.size()
        start: tuple[int, int] = (position or (0, 1))[:2]
        self._byte, self._line = start
        if self._byte > size:
            raise ReplacedFile(file, f"it has {size} bytes, but was read up to byte {self._byte}")
        self._before: bytes = self._input.read_at(min(_REMEMBERED, self._byte), max(0, self._byte - _REMEMBERED))
        """The last bytes that were taken before those in the buffer."""
        if position is not None and list(position[2:]) not in ([], [zlib.crc32(self._before)]):
            place = f"byte {self._byte} (line {self._line})"
            raise ReplacedFile(file, f"what stands before {place} is not what was read there")
        self._input.seek(self._byte)
        self._buffer = b""
        self._ends = np.zeros(0, np.int64)
        """Where the rows that are whole in the buffer end."""
        self._taken = 0
        if position is None and skip:
            self.take(skip)

    def read(self, max_rows: int) -> pa.RecordBatch | None:
        start = self._byte, self._line
        rows = self.take(max_rows)
        if not rows:
            raise EndOfSplit
        try:
            return self._parse(b"".join(rows))
        except BAD_TEXT as error:
            self._byte, self._line = start
            raise self._find_bad(rows, error) from error

    def take(self, most: int) -> list[bytes]:
        """The next rows as they are in the file; the last one of a file may lack its newline."""
        while not len(self._ends):
            if not self._fill():
                break
        ends = [self._taken, *self._ends[:most].tolist()]
        rows = [self._buffer[start:end] for start, end in itertools.pairwise(ends)]
        self._ends, self._taken = self._ends[most:], ends[-1]
        if not rows and self._taken < len(self._buffer):
            rows, self._taken = [self._buffer[self._taken :]], len(self._buffer)
        self._byte += sum(map(len, rows))
        self._line += sum(row.count(b"\n") for row in rows)
        return rows

    def position(self) -> Position:
        return [self._byte, self._line, zlib.crc32(self._last_taken())]

    def lag(self) -> int | None:
        return None

    def close(self) -> None:
        self._input.close()

    def _parse(self, block: bytes) -> pa.RecordBatch | None:
        if block.isspace():
            return None
        batches = self._format.parse(block, self._schema).combine_chunks().to_batches()
        return batches[0] if batches else None

    def _find_bad(self, rows: Sequence[bytes], error: Exception) -> BadRow:
        number = self._line
        for row in rows:
            try:
                self._parse(row)
            except BAD_TEXT as reason:
                return BadRow(self._file, number, str(reason), row)
            number += row.count(b"\n")
        return BadRow(self._file, self._line, f"somewhere in the next {len(rows)} rows: {error}", rows[0])

    def _last_taken(self) -> bytes:
        return (self._before + self._buffer[max(0, self._taken - _REMEMBERED) : self._taken])[-_REMEMBERED:]

    def _fill(self) -> bool:
        chunk = self._input.read(_CHUNK)
        if chunk:
            self._before = self._last_taken()
            self._buffer = self._buffer[self._taken :] + chunk
            self._taken = 0
            self._ends = _row_ends(self._buffer, self._format)
        return bool(chunk)


def _row_ends(buffer: bytes, format: LineFormat) -> npt.NDArray[np.int64]:
    """The positions behind all newlines that end a row; the buffer begins with a row."""
    signs = np.frombuffer(buffer, np.uint8)
    newlines = np.flatnonzero(signs == ord("\n"))
    if format.quote:
        quotes = _quotes(buffer, signs, format.quote, format.delimiter)
        newlines = newlines[np.searchsorted(quotes, newlines) % 2 == 0]
    return newlines + 1


def _quotes(buffer: bytes, signs: npt.NDArray[np.uint8], quote: str, delimiter: str) -> npt.NDArray[np.int64]:
    """Where quoted text begins and ends, in turn. One that lies inside a field that is not quoted counts for nothing;
    such a buffer is gone through field by field, which takes longer.
    """
    quotes = np.flatnonzero(signs == ord(quote))
    opening = quotes[::2]
    before = signs[opening[opening > 0] - 1]
    if np.isin(before, [ord(delimiter), ord("\n"), ord(quote)]).all():
        return quotes
    sign, between = re.escape(quote.encode()), re.escape(delimiter.encode())
    quoted = re.compile(rb"(?:(?<=[\n" + between + rb"])|\A)" + sign + rb"(?:[^" + sign + rb"]|" + sign * 2 + rb")*+")
    spans = [match.span() for match in quoted.finditer(buffer)]
    return np.array([place for span in spans for place in span], np.int64)


class JsonLinesSource(FileSource):
    """One JSON object per line. Without a schema, it is found from the first file's first rows."""

    pattern = "*.json*"

    def find_schema(self, file: str) -> pa.Schema:
        sample = _sample(file, LineFormat())
        try:
            return parse_json_lines(sample, None).schema
        except BAD_TEXT as error:
            raise ValueError(f"{file}: no schema can be found in it: {error}. Give the source a schema") from error

    def open_file(self, file: str, position: Position) -> LineReader:
        return LineReader(_uncompressed(file), self.schema, _JsonLines(), position)


class CsvSource(FileSource):
    """Comma-separated values with a header line. Without a schema, types are found from the first file's first rows."""

    pattern = "*.csv"

    def __init__(self, path: Any, schema: pa.Schema | None = None, *, delimiter: str = ",", quote: str = '"') -> None:
        self.delimiter = delimiter
        self.quote = quote
        super().__init__(path, schema)

    def find_schema(self, file: str) -> pa.Schema:
        format = _Csv((), self.delimiter, self.quote)
        options = pa.csv.ParseOptions(delimiter=self.delimiter, quote_char=self.quote, newlines_in_values=True)
        try:
            sample = io.BytesIO(_sample(file, format))
            nulls = pa.csv.ConvertOptions(null_values=_NULLS)
            return pa.csv.read_csv(sample, parse_options=options, convert_options=nulls).schema
        except pa.ArrowInvalid as error:
            raise ValueError(f"{file}: no schema can be found in it: {error}. Give the source a schema") from error

    def open_file(self, file: str, position: Position) -> LineReader:
        names = self._header(_uncompressed(file))
        missing = [name for name in self.schema.names if name not in names]
        if missing:
            raise ValueError(f"{file}:1: no column {', '.join(missing)}; the header has {', '.join(names)}")
        return LineReader(file, self.schema, _Csv(names, self.delimiter, self.quote), position, skip=1)

    def _header(self, file: str) -> tuple[str, ...]:
        with open_input(file) as opened:
            text = opened.read(_CHUNK).decode("utf-8-sig", errors="replace")
        if "\r" in text and "\n" not in text:
            raise ValueError(f"{file}:1: its lines end with CR alone, so all of it is one line: expected LF or CRLF")
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=self.delimiter, quotechar=self.quote)
        return tuple(next(rows, ()))


class _JsonLines(LineFormat):
    def parse(self, block: bytes, schema: pa.Schema) -> pa.Table:
        return parse_json_lines(block, schema).select(schema.names)


class _Csv(LineFormat):
    def __init__(self, names: Sequence[str], delimiter: str, quote: str) -> None:
        self._names = list(names)
        self._options = pa.csv.ParseOptions(delimiter=delimiter, quote_char=quote, newlines_in_values=True)
        self.quote = quote
        self.delimiter = delimiter

    def parse(self, block: bytes, schema: pa.Schema) -> pa.Table:
        table = pa.csv.read_csv(
            io.BytesIO(block),
            read_options=pa.csv.ReadOptions(
                column_names=self._names, use_threads=False, block_size=max(len(block), 1) + 1
            ),
            parse_options=self._options,
            convert_options=pa.csv.ConvertOptions(
                column_types=schema,
                include_columns=schema.names,
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                null_values=_NULLS,
            ),
        )
        return table.cast(schema)


def parse_json_lines(block: bytes, schema: pa.Schema | None) -> pa.Table:
    _refuse_other_than_objects(block)
    parse = pa.json.ParseOptions(
        explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
    )
    read = pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1)
    table = pa.json.read_json(io.BytesIO(block), read_options=read, parse_options=parse)
    return table if schema is None else table.select(schema.names).cast(schema)


def _refuse_other_than_objects(block: bytes) -> None:
    """Arrow takes `null` for an object without fields; but where it comes first, the process dies of it."""
    lines = block.count(b"\n") + (not block.endswith(b"\n"))
    if block.startswith(b"{") and block.count(b"\n{") + 1 == lines:
        return
    for line in block.removeprefix(codecs.BOM_UTF8).split(b"\n"):
        text = line.lstrip()
        if text and not text.startswith(b"{"):
            raise ValueError(f"expected one JSON object, found {text[:40].decode(errors='replace').rstrip()!r}")


def _sample(file: str, format: LineFormat) -> bytes:
    reader = LineReader(_uncompressed(file), pa.schema([]), format, None)
    try:
        lines = reader.take(_SAMPLE_ROWS)
        lines += reader.take(1)  # the last one of a file may be all there is but a header, and lack its newline
    finally:
        reader.close()
    if not lines:
        raise ValueError(f"{file} is empty: give the source a schema")
    return b"".join(lines)


def _uncompressed(file: str) -> str:
    if file.endswith(_COMPRESSED):
        raise ValueError(f"{file}: compressed text has no positions to go on from; expand it, or use Parquet")
    return file
