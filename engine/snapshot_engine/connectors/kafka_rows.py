"""From Kafka's records to rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from snapshot_engine.connectors.text_files import BAD_TEXT, BadRow, parse_json_lines

RAW_SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "partition": pa.int32(),
        "offset": pa.int64(),
    }
)
"""Records as they are. A record without a value (a tombstone) has null there."""


class RowFormat(Protocol):
    """From one partition's records, at least one of them, to a batch with as many rows. Pickles."""

    def __call__(self, records: Sequence[Any]) -> pa.RecordBatch: ...


def row_format(topic: str, schema: pa.Schema | None) -> RowFormat:
    return RawRecords() if schema is None else JsonValues(topic, schema)


@dataclass(frozen=True)
class RawRecords:
    def __call__(self, records: Sequence[Any]) -> pa.RecordBatch:
        columns = {
            "key": [record.key() for record in records],
            "value": [record.value() for record in records],
            "timestamp": [record.timestamp()[1] for record in records],
            "partition": [record.partition() for record in records],
            "offset": [record.offset() for record in records],
        }
        return pa.RecordBatch.from_pydict(columns, RAW_SCHEMA)


@dataclass(frozen=True)
class JsonValues:
    """Every value is one JSON object. One that is not is an error that names its partition and offset."""

    topic: str
    schema: pa.Schema

    def __call__(self, records: Sequence[Any]) -> pa.RecordBatch:
        values = [record.value() for record in records]
        try:
            return self._parse(values)
        except BAD_TEXT as error:
            raise self._find_bad(records, error) from error

    def _parse(self, values: list[bytes | None]) -> pa.RecordBatch:
        lines = [_one_line(value) for value in values]
        batches = parse_json_lines(b"\n".join(lines) + b"\n", self.schema).combine_chunks().to_batches()
        rows = sum(batch.num_rows for batch in batches)
        if rows != len(values):
            raise ValueError(f"{len(values)} records hold {rows} JSON objects")
        return batches[0]

    def _find_bad(self, records: Sequence[Any], error: Exception) -> BadRow:
        for record in records:
            try:
                self._parse([record.value()])
            except BAD_TEXT as reason:
                place = f"{self.topic}/{record.partition()}"
                return BadRow(place, record.offset(), str(reason), record.value() or b"")
        return BadRow(f"{self.topic}/{records[0].partition()}", records[0].offset(), str(error), b"")


def _one_line(value: bytes | None) -> bytes:
    """Between the tokens of JSON a newline is only white space; inside a string it cannot stand as it is."""
    if value is None:
        raise ValueError("a record without a value (a tombstone): read the topic without a schema to see these")
    return value.replace(b"\n", b" ").replace(b"\r", b" ")
