"""Strings from a file's own dictionary are what Arrow reads; what cannot be read so is left to Arrow."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_engine.connectors.parquet_files import ParquetReader, ParquetSource
from snapshot_engine.connectors.parquet_strings import read_strings, string_columns
from snapshot_engine.connectors.protocols import EndOfSplit

ROWS = 150_000


def some_strings(distinct: int, rows: int = ROWS) -> list[str]:
    chance = random.Random(distinct)
    values = ["", "ä", "x" * 300, *(f"auction-{number}" for number in range(max(0, distinct - 3)))][:distinct]
    return chance.choices(values, k=rows)


def written(folder: Path, table: pa.Table, **options: Any) -> str:
    file = str(folder / "file.parquet")
    pq.write_table(table, file, **options)
    return file


def all_rows(file: str, schema: pa.Schema, position: Any = None, max_rows: int = 65_536) -> pa.Table:
    reader = ParquetReader(file, schema, position)
    batches = []
    try:
        while True:
            batches.append(reader.read(max_rows))
    except EndOfSplit:
        reader.close()
    return pa.Table.from_batches(batches, schema)


def groups_read_here(file: str, column: str = "key") -> list[bool]:
    with pa.OSFile(file) as opened:
        parquet = pq.ParquetFile(opened)
        number = string_columns(parquet).get(column)
        groups = range(parquet.num_row_groups)
        return [number is not None and read_strings(opened, parquet, group, number) is not None for group in groups]


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
@pytest.mark.parametrize("distinct", [1, 2, 3, 1_000, 30_000])
def test_strings_are_those_that_were_written(tmp_path: Path, compression: str, distinct: int) -> None:
    table = pa.table({"number": range(ROWS), "key": some_strings(distinct), "other": some_strings(7)})
    file = written(tmp_path, table, compression=compression, row_group_size=100_000, data_page_size=20_000)
    assert groups_read_here(file) == [True, True]
    read = all_rows(file, table.schema)
    read.validate(full=True)
    assert read.equals(table)


def test_columns_that_may_not_be_null_have_no_levels(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("blob", pa.binary(), nullable=False)])
    keys = some_strings(50, 1_000)
    table = pa.table({"key": keys, "blob": [key.encode() + b"\xff" for key in keys]}, schema)
    file = written(tmp_path, table)
    assert groups_read_here(file) == groups_read_here(file, "blob") == [True]
    assert all_rows(file, schema).equals(table), "also where no column is left to Arrow"


@pytest.mark.parametrize("max_rows", [1_000, 65_536])
@pytest.mark.parametrize("row", [0, 1, 65_535, 65_536, 65_537, 99_999])
def test_reading_goes_on_in_the_middle_of_a_row_group(tmp_path: Path, row: int, max_rows: int) -> None:
    table = pa.table({"key": some_strings(500), "number": range(ROWS)})
    file = written(tmp_path, table, row_group_size=100_000)
    assert all_rows(file, table.schema, [0, row], max_rows).equals(table.slice(row))
    assert all_rows(file, table.schema, [1, 0], max_rows).equals(table.slice(100_000))


def with_nulls() -> pa.Table:
    return pa.table({"key": [None if number % 7 == 0 else f"k{number % 11}" for number in range(1_000)]})


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (with_nulls(), {}),
        (pa.table({"key": some_strings(9, 1_000)}), {"use_dictionary": False}),
        (pa.table({"key": some_strings(9, 1_000)}), {"write_statistics": False}),
        (pa.table({"key": some_strings(9, 1_000)}), {"data_page_version": "2.0"}),
        (pa.table({"key": some_strings(9, 1_000)}), {"compression": "lz4"}),
        (pa.table({"key": some_strings(20_000)}), {"dictionary_pagesize_limit": 10_000}),
        (pa.table({"key": ["x" * 40_000, "y"] * 10}), {}),
        (pa.table({"key": pa.array(some_strings(9, 1_000), pa.large_string())}), {}),
        (pa.table({"key": pa.array(some_strings(9, 1_000)).dictionary_encode()}), {}),
        (pa.table({"key": [["a", "b"], [], ["c"]]}), {}),
        (pa.table({"key": pa.array([], pa.string())}), {}),
    ],
    ids=[
        "nulls",
        "no dictionary",
        "no statistics",
        "pages of version 2",
        "another codec",
        "more strings than the dictionary holds",
        "long strings",
        "large strings",
        "dictionaries of Arrow",
        "lists",
        "no rows",
    ],
)
def test_all_else_is_left_to_arrow(tmp_path: Path, table: pa.Table, options: dict[str, Any]) -> None:
    file = written(tmp_path, table, **options)
    assert not any(groups_read_here(file))
    schema = ParquetSource(file).schema
    assert all_rows(file, schema).to_pylist() == table.to_pylist()


def test_a_field_of_a_struct_is_not_the_column_of_its_path(tmp_path: Path) -> None:
    structs = [{"b": f"inner {number % 3}"} for number in range(100)]
    table = pa.table({"a": structs, "a.b": [f"outer {number % 5}" for number in range(100)]})
    file = written(tmp_path, table)
    assert all_rows(file, table.schema.remove(0)).equals(table.select(["a.b"]))


def test_strings_are_cast_to_the_type_that_the_source_was_given(tmp_path: Path) -> None:
    file = written(tmp_path, pa.table({"key": ["1", "22", "1"], "unread": ["a", "b", "c"]}))
    schema = pa.schema({"key": pa.int64()})
    assert all_rows(file, schema).to_pydict() == {"key": [1, 22, 1]}


def test_a_damaged_file_is_never_read_as_something_else(tmp_path: Path) -> None:
    """Every byte of the chunk is spoiled in turn: what is read here, if anything, has the right number of strings,
    and nothing is read outside the file."""
    table = pa.table({"key": some_strings(20, 300)})
    file = written(tmp_path, table, compression="none")
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(0)
    sound = Path(file).read_bytes()
    for position in range(chunk.dictionary_page_offset, chunk.dictionary_page_offset + chunk.total_compressed_size):
        for change in (0x01, 0x80, 0xFF):
            damaged = bytearray(sound)
            damaged[position] ^= change
            with pa.BufferReader(pa.py_buffer(bytes(damaged))) as opened:
                strings = read_strings(opened, pq.ParquetFile(opened), 0, 0)
                if strings is not None:
                    assert len(strings.rows(0, 300).cast(pa.binary()).to_pylist()) == 300
