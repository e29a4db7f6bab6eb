"""The keyed state of one operator that works on Python records: its tables, their snapshots, their restoring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from snapshot_engine.state.changed_state import RecordStateChanged
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.state.record_keys import Key, RecordKeys
from snapshot_engine.state.record_pieces import PieceRow, apply_row, pieces_of, rows_of_piece
from snapshot_engine.state.record_tables import FLAT, Changes, FrozenTable, StateTable, View
from snapshot_engine.state.state_types import ValueCodec, is_told_as

KEYS_ONLY = "keys"
"""How a state without values tells its type."""

MOST_DELTAS = 12
"""After so many pieces of changes a snapshot writes everything again: restoring has to read them all."""


class PieceReader(Protocol):
    def read_table(self, handle: PieceHandle) -> pa.Table: ...


class PieceWriter(Protocol):
    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle: ...


@dataclass(frozen=True)
class StateOwner:
    """Whose state it is, and which part of it: all that snapshots and restores need to know of the operator."""

    uid: str
    name: str
    kind: str
    key_groups: int
    owned: range
    incremental: bool


@dataclass(frozen=True)
class _Lineage:
    """A completed checkpoint's pieces, which later ones may refer to."""

    pieces: tuple[PieceHandle, ...]
    deltas: int


class RecordState:
    """Tables are declared by name; what was restored under the name is in them from then on."""

    def __init__(self, owner: StateOwner, keys: RecordKeys) -> None:
        self.owner = owner
        self.keys = keys
        self.tables: dict[str, StateTable] = {}
        self._texts: dict[str, str] = {}
        self._restored_rows: list[dict[str, list[PieceRow]]] = []  # one for each old subtask
        self._restored_types: dict[str, str] = {}
        self._completed: _Lineage | None = None
        self._changes: list[tuple[int, dict[str, Changes]]] = []
        self._pending: dict[int, RecordSnapshot] = {}
        self._bytes_per_entry = 64

    def restore(self, states: Sequence[OperatorState], reader: PieceReader, *, rescaled: bool) -> None:
        """Read what the checkpoint has; before any table is declared."""
        for state in states:
            self._check_keys(state.schema)
            for name, text in state.schema["states"].items():
                self._restored_types[name] = text
            rows: dict[str, list[PieceRow]] = {}
            for handle in state.pieces:
                for row in rows_of_piece(reader.read_table(handle), self.owner.owned if rescaled else None):
                    rows.setdefault(row.state, []).append(row)
            self._restored_rows.append(rows)
        if self.owner.incremental and not rescaled and len(states) == 1:
            pieces = states[0].pieces
            if pieces and all(piece.shared for piece in pieces):
                self._completed = _Lineage(pieces, states[0].meta.get("deltas", 0))

    def declare(
        self, name: str, text: str, codec: ValueCodec | None, *, spaced: bool = False, once: str | None = None
    ) -> StateTable:
        """The table of this name, with what was restored; `text` tells its type and must be what it was then.

        `spaced`: it has many spaces, rather than the space FLAT only. `once`: how older checkpoints tell the same.
        """
        if name in self.tables:
            raise ValueError(f"operator {self.owner.name!r} declares two states called {name!r}")
        found = self._restored_types.get(name)
        if found is not None and not is_told_as(found, text) and not (once and is_told_as(found, once)):
            raise RecordStateChanged(
                f"state {name!r} of operator {self.owner.name!r} (uid {self.owner.uid}) is {found} in the checkpoint, "
                f"but is declared as {text} now: change it back, or give the new state another name"
            )
        table = self.tables[name] = StateTable(name, codec, tracked=self.owner.incremental)
        if not spaced:
            table.spaces[FLAT] = {}
        for rows in self._restored_rows:
            self._take_over(table, rows.pop(name, ()))
        self._texts[name] = text
        return table

    def _take_over(self, table: StateTable, rows: Sequence[PieceRow]) -> None:
        """What one old subtask had; apart from the others, since a space it dropped may live on with them."""
        spaces: dict[int, dict[Key, Any]] = {}
        for row in rows:
            apply_row(row, spaces, self.keys, table.codec)
        for space, values in spaces.items():
            table.spaces.setdefault(space, {}).update(values)

    def all_declared(self) -> None:
        """Called when the operator is open: state that nobody declared would be lost in silence."""
        unknown = sorted(self._restored_types.keys() - self.tables.keys())
        if unknown:
            raise RecordStateChanged(
                f"the checkpoint holds state {unknown[0]!r} ({self._restored_types[unknown[0]]}) of operator "
                f"{self.owner.name!r} (uid {self.owner.uid}), which does not declare it any more: declare it again (it "
                "need not be used), or give the operator a new uid and allow state that is not restored"
            )

    def freeze(self, checkpoint: int, meta: Mapping[str, Any]) -> RecordSnapshot:
        """The synchronous part of a snapshot: nothing is copied here but what changed, where that is known."""
        if not self.owner.incremental or checkpoint < 0:
            return self._frozen(checkpoint, meta, None, {})
        changes = {name: table.take_changes() for name, table in self.tables.items()}
        self._changes.append((checkpoint, changes))
        since = self._changes_since_completed()
        snapshot = self._frozen(checkpoint, meta, self._lineage_for(since), since)
        self._pending[checkpoint] = snapshot
        return snapshot

    def completed(self, checkpoint: int) -> None:
        """Later snapshots may refer to the pieces of this one, and need only what changed after it."""
        snapshot = self._pending.get(checkpoint)
        if snapshot is None or snapshot.lineage is None:
            return
        self._completed = snapshot.lineage
        self._changes = [(number, changes) for number, changes in self._changes if number > checkpoint]
        self._pending = {number: pending for number, pending in self._pending.items() if number > checkpoint}

    def aborted(self, checkpoint: int) -> None:
        """Its pieces are gone; what had changed before it must be written by the next one."""
        self._pending.pop(checkpoint, None)

    def size(self) -> tuple[int, int]:
        entries = sum(map(len, self.tables.values()))
        return entries, entries * self._bytes_per_entry

    def schema(self) -> dict[str, Any]:
        return {"keys": self.keys.described(), "key_columns": self.keys.columns, "states": dict(self._texts)}

    def _frozen(
        self, checkpoint: int, meta: Mapping[str, Any], lineage: _Lineage | None, changes: Mapping[str, Changes]
    ) -> RecordSnapshot:
        view = View()
        if lineage is None:
            tables = [table.freeze(view) for table in self.tables.values()]
        else:
            tables = [table.freeze_changes(view, changes[name]) for name, table in self.tables.items()]
        return RecordSnapshot(self, checkpoint, view, tables, {**meta}, lineage)

    def _lineage_for(self, changes: Mapping[str, Changes]) -> _Lineage | None:
        """What to refer to, or None if everything should be written: at first, now and then, or if most changed."""
        if self._completed is None or self._completed.deltas >= MOST_DELTAS:
            return None
        changed = sum(map(len, changes.values()))
        return self._completed if changed * 2 <= sum(map(len, self.tables.values())) else None

    def _changes_since_completed(self) -> Mapping[str, Changes]:
        if len(self._changes) == 1:
            return self._changes[0][1]
        merged = {name: Changes() for name in self.tables}
        for _, changes in self._changes:
            for name, change in changes.items():
                merged[name].follow(change)
        return merged

    def _check_keys(self, schema: Mapping[str, Any]) -> None:
        found, expected = schema["keys"], self.keys.described()
        if found == expected:
            found, expected = schema.get("key_columns", self.keys.columns), self.keys.columns  # once not told
        if found != expected:
            raise RecordStateChanged(
                f"the state of operator {self.owner.name!r} (uid {self.owner.uid}) is keyed by "
                f"{_told_key(found)} in the checkpoint, but by {_told_key(expected)} now: change "
                "it back, or give the operator a new uid and allow state that is not restored"
            )

    def written(self, size: int, entries: int) -> None:
        """How large the state is on disk, from the background thread; an estimate for the metrics."""
        if entries:
            self._bytes_per_entry = max(1, size // entries)


def _told_key(names: Sequence[str]) -> str:
    return ", ".join(names) or "a function"


@dataclass
class RecordSnapshot:
    """The asynchronous part: packs what the view holds."""

    state: RecordState = field(repr=False)
    checkpoint: int
    view: View
    tables: Sequence[FrozenTable] = field(repr=False)
    meta: dict[str, Any]
    base: _Lineage | None
    lineage: _Lineage | None = None
    """What later snapshots may refer to once this one is complete; set when it is written."""

    def write(self, writer: PieceWriter) -> OperatorState:
        owner = self.state.owner
        shared = owner.incremental
        new = []
        for number, piece in enumerate(pieces_of(self.tables, self.state.keys, owner.key_groups)):
            new.append(writer.write_table(f"{owner.uid}-{number}", piece, shared=shared))
        if self.base is None:
            self.state.written(sum(handle.size for handle in new), sum(map(len, self.tables)))
        self.tables = ()
        self.view.released = True
        old, deltas = (self.base.pieces, self.base.deltas + 1) if self.base else ((), 0)
        pieces = (*old, *new)
        if shared:
            self.lineage = _Lineage(pieces, deltas)
            self.meta["deltas"] = deltas
        return OperatorState(owner.uid, owner.kind, self.state.schema(), self.meta, pieces)
