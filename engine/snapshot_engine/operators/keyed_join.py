"""The unbounded inner join: every row meets all rows of the other side with the same key, before and after it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.operators.join_rows import JoinSide, joined_fields, pairs_in_parts, partners_of
from snapshot_engine.operators.linked_rows import LinkedRows
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Snapshot
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.operators.window_output import bounded
from snapshot_engine.state.key_index import key_index
from snapshot_engine.state.piece_chain import PieceChain, SnapshotPlan
from snapshot_engine.state.restored_tables import restored_tables

KIND = "keyed-join"

LEFT, RIGHT = 0, 1


def output_type(left_keys: Sequence[str], right_keys: Sequence[str], left: StreamType, right: StreamType) -> StreamType:
    """The key columns (as the left side calls them), then the other columns of both sides. A pair comes when the later
    of its rows does, so it has no event time."""
    sides = JoinSide.of("left", left_keys, left), JoinSide.of("right", right_keys, right)
    for side in sides:
        side.codec()
    keys, others = joined_fields(*sides)
    return StreamType(pa.schema([*keys, *others]))


class KeyedJoinOperator(Operator):
    """Both sides stay in state for ever; rows whose key has a null match nothing and are not kept."""

    def __init__(
        self,
        *,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        left: StreamType,
        right: StreamType,
        output: StreamType,
    ) -> None:
        self._inputs = (left, right)
        self._sides = (JoinSide.of("left", left_keys, left), JoinSide.of("right", right_keys, right))
        self._codec = self._sides[LEFT].codec()
        self._output_schema = output.schema
        self._keys = key_index(self._codec)
        self._rows = tuple(LinkedRows(side.schema) for side in self._sides)
        self._sizes: dict[int, tuple[int, int]] = {}
        """How many rows the sides had at the end of an epoch: where the changes since begin. Empty where every snapshot
        has all rows."""

    def open(self, context: OperatorContext) -> None:
        left, right = self._sides
        schema = {**left.describe(), **right.describe()}
        self._chain = PieceChain(context, KIND, schema)
        stored_keys = {side.name: side.stored_keys() for side in self._sides}
        for name, batch in restored_tables(context, KIND, schema, stored_keys.__getitem__):
            side = LEFT if name == left.name else RIGHT
            rows = self._sides[side].restored(batch)
            self._rows[side].add(rows, self._number(side, rows), self._keys.capacity)
        self._incremental = context.incremental
        if self._incremental:
            self._sizes[0] = self._current_sizes()

    def process(self, port: int, data: Data) -> None:
        side = self._sides[port]
        batch = side.kept(to_arrow(data, self._inputs[port]))
        matchable = side.matchable(batch)
        if matchable is not None:
            batch = batch.filter(pa.array(matchable))
        keys = self._number(port, batch)
        self._put_out_pairs(port, batch, keys)
        self._rows[port].add(batch, keys, self._keys.capacity)

    def snapshot(self, checkpoint: int) -> Snapshot:
        plan = self._chain.plan()
        since = self._sizes_after(plan)
        frozen = [rows.store.since(first) for rows, first in zip(self._rows, since, strict=True)]
        return self._chain.snapshot(checkpoint, plan, {}, lambda: self._written(frozen))

    def on_completed(self, checkpoint: int) -> None:
        self._chain.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self._chain.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        return sum(self._current_sizes()), self._keys.nbytes + sum(rows.nbytes for rows in self._rows)

    def _sizes_after(self, plan: SnapshotPlan) -> tuple[int, int]:
        """What the snapshot need not have; from an earlier epoch nothing will be asked any more."""
        if self._incremental:
            self._sizes[plan.epoch] = self._current_sizes()
            self._sizes = {epoch: sizes for epoch, sizes in self._sizes.items() if epoch >= (plan.after or 0)}
        return (0, 0) if plan.after is None else self._sizes[plan.after]

    def _current_sizes(self) -> tuple[int, int]:
        return self._rows[LEFT].store.size, self._rows[RIGHT].store.size

    def _number(self, port: int, batch: pa.RecordBatch) -> Rows:
        return self._keys.add(self._sides[port].encode(self._codec, batch))

    def _put_out_pairs(self, port: int, batch: pa.RecordBatch, keys: Rows) -> None:
        others = self._rows[1 - port]
        others.make_room(self._keys.capacity)
        counts = partners_of(keys, others.heads, others.nexts)
        for probes, partners in pairs_in_parts(keys, others.heads, others.nexts, counts):
            for positions, stored in others.store.take(partners):
                probing = batch.take(pa.array(probes[positions]))
                self._emit(*((probing, stored) if port == LEFT else (stored, probing)))

    def _emit(self, left: pa.RecordBatch, right: pa.RecordBatch) -> None:
        columns = [left.column(name) for name in (*self._sides[LEFT].keys, *self._sides[LEFT].others)]
        columns += [right.column(name) for name in self._sides[RIGHT].others]
        for part in bounded(pa.RecordBatch.from_arrays(columns, schema=self._output_schema)):
            self.output.emit(part)

    def _written(self, frozen: Sequence[Sequence[pa.RecordBatch]]) -> Iterator[tuple[str, pa.Table]]:
        for side, batches in zip(self._sides, frozen, strict=True):
            if batches:
                yield side.name, side.stored(batches)
