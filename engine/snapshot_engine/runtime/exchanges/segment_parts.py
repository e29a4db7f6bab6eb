"""The contents of a segment: rows, and the event times said between them, in pieces of a bearable size.

A part is an Arrow table whose metadata holds the control elements, each with the number of rows before it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from snapshot_engine.channels.frames import Element
from snapshot_engine.operators.operator import StateWriter
from snapshot_engine.protocol.elements import Idle, Watermark
from snapshot_engine.state.handles import PieceHandle

ENOUGH_ROWS = 4096
"""Batches are at least so large where there are rows enough."""
MOST_ROWS = 16384

_CONTROLS = b"controls"


@dataclass(slots=True)
class Part:
    """In memory until it is stored. Stored by one thread, once; what could not be stored is tried again."""

    elements: Sequence[Element]
    schema: pa.Schema
    size: int
    handle: PieceHandle | None = None

    def store(self, writer: StateWriter) -> PieceHandle:
        if self.handle is None:
            self.handle = writer.write_table("segment", to_table(self.elements, self.schema), shared=True)
            self.elements = ()
        return self.handle


def to_table(elements: Sequence[Element], schema: pa.Schema) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    controls: list[list[int | None]] = []
    rows = 0
    for element in elements:
        if isinstance(element, pa.RecordBatch):
            batches.append(element)
            rows += element.num_rows
        elif isinstance(element, Watermark):
            controls.append([rows, element.timestamp])
        elif isinstance(element, Idle):
            controls.append([rows, None])
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    return table.replace_schema_metadata({_CONTROLS: json.dumps(_far_apart(controls))})


def _far_apart(controls: list[list[int | None]]) -> list[list[int | None]]:
    """Without watermarks that have few rows before them and another one soon behind: rows may pass a watermark, which
    is then only later than it was. At a low rate a segment would come apart into crumbs of a row or two otherwise.
    """
    kept: list[list[int | None]] = []
    for control in controls:
        begin = kept[-2][0] if len(kept) > 1 else 0
        if kept and None not in (kept[-1][1], control[1]) and _rows(control) - (begin or 0) <= ENOUGH_ROWS:
            kept.pop()
        kept.append(control)
    return kept


def _rows(control: list[int | None]) -> int:
    assert control[0] is not None
    return control[0]


def from_table(table: pa.Table, schema: pa.Schema) -> Iterator[Element]:
    """What `to_table` was given; batches may be cut differently."""
    controls = json.loads((table.schema.metadata or {}).get(_CONTROLS, b"[]"))
    plain = table.replace_schema_metadata(schema.metadata)
    position = 0
    for rows, timestamp in controls:
        yield from _batches(plain.slice(position, rows - position))
        yield Idle() if timestamp is None else Watermark(timestamp)
        position = rows
    yield from _batches(plain.slice(position))


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    return [batch for batch in table.to_batches(max_chunksize=MOST_ROWS) if batch.num_rows]
