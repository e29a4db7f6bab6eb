"""Incremental snapshots: a base, then what changed since, by reference to pieces of earlier checkpoints.

Rules that keep a chain sound:
- A snapshot refers only to pieces of a checkpoint that is complete, and counts its changes from that one. What is
  still pending is never referred to, so an abort can take nothing away from anybody.
- Pieces that may be deleted without the job's knowledge (those of a savepoint) are never referred to.
- A chain that has grown long, or whose deltas outweigh its base, ends with a new base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from snapshot_engine.operators.operator import OperatorContext, StateWriter
from snapshot_engine.state.handles import OperatorState, PieceHandle

LONGEST_CHAIN = 8

Link = tuple[PieceHandle, ...]
"""The pieces of one snapshot: one per table that had something to say."""

NamedTables = Iterable[tuple[str, pa.Table]]

_LINKS = "links"


@dataclass
class PendingSnapshot:
    """One snapshot, from the barrier until its checkpoint is complete or aborted. See operators.operator.Snapshot."""

    state: OperatorState
    tables: Callable[[], NamedTables]
    """Builds what is written. Runs in the background, on a frozen view only."""
    epoch: int
    previous: tuple[Link, ...]
    shared: bool
    links: tuple[Link, ...] | None = field(default=None, init=False)
    """Set when it has been written."""

    def write(self, writer: StateWriter) -> OperatorState:
        name = "delta" if self.previous else "base"
        # The view is as large as the state: it must not live on until the checkpoint is complete.
        tables, self.tables = self.tables, _written
        link = tuple(
            writer.write_table(
                f"{table_name}-{name}", table.replace_schema_metadata({"table": table_name}), shared=self.shared
            )
            for table_name, table in tables()
        )
        self.links = (*self.previous, link)
        return OperatorState(
            self.state.uid,
            self.state.kind,
            self.state.schema,
            {**self.state.meta, _LINKS: [len(each) for each in self.links]},
            tuple(piece for each in self.links for piece in each),
        )


def _written() -> NamedTables:
    raise RuntimeError("a snapshot can be written only once: its view of the state is gone")


@dataclass(frozen=True, slots=True)
class SnapshotPlan:
    """What the snapshot under way has to contain."""

    after: int | None
    """Changes of epochs behind this one; None: everything."""
    epoch: int
    previous: tuple[Link, ...]


class PieceChain:
    """The chain of one operator's snapshots in one subtask."""

    def __init__(self, context: OperatorContext, kind: str, schema: Mapping[str, Any]) -> None:
        self._identity = OperatorState(context.uid, kind, schema)
        self._incremental = context.incremental
        self._pending: dict[int, PendingSnapshot] = {}
        self._complete: tuple[int, tuple[Link, ...]] | None = None
        self.epoch = 1
        """Marks what changes from now on. Restored rows have the mark 0."""
        if self._incremental and not context.rescaled:
            self._go_on_from(context.restored)

    def plan(self) -> SnapshotPlan:
        """Begin a snapshot: what changes after this call belongs to a later one."""
        epoch = self.epoch
        self.epoch += 1
        if self._complete is None or not self._incremental or _worn_out(self._complete[1]):
            return SnapshotPlan(None, epoch, ())
        after, links = self._complete
        return SnapshotPlan(after, epoch, links)

    def snapshot(
        self, checkpoint: int, plan: SnapshotPlan, meta: Mapping[str, Any], tables: Callable[[], NamedTables]
    ) -> PendingSnapshot:
        state = OperatorState(self._identity.uid, self._identity.kind, self._identity.schema, meta)
        pending = PendingSnapshot(state, tables, plan.epoch, plan.previous, self._incremental)
        if self._incremental:
            self._pending[checkpoint] = pending
        return pending

    def completed(self, checkpoint: int) -> None:
        done = self._pending.get(checkpoint)
        if done is not None and done.links is not None and _lasting(done.links):
            self._complete = (done.epoch, done.links)
        for older in [number for number in self._pending if number <= checkpoint]:
            del self._pending[older]

    def aborted(self, checkpoint: int) -> None:
        self._pending.pop(checkpoint, None)

    def _go_on_from(self, restored: Sequence[OperatorState]) -> None:
        if len(restored) != 1 or _LINKS not in restored[0].meta:
            return
        pieces = list(restored[0].pieces)
        links = []
        for count in restored[0].meta[_LINKS]:
            links.append(tuple(pieces[:count]))
            del pieces[:count]
        if _lasting(links):
            self._complete = (0, tuple(links))


def _lasting(links: Sequence[Link]) -> bool:
    """Whether the job's own checkpoints keep all pieces: those of a savepoint are the user's to delete."""
    return all(piece.shared or piece.inline is not None for link in links for piece in link)


def _worn_out(links: tuple[Link, ...]) -> bool:
    base, *deltas = [sum(piece.size for piece in link) for link in links]
    return len(deltas) >= LONGEST_CHAIN or sum(deltas) > base
