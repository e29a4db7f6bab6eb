"""Streams of events as Parquet files, written once and found again by their parameters.

The same rows are laid out in two ways, because engines read files differently:
- `slices`: files that follow each other in time, taken one after the other.
- `partitions`: as many files as there are readers, each in time order, blocks of rows dealt to them in turn,
  as the partitions of a topic would hold them. Flink assigns files to readers in no particular order, so that
  a reader with several files would see time jump back and drop rows as late.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.nexmark.events import Stream, make_closing_row, make_slice, rows_per_slice
from benchmarks.paths import DATASETS

ROW_GROUP = 50_000
FORMAT_VERSION = 1
FAR_FUTURE_MS = 24 * 3600 * 1000


@dataclass(frozen=True)
class Dataset:
    """The first `slices` slices of a stream's tables, as files."""

    stream: Stream
    slices: int
    directory: Path

    def rows(self, tables: tuple[str, ...]) -> int:
        return sum(rows_per_slice(self.stream, table) * self.slices for table in tables)

    def files(self, layout: str, readers: int) -> Callable[[str], list[Path]]:
        """What lists a table's files in that layout."""
        if layout == "slices":
            return self.slice_files
        return lambda table: self.partition_files(table, readers)

    def slice_files(self, table: str) -> list[Path]:
        return [self._slice_file(table, index) for index in range(self.slices)]

    def partition_files(self, table: str, partitions: int) -> list[Path]:
        """One file per reader, written the first time it is asked for."""
        directory = self.directory / f"{table}-{self.slices}x{partitions}"
        files = [directory / f"partition-{number:03d}.parquet" for number in range(partitions)]
        if not all(file.exists() for file in files):
            directory.mkdir(parents=True, exist_ok=True)
            _deal_out(self.slice_files(table), files)
        return files

    def closing_file(self, table: str) -> Path:
        """A last file with one row in the far future."""
        file = self.directory / table / f"closing-{self.slices}.parquet"
        if not file.exists():
            last = pq.read_table(self.slice_files(table)[-1], columns=["ts"])["ts"][-1].as_py()
            row = make_closing_row(table, last + FAR_FUTURE_MS, self.stream.key_type)
            _write_atomically(file, row.schema, iter([row]))
        return file

    def _slice_file(self, table: str, index: int) -> Path:
        file = self.directory / table / f"slice-{index:05d}.parquet"
        if not file.exists():
            rows = make_slice(self.stream, table, index)
            _write_atomically(file, rows.schema, iter([rows]))
        return file


def open_dataset(stream: Stream, slices: int) -> Dataset:
    """The dataset of these parameters; its files are made when first asked for."""
    parameters = {**stream.parameters(), "format": FORMAT_VERSION, "row_group": ROW_GROUP}
    digest = hashlib.sha256(json.dumps(parameters, sort_keys=True).encode()).hexdigest()[:12]
    directory = DATASETS / f"keys-{stream.keys}-{stream.key_type}-{digest}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "parameters.json").write_text(json.dumps(parameters, indent=2))
    return Dataset(stream, slices, directory)


def _deal_out(slices: list[Path], targets: list[Path]) -> None:
    """Block b of the stream goes to target b modulo their number."""
    schema = pq.read_schema(slices[0])
    partial = [target.with_suffix(".partial") for target in targets]
    writers = [_writer(path, schema) for path in partial]
    for number, block in enumerate(_blocks(slices)):
        writers[number % len(writers)].write_table(block)
    for writer, path, target in zip(writers, partial, targets, strict=True):
        writer.close()
        path.replace(target)


def _blocks(slices: list[Path]) -> Iterator[pa.Table]:
    for path in slices:
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            yield file.read_row_group(group)


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(path, schema, compression="snappy")


def _write_atomically(file: Path, schema: pa.Schema, tables: Iterator[pa.Table]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    with _writer(partial, schema) as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROW_GROUP)
    partial.replace(file)
