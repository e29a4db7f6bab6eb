"""Joining two streams inside windows: rows with equal keys that fall into the same window."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.kernels.joining import link_rows
from snapshot_engine.operators.event_times import event_times
from snapshot_engine.operators.join_rows import JoinSide, joined_fields, pairs_in_parts, partners_of, whole
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Snapshot
from snapshot_engine.operators.panes import PaneGrid
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import EventTime, StreamType
from snapshot_engine.operators.window_output import emit_window, window_fields
from snapshot_engine.operators.windows import (
    WINDOW_END,
    WINDOW_START,
    SessionWindow,
    SlidingWindow,
    TumblingWindow,
    WindowShape,
)
from snapshot_engine.protocol.elements import MIN_WATERMARK
from snapshot_engine.state.key_index import key_index
from snapshot_engine.state.piece_chain import PieceChain
from snapshot_engine.state.restored_tables import restored_tables, restored_watermark

KIND = "window-join"

How = Literal["inner", "left", "right", "outer"]

LEFT, RIGHT = 0, 1


def output_type(
    left_keys: Sequence[str], right_keys: Sequence[str], how: How, left: StreamType, right: StreamType
) -> StreamType:
    """The key columns (as the left side calls them), the window, the other columns of both sides."""
    if how not in ("inner", "left", "right", "outer"):
        raise ValueError(f"how={how!r} is none of inner, left, right, outer")
    sides = JoinSide.of("left", left_keys, left), JoinSide.of("right", right_keys, right)
    for side in sides:
        side.codec()
    keys, others = joined_fields(*sides, taken=(WINDOW_START, WINDOW_END))
    return StreamType(pa.schema([*keys, *window_fields(), *others]), EventTime(WINDOW_END, -1))


class WindowJoinOperator(Operator):
    """Puts a window's pairs out when the watermark passes its end. Keys with a null match nothing. Rows that come when
    their windows are out are dropped and counted."""

    def __init__(
        self,
        *,
        left_keys: Sequence[str],
        right_keys: Sequence[str],
        window: WindowShape,
        how: How,
        left: StreamType,
        right: StreamType,
        output: StreamType,
    ) -> None:
        if isinstance(window, SessionWindow):
            raise ValueError(
                "a join needs tumbling or sliding windows: a session of one stream says nothing of the other"
            )
        if left.event_time is None or right.event_time is None:
            raise ValueError("windows need event time, and an input of the join has none")
        self._inputs = (left, right)
        self._event_times = (left.event_time, right.event_time)
        self._sides = (JoinSide.of("left", left_keys, left), JoinSide.of("right", right_keys, right))
        self._codec = self._sides[LEFT].codec()
        self._how = how
        self._output_schema = output.schema
        self._window: TumblingWindow | SlidingWindow = window
        self._grid = PaneGrid.of(window, 0)
        self._panes: dict[int, PaneRows] = {}
        self._watermark = MIN_WATERMARK

    def open(self, context: OperatorContext) -> None:
        left, right = self._sides
        schema = {**left.describe(), **right.describe(), "window": str(self._window)}
        self._chain = PieceChain(context, KIND, schema)
        watermark = restored_watermark(context, KIND)
        if watermark is not None:
            self._watermark = watermark
        stored_keys = {side.name: side.stored_keys() for side in self._sides}
        for name, batch in restored_tables(context, KIND, schema, stored_keys.__getitem__):
            self._restore(LEFT if name == left.name else RIGHT, batch)

    def process(self, port: int, data: Data) -> None:
        batch = to_arrow(data, self._inputs[port])
        times = event_times(batch, self._event_times[port])
        for pane, part in self._grid.split(self._sides[port].kept(batch), times):
            if not self._grid.expired(pane, self._watermark):
                self._panes.setdefault(pane, PaneRows()).add(port, part, self._chain.epoch)
            elif self._grid.windows_of(pane):
                self.late_rows += part.num_rows

    def on_watermark(self, timestamp: int) -> None:
        if timestamp > self._watermark:
            for window in self._grid.windows_due(self._panes, self._watermark, timestamp):
                self._put_out(window)
            self._watermark = timestamp
            for pane in [pane for pane in self._panes if self._grid.expired(pane, timestamp)]:
                del self._panes[pane]
        self.output.watermark(timestamp)

    def snapshot(self, checkpoint: int) -> Snapshot:
        plan = self._chain.plan()
        frozen = [(pane, rows.since(plan.after)) for pane, rows in self._panes.items()]
        meta = {"watermark": self._watermark}
        return self._chain.snapshot(checkpoint, plan, meta, lambda: self._written(frozen))

    def on_completed(self, checkpoint: int) -> None:
        self._chain.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self._chain.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        panes = self._panes.values()
        return sum(pane.rows for pane in panes), sum(pane.nbytes for pane in panes)

    def _put_out(self, window: int) -> None:
        panes = [self._panes[pane] for pane in self._grid.panes_of(window) if pane in self._panes]
        left, right = (
            whole([batch for rows in panes for batch in rows.since(None)[port]], self._sides[port].schema)
            for port in (LEFT, RIGHT)
        )
        left_keys, right_keys, known = self._numbered(left, right)
        heads = np.full(known, -1, np.int32)
        nexts = np.full(right.num_rows, -1, np.int32)
        link_rows(right_keys, heads, nexts, 0)
        counts = partners_of(left_keys, heads, nexts)
        matched = np.zeros(right.num_rows, np.bool_)
        for left_rows, right_rows in pairs_in_parts(left_keys, heads, nexts, counts):
            matched[right_rows] = True
            self._emit(window, left, right, pa.array(left_rows), pa.array(right_rows))
        if self._how in ("left", "outer"):
            alone = np.flatnonzero(counts == 0)
            self._emit(window, left, right, pa.array(alone), pa.nulls(len(alone), pa.int64()))
        if self._how in ("right", "outer"):
            alone = np.flatnonzero(~matched)
            self._emit(window, left, right, pa.nulls(len(alone), pa.int64()), pa.array(alone))

    def _numbered(self, left: pa.RecordBatch, right: pa.RecordBatch) -> tuple[Rows, Rows, int]:
        """The keys of both sides as numbers, equal ones by equal numbers, -1 for those with a null; and how many."""
        index = key_index(self._codec, right.num_rows)
        numbers = []
        for side, batch in zip(self._sides, (left, right), strict=True):
            rows = index.add(side.encode(self._codec, batch))
            matchable = side.matchable(batch)
            if matchable is not None:
                rows[~matchable] = -1
            numbers.append(rows)
        return numbers[LEFT], numbers[RIGHT], index.size

    def _emit(
        self, window: int, left: pa.RecordBatch, right: pa.RecordBatch, left_rows: pa.Array, right_rows: pa.Array
    ) -> None:
        if len(left_rows) == 0:
            return
        taken = list(zip(self._sides, (left, right), (left_rows, right_rows), strict=True))
        # Rows of the right side alone have their key from there.
        side, batch, rows = taken[RIGHT if left_rows.null_count else LEFT]
        columns = [batch.column(key).take(rows) for key in side.keys]
        for side, batch, rows in taken:
            columns.extend(batch.column(name).take(rows) for name in side.others)
        emit_window(self.output, self._output_schema, len(self._codec.types), columns, window, window + self._grid.size)

    def _written(
        self, frozen: Sequence[tuple[int, tuple[list[pa.RecordBatch], list[pa.RecordBatch]]]]
    ) -> Iterator[tuple[str, pa.Table]]:
        for port, side in enumerate(self._sides):
            parts = []
            for pane, batches in frozen:
                if batches[port]:
                    rows = side.stored(batches[port])
                    parts.append(rows.add_column(0, "window", pa.array(np.full(rows.num_rows, pane, np.int64))))
            if parts:
                yield side.name, pa.concat_tables(parts).combine_chunks()

    def _restore(self, port: int, batch: pa.RecordBatch) -> None:
        windows = batch.column("window").to_numpy()
        rows = self._sides[port].restored(batch)
        for pane in np.unique(windows).tolist():
            if not self._grid.expired(pane, self._watermark):
                self._panes.setdefault(pane, PaneRows()).add(port, rows.filter(pa.array(windows == pane)), 0)


class PaneRows:
    """The rows of both sides in one pane, as the batches they came in, each with the epoch it came in."""

    def __init__(self) -> None:
        self._batches: tuple[list[tuple[int, pa.RecordBatch]], ...] = ([], [])
        self.rows = 0
        self.nbytes = 0

    def add(self, port: int, batch: pa.RecordBatch, epoch: int) -> None:
        self._batches[port].append((epoch, batch))
        self.rows += batch.num_rows
        self.nbytes += batch.nbytes

    def since(self, after: int | None) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
        """Each side's batches that came in epochs behind `after`; None: all."""
        left, right = ([batch for epoch, batch in side if after is None or epoch > after] for side in self._batches)
        return left, right
