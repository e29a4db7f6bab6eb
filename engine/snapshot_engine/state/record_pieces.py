"""Tables of Python values as pieces of a checkpoint, and back.

A row of a piece holds many entries of one state and one key group: packed lists of spaces, keys and values. Whole lists
are packed at once because that is ten times quicker than one by one; rows are by key group because that is how state
moves when the parallelism changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, compress, islice, repeat
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_engine.state.packing import pack, unpack
from snapshot_engine.state.record_keys import Key, RecordKeys
from snapshot_engine.state.record_tables import FLAT, MISSING, FrozenTable
from snapshot_engine.state.state_types import ValueCodec

PUT, REMOVE, DROP = 0, 1, 2
"""What a row says of its entries: they have these values; they are gone; whole spaces are gone."""

PIECE_SCHEMA = pa.schema(
    [
        pa.field("state", pa.string(), nullable=False),
        pa.field("key_group", pa.int32(), nullable=False),  # -1: a row that concerns all of them
        pa.field("action", pa.int8(), nullable=False),
        pa.field("entries", pa.int32(), nullable=False),
        pa.field("spaces", pa.binary()),  # null: all in the space FLAT
        pa.field("keys", pa.binary()),
        pa.field("values", pa.binary()),  # null: the state has keys only
    ]
)

_CHUNK = 65_536
"""Entries that are grouped and packed in one go: the interpreter is given back to the subtask between the calls."""

_PIECE_BYTES = 32 << 20


class UnpackableStateError(TypeError):
    """A value in a state that has no packed form; the checkpoint fails, and the job goes on."""


@dataclass(frozen=True, slots=True)
class PieceRow:
    state: str
    key_group: int
    action: int
    entries: int
    spaces: bytes | None
    keys: bytes | None
    values: bytes | None


def pieces_of(tables: Sequence[FrozenTable], keys: RecordKeys, key_groups: int) -> Iterator[pa.Table]:
    """All entries of the tables, in pieces of a size that fits into memory beside them."""
    rows: list[PieceRow] = []
    size = 0
    for row in chain.from_iterable(_rows(table, keys, key_groups) for table in tables):
        rows.append(row)
        size += len(row.keys or b"") + len(row.values or b"")
        if size > _PIECE_BYTES:
            yield _as_table(rows)
            rows, size = [], 0
    if rows:
        yield _as_table(rows)


def _as_table(rows: Sequence[PieceRow]) -> pa.Table:
    columns = [pa.array([getattr(row, field.name) for row in rows], field.type) for field in PIECE_SCHEMA]
    return pa.Table.from_arrays(columns, schema=PIECE_SCHEMA)


def _rows(table: FrozenTable, keys: RecordKeys, key_groups: int) -> Iterator[PieceRow]:
    if table.dropped:
        yield PieceRow(table.name, -1, DROP, len(table.dropped), pack(list(table.dropped)), None, None)
    for chunk in _chunks(table):
        groups = keys.groups(chunk.keys, key_groups)
        order = np.argsort(groups, kind="stable")
        ordered = chunk.take(order)
        present, starts = np.unique(groups[order], return_index=True)
        for group, start, end in zip(present.tolist(), starts, [*starts[1:], len(order)], strict=True):
            part = ordered.slice(start, end)
            yield from _group_rows(table, group, part, keys)


@dataclass(frozen=True, slots=True)
class _Entries:
    """Parallel lists; no spaces where all entries are in the space FLAT."""

    spaces: list[int] | None
    keys: list[Key]
    values: list[Any]

    def take(self, order: Any) -> _Entries:
        return _Entries(
            None if self.spaces is None else _taken(self.spaces, order),
            _taken(self.keys, order),
            _taken(self.values, order),
        )

    def slice(self, start: int, end: int) -> _Entries:
        spaces = None if self.spaces is None else self.spaces[start:end]
        return _Entries(spaces, self.keys[start:end], self.values[start:end])

    def where(self, chosen: list[bool]) -> _Entries:
        spaces = None if self.spaces is None else list(compress(self.spaces, chosen))
        return _Entries(spaces, list(compress(self.keys, chosen)), list(compress(self.values, chosen)))


def _taken(items: list[Any], order: Any) -> list[Any]:
    taken: list[Any] = np.fromiter(items, object, len(items))[order].tolist()
    return taken


def _chunks(table: FrozenTable) -> Iterator[_Entries]:
    """All entries: of the space FLAT by themselves, of the others, which may be many and small, together."""
    flat = table.spaces.get(FLAT, {})
    keys, values = iter(flat), iter(flat.values())
    while chunk := list(islice(keys, _CHUNK)):
        yield _Entries(None, chunk, list(islice(values, _CHUNK)))
    others = [space for space in table.spaces if space != FLAT]
    spaces = chain.from_iterable(repeat(space, len(table.spaces[space])) for space in others)
    keys = chain.from_iterable(table.spaces[space] for space in others)
    values = chain.from_iterable(table.spaces[space].values() for space in others)
    while chunk := list(islice(keys, _CHUNK)):
        yield _Entries(list(islice(spaces, _CHUNK)), chunk, list(islice(values, _CHUNK)))


def _group_rows(table: FrozenTable, group: int, entries: _Entries, keys: RecordKeys) -> Iterator[PieceRow]:
    gone = [value is MISSING for value in entries.values]
    if any(gone):
        yield _row(table, group, REMOVE, entries.where(gone), keys)
        entries = entries.where([not missing for missing in gone])
    if entries.keys:
        yield _row(table, group, PUT, entries, keys)


def _row(table: FrozenTable, group: int, action: int, entries: _Entries, keys: RecordKeys) -> PieceRow:
    values = None
    if action == PUT and table.codec is not None:
        values = _packed(table, table.codec, entries.keys, entries.values)
    spaces = None if entries.spaces is None else pack(entries.spaces)
    return PieceRow(table.name, group, action, len(entries.keys), spaces, keys.encode(entries.keys), values)


def _packed(table: FrozenTable, codec: ValueCodec, keys: list[Key], values: list[Any]) -> bytes:
    try:
        return codec.encode(values)
    except (TypeError, AttributeError, ValueError):
        for key, value in zip(keys, values, strict=True):
            try:
                codec.encode([value])
            except (TypeError, AttributeError, ValueError) as error:
                raise UnpackableStateError(
                    f"state {table.name!r} of key {key!r:.100} holds {value!r:.200}, which is not {codec.text}: {error}"
                ) from error
        raise


def rows_of_piece(piece: pa.Table, owned: range | None) -> Iterator[PieceRow]:
    """The rows of a piece, only those of the key groups in `owned` if it is given."""
    columns = [piece.column(name).to_pylist() for name in PIECE_SCHEMA.names]
    for values in zip(*columns, strict=True):
        row = PieceRow(*values)
        if owned is None or row.action == DROP or row.key_group in owned:
            yield row


def apply_row(row: PieceRow, spaces: dict[int, dict[Key, Any]], keys: RecordKeys, codec: ValueCodec | None) -> None:
    """Bring the spaces of a table to what the row says. Rows must be applied in the order they were written."""
    if row.action == DROP:
        for space in unpack(row.spaces or b"\x90"):
            spaces.pop(space, None)
        return
    assert row.keys is not None
    row_keys = keys.decode(row.keys)
    row_spaces = unpack(row.spaces) if row.spaces is not None else [FLAT] * len(row_keys)
    if row.action == REMOVE:
        for space, key in zip(row_spaces, row_keys, strict=True):
            spaces.get(space, {}).pop(key, None)
        return
    values = [None] * len(row_keys) if codec is None or row.values is None else codec.decode(row.values)
    if row.spaces is None:
        spaces.setdefault(FLAT, {}).update(zip(row_keys, values, strict=True))
        return
    for space, key, value in zip(row_spaces, row_keys, values, strict=True):
        spaces.setdefault(space, {})[key] = value
