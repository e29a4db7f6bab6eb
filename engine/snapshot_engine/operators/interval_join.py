"""The interval join: rows with equal keys whose event times lie within some distance of each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.operators.event_times import Times, event_times
from snapshot_engine.operators.join_rows import JoinSide, joined_fields, pairs_in_parts, partners_of
from snapshot_engine.operators.linked_rows import TimedRows
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Snapshot
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime, StreamType
from snapshot_engine.operators.window_output import bounded
from snapshot_engine.protocol.elements import MIN_WATERMARK
from snapshot_engine.state.key_index import key_index
from snapshot_engine.state.piece_chain import PieceChain, SnapshotPlan
from snapshot_engine.state.restored_tables import restored_tables, restored_watermark

KIND = "interval-join"

LEFT, RIGHT = 0, 1

_FEWEST_SWEPT = 65_536
"""Rows: with fewer added since the last time, looking for rows that have expired is not worth it."""

_TIME = "time"


def output_type(left_keys: Sequence[str], right_keys: Sequence[str], left: StreamType, right: StreamType) -> StreamType:
    """The key columns (as the left side calls them), then the other columns of both sides. A pair's event time is that
    of the later of its rows, so that no pair is behind the watermark."""
    sides = JoinSide.of("left", left_keys, left), JoinSide.of("right", right_keys, right)
    for side in sides:
        side.codec()
    keys, others = joined_fields(*sides)
    return StreamType(pa.schema([*keys, *others, pa.field(HIDDEN_TIME, pa.int64())]), EventTime(HIDDEN_TIME))


class IntervalJoinOperator(Operator):
    """Puts a pair out as soon as both of its rows are there: the right row is at most `before_ms` earlier and at most
    `after_ms` later than the left one. A row is kept until the watermark says that no partner can come any more. Rows
    behind the watermark are dropped and counted; rows whose key has a null match nothing and are not kept."""

    def __init__(
        self,
        *,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        before_ms: int,
        after_ms: int,
        left: StreamType,
        right: StreamType,
        output: StreamType,
    ) -> None:
        if left.event_time is None or right.event_time is None:
            raise ValueError("an interval join needs event time, and an input of it has none")
        self._inputs = (left, right)
        self._event_times = (left.event_time, right.event_time)
        self._sides = (JoinSide.of("left", left_keys, left), JoinSide.of("right", right_keys, right))
        self._codec = self._sides[LEFT].codec()
        self._before, self._after = before_ms, after_ms
        self._patience = (after_ms, before_ms)
        """How long the rows of each side wait for later ones of the other."""
        self._output_schema = output.schema
        self._keys = key_index(self._codec)
        self._rows = self._no_rows()
        self._sizes: dict[int, tuple[int, int]] = {}
        """How many rows the sides had at the end of an epoch: where the changes since begin. Empty where every snapshot
        has all rows."""
        self._swept = 0
        """How many rows the last sweep left."""
        self._watermark = MIN_WATERMARK

    def open(self, context: OperatorContext) -> None:
        left, right = self._sides
        schema = {**left.describe(), **right.describe(), "interval": f"{self._before} {self._after}"}
        self._chain = PieceChain(context, KIND, schema)
        watermark = restored_watermark(context, KIND)
        if watermark is not None:
            self._watermark = watermark
        stored_keys = {side.name: side.stored_keys() for side in self._sides}
        for name, batch in restored_tables(context, KIND, schema, stored_keys.__getitem__):
            port = LEFT if name == left.name else RIGHT
            times = batch.column(_TIME).to_numpy()
            self._keep(port, self._sides[port].restored(batch), times)
        self._incremental = context.incremental
        if self._incremental:
            self._sizes[0] = self._current_sizes()

    def process(self, port: int, data: Data) -> None:
        batch = to_arrow(data, self._inputs[port])
        times = event_times(batch, self._event_times[port])
        batch, times = self._useful(port, self._sides[port].kept(batch), times)
        if batch.num_rows:
            keys = self._number(port, batch)
            self._put_out_pairs(port, batch, times, keys)
            self._rows[port].add_timed(batch, times, keys, self._keys.capacity)

    def on_watermark(self, timestamp: int) -> None:
        self._watermark = max(self._watermark, timestamp)
        if sum(self._current_sizes()) >= 2 * self._swept + _FEWEST_SWEPT:
            self._sweep()
        self.output.watermark(timestamp)

    def snapshot(self, checkpoint: int) -> Snapshot:
        plan = self._chain.plan()
        since = self._sizes_after(plan)
        frozen = [(rows.store.since(first), rows.times[first:]) for rows, first in zip(self._rows, since, strict=True)]
        meta = {"watermark": self._watermark}
        return self._chain.snapshot(checkpoint, plan, meta, lambda: self._written(frozen, meta["watermark"]))

    def on_completed(self, checkpoint: int) -> None:
        self._chain.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self._chain.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        return sum(self._current_sizes()), self._keys.nbytes + sum(rows.nbytes for rows in self._rows)

    def _no_rows(self) -> tuple[TimedRows, TimedRows]:
        return TimedRows(self._sides[LEFT].schema), TimedRows(self._sides[RIGHT].schema)

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

    def _keep(self, port: int, batch: pa.RecordBatch, times: Times) -> None:
        self._rows[port].add_timed(batch, times, self._number(port, batch), self._keys.capacity)

    def _useful(self, port: int, batch: pa.RecordBatch, times: Times) -> tuple[pa.RecordBatch, Times]:
        """Without rows that are late and rows that match nothing."""
        in_time = times > self._watermark
        late = len(times) - int(np.count_nonzero(in_time))
        self.late_rows += late
        matchable = self._sides[port].matchable(batch)
        if not late and matchable is None:
            return batch, times
        wanted = in_time if matchable is None else in_time & matchable
        return batch.filter(pa.array(wanted)), times[wanted]

    def _put_out_pairs(self, port: int, batch: pa.RecordBatch, times: Times, keys: Rows) -> None:
        others = self._rows[1 - port]
        others.make_room(self._keys.capacity)
        counts = partners_of(keys, others.heads, others.nexts)
        for probes, partners in pairs_in_parts(keys, others.heads, others.nexts, counts):
            mine, theirs = times[probes], others.times[partners]
            near = self._near(*((mine, theirs) if port == LEFT else (theirs, mine)))
            latest = np.maximum(mine, theirs)[near]
            for positions, stored in others.store.take(partners[near]):
                probing = batch.take(pa.array(probes[near][positions]))
                self._emit(*((probing, stored) if port == LEFT else (stored, probing)), latest[positions])

    def _near(self, left: Times, right: Times) -> npt.NDArray[np.bool_]:
        distance = right - left
        return (distance >= -self._before) & (distance <= self._after)

    def _emit(self, left: pa.RecordBatch, right: pa.RecordBatch, times: Times) -> None:
        columns = [left.column(name) for name in (*self._sides[LEFT].keys, *self._sides[LEFT].others)]
        columns += [right.column(name) for name in self._sides[RIGHT].others]
        for part in bounded(pa.RecordBatch.from_arrays([*columns, pa.array(times)], schema=self._output_schema)):
            self.output.emit(part)

    def _awaited(self, port: int, times: Times, watermark: int) -> npt.NDArray[np.bool_]:
        """Which rows may still meet a later one."""
        return times > watermark - self._patience[port]

    def _sweep(self) -> None:
        """Begin anew with the rows that are still awaited, in their order: so every epoch's are still together."""
        old, self._rows = self._rows, self._no_rows()
        self._keys = key_index(self._codec)
        kept = []
        for port, rows in enumerate(old):
            awaited = self._awaited(port, rows.times, self._watermark)
            kept.append(np.concatenate([[0], np.cumsum(awaited)]))
            start = 0
            for batch in rows.store.since(0):
                part = awaited[start : start + batch.num_rows]
                self._keep(port, batch.filter(pa.array(part)), rows.times[start : start + batch.num_rows][part])
                start += batch.num_rows
        self._sizes = {
            epoch: (int(kept[LEFT][left]), int(kept[RIGHT][right])) for epoch, (left, right) in self._sizes.items()
        }
        self._swept = sum(self._current_sizes())

    def _written(
        self, frozen: Sequence[tuple[Sequence[pa.RecordBatch], Times]], watermark: int
    ) -> Iterator[tuple[str, pa.Table]]:
        for port, (side, (batches, times)) in enumerate(zip(self._sides, frozen, strict=True)):
            awaited = self._awaited(port, times, watermark)
            if awaited.any():
                rows = side.stored(batches).append_column(_TIME, pa.array(times))
                yield side.name, rows.filter(pa.array(awaited))
