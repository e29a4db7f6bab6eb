"""Columns of strings from a Parquet file's own dictionary.

Arrow looks every string up and appends it by itself; here a row group's indices are unpacked first, and then strings
are copied in one loop, which saves about a third of what such a column costs. Only what is found in most files is read
here: strings without nulls, all of them in the dictionary, in pages of the first version. All else, and what is damaged
in a way that shows, is left to Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from snapshot_engine.connectors.parquet_pages import Encoding, PageHeader, PageKind, UnknownPage, read_header
from snapshot_engine.kernels.memory import COPY_SLACK
from snapshot_engine.kernels.parquet_values import copy_values, find_values, total_length, unpack_indices

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int32]

LONGEST = 32_767
"""So that the strings of 65,536 rows are never more than a column's offsets can count."""

_TYPES = (pa.string(), pa.binary())
_ENCODINGS = {"PLAIN", "PLAIN_DICTIONARY", "RLE", "RLE_DICTIONARY"}
_CODECS = {"UNCOMPRESSED": None, "SNAPPY": "snappy", "ZSTD": "zstd", "GZIP": "gzip"}
_INDICES = (Encoding.RLE_DICTIONARY, Encoding.PLAIN_DICTIONARY)
_PLAIN = (Encoding.PLAIN, Encoding.PLAIN_DICTIONARY)
_LENGTH_OF_LEVELS = 4


class DictionaryStrings:
    """The strings of a column in one row group."""

    def __init__(self, type_: pa.DataType, page: Bytes, starts: Numbers, indices: Numbers) -> None:
        self._type = type_
        self._page = page
        self._starts = starts
        self._indices = indices

    def rows(self, begin: int, count: int) -> pa.Array:
        """The strings of at most 65,536 rows."""
        indices = self._indices[begin : begin + count]
        size = total_length(self._starts, indices)
        data = np.empty(size + COPY_SLACK, np.uint8)
        offsets = np.empty(count + 1, np.int32)
        copy_values(self._page, self._starts, indices, data, offsets)
        return pa.Array.from_buffers(self._type, count, [None, pa.py_buffer(offsets), pa.py_buffer(data[:size])])


def string_columns(parquet: pq.ParquetFile) -> dict[str, int]:
    """The columns that may be read here, with their numbers in the file."""
    fields = {field.name: field.type for field in parquet.schema_arrow if "." not in field.name}
    found = {}
    for number in range(len(parquet.schema)):
        column = parquet.schema.column(number)
        flat = column.max_repetition_level == 0 and column.max_definition_level <= 1
        if flat and column.physical_type == "BYTE_ARRAY" and fields.get(column.path) in _TYPES:
            found[column.path] = number
    return found


def read_strings(file: Any, parquet: pq.ParquetFile, group: int, column: int) -> DictionaryStrings | None:
    """The strings of a column in one row group; None if Arrow has to read them. `parquet` was made of `file`."""
    chunk = parquet.metadata.row_group(group).column(column)
    schema = parquet.schema.column(column)
    optional = schema.max_definition_level > 0
    if not _is_readable(chunk, optional):
        return None
    try:
        pages = _pages(file.read_at(chunk.total_compressed_size, chunk.dictionary_page_offset), chunk)
        page, starts = _read_dictionary(*next(pages))
        indices = _read_indices(pages, len(starts) - 1, chunk.num_values, optional)
    except (UnknownPage, pa.ArrowInvalid, OSError, StopIteration):
        return None
    return DictionaryStrings(parquet.schema_arrow.field(schema.path).type, page, starts, indices)


def _is_readable(chunk: Any, optional: bool) -> bool:
    known = chunk.has_dictionary_page and chunk.compression in _CODECS and _ENCODINGS.issuperset(chunk.encodings)
    return known and (not optional or _has_no_nulls(chunk.statistics))


def _has_no_nulls(statistics: Any) -> bool:
    return statistics is not None and statistics.has_null_count and statistics.null_count == 0


def _pages(stored: bytes, chunk: Any) -> Iterator[tuple[PageHeader, Bytes]]:
    """The pages of a chunk, decompressed."""
    name = _CODECS[chunk.compression]
    codec = None if name is None else pa.Codec(name)
    view = memoryview(stored)
    end = 0
    while end < len(view):
        header, begin = read_header(view, end)
        end = begin + header.stored_size
        if not (begin < end <= len(view) and 0 < header.size <= chunk.total_uncompressed_size):
            raise UnknownPage(f"a page of {header.size} bytes, stored in {header.stored_size}")
        page = view[begin:end] if codec is None else codec.decompress(view[begin:end], header.size)
        if len(page) != header.size:
            raise UnknownPage(f"a page of {len(page)} bytes that should have {header.size}")
        yield header, np.frombuffer(page, np.uint8)


def _read_dictionary(header: PageHeader, page: Bytes) -> tuple[Bytes, Numbers]:
    if header.kind is not PageKind.DICTIONARY or header.encoding not in _PLAIN or not 0 < header.values <= len(page):
        raise UnknownPage("no dictionary at the beginning")
    starts = np.empty(header.values + 1, np.int32)
    if not 0 <= find_values(page, starts) <= LONGEST:
        raise UnknownPage("a dictionary of other strings")
    return page, starts


def _read_indices(pages: Iterator[tuple[PageHeader, Bytes]], limit: int, count: int, optional: bool) -> Numbers:
    indices = np.empty(count, np.int32)
    done = 0
    for header, page in pages:
        if header.kind is not PageKind.DATA or header.encoding not in _INDICES:
            raise UnknownPage("a page without indices")
        begin = _end_of_levels(page) if optional else 0
        part = indices[done : done + header.values]
        if len(part) != header.values or not unpack_indices(page, begin, limit, part):
            raise UnknownPage("other indices than the page should have")
        done += header.values
    if done != count:
        raise UnknownPage(f"{done} values where there should be {count}")
    return indices


def _end_of_levels(page: Bytes) -> int:
    """Levels say which values are null: here none is."""
    return _LENGTH_OF_LEVELS + int.from_bytes(page[:_LENGTH_OF_LEVELS].tobytes(), "little")
