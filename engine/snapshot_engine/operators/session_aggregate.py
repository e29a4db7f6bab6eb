"""Aggregates over session windows: rows of a key that are less than a gap apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows, UnsupportedType
from snapshot_engine.operators.aggregates import Aggregate
from snapshot_engine.operators.event_times import event_times
from snapshot_engine.operators.group_table import GroupLayout
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Snapshot
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import HIDDEN_KEY, EventTime, StreamType
from snapshot_engine.operators.window_output import emit_windows, window_fields
from snapshot_engine.operators.windows import WINDOW_END, SessionWindow
from snapshot_engine.protocol.elements import MIN_WATERMARK
from snapshot_engine.state.piece_chain import PieceChain
from snapshot_engine.state.restored_tables import restored_tables, restored_watermark
from snapshot_engine.state.session_table import FrozenSessions, SessionTable

KIND = "session-aggregate"
SESSIONS = "sessions"


def output_type(keys: Sequence[str], aggregates: Mapping[str, Aggregate], input: StreamType) -> StreamType:
    """The key columns, the session's start and end (its last row's time plus the gap), the aggregates."""
    layout = _layout(keys, aggregates, input)
    schema = pa.schema([*layout.key_fields, *window_fields(), *layout.columns.fields()])
    return StreamType(schema, EventTime(WINDOW_END, -1))


def _layout(keys: Sequence[str], aggregates: Mapping[str, Aggregate], input: StreamType) -> GroupLayout:
    layout = GroupLayout(keys, aggregates, input.schema)
    if layout.columns.distinct_columns:
        raise UnsupportedType(
            f"distinct values of {layout.columns.distinct_columns[0]!r} cannot be counted in session windows: "
            "use aggregate_with and an AggregateFunction that keeps a set"
        )
    return layout


class SessionAggregateOperator(Operator):
    """Puts a session out when the watermark passes its end, and again when late rows that are still allowed change it.
    Rows that are too late to begin or to join one go to `late_tag`, or are dropped and counted."""

    def __init__(
        self,
        *,
        keys: Sequence[str],
        window: SessionWindow,
        aggregates: Mapping[str, Aggregate],
        input: StreamType,
        output: StreamType,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        if input.event_time is None:
            raise ValueError("windows need event time, and the input has none")
        if window.gap_ms <= 0:
            raise ValueError(f"{window}: the gap must be at least one millisecond")
        self._input = input
        self._event_time = input.event_time
        self._output_schema = output.schema
        self._layout = _layout(keys, aggregates, input)
        self._gap = window.gap_ms
        self._lateness = allowed_lateness_ms
        self._late_tag = late_tag
        self._late_columns = [name for name in input.schema.names if name != HIDDEN_KEY]
        self._sessions = SessionTable(self._layout.codec, self._layout.columns.initial, self._gap)
        self._watermark = MIN_WATERMARK

    def open(self, context: OperatorContext) -> None:
        self._layout.columns.operator = context.name
        schema = {**self._layout.describe(), "gap": self._gap}
        self._chain = PieceChain(context, KIND, schema)
        watermark = restored_watermark(context, KIND)
        if watermark is not None:
            self._watermark = watermark
        for _, batch in restored_tables(context, KIND, schema, lambda _: self._layout.stored_keys):
            self._restore(batch)
        self._sessions.expire(self._closed_until())

    def process(self, port: int, data: Data) -> None:
        batch = to_arrow(data, self._input)
        times = event_times(batch, self._event_time)
        keys = self._layout.encode(batch)
        # A session that ends at time e has its last millisecond at e - 1.
        slots, merges = self._sessions.assign(keys, times, self._closed_until() + 1, self._chain.epoch)
        on_time = slots >= 0
        if not on_time.all():
            self._drop_late(batch.filter(pa.array(~on_time)))
            batch, slots = batch.filter(pa.array(on_time)), slots[on_time]
        columns = self._layout.columns
        matrix = self._sessions.matrix
        columns.accumulate(batch, slots, matrix)
        if len(merges):
            gone = np.ascontiguousarray(merges[:, 0])
            columns.merge(matrix, gone, matrix, np.ascontiguousarray(merges[:, 1]))
            self._sessions.forget(gone)
        if self._lateness:
            self._put_out_again(slots)

    def on_watermark(self, timestamp: int) -> None:
        if timestamp > self._watermark:
            self._put_out(self._sessions.ending(self._watermark, timestamp))
            self._watermark = timestamp
            self._sessions.expire(self._closed_until())
        self.output.watermark(timestamp)

    def snapshot(self, checkpoint: int) -> Snapshot:
        plan = self._chain.plan()
        frozen = self._sessions.freeze(plan.after)
        meta = {"watermark": self._watermark}
        return self._chain.snapshot(checkpoint, plan, meta, lambda: self._written(frozen))

    def on_completed(self, checkpoint: int) -> None:
        self._chain.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self._chain.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        return self._sessions.size, self._sessions.nbytes

    def _closed_until(self) -> int:
        """Sessions whose last millisecond is not behind this one can change no more."""
        return max(self._watermark - self._lateness, MIN_WATERMARK)

    def _drop_late(self, rows: pa.RecordBatch) -> None:
        self.late_rows += rows.num_rows
        if self._late_tag is not None:
            self.output.emit_side(self._late_tag, rows.select(self._late_columns))

    def _put_out_again(self, touched: Rows) -> None:
        slots = np.unique(touched)
        slots = slots[self._sessions.alive(slots)]
        self._put_out(slots[self._sessions.lasts[slots] + self._gap - 1 <= self._watermark])

    def _put_out(self, slots: Rows) -> None:
        if len(slots) == 0:
            return
        sessions = self._sessions
        keys = self._layout.codec.decode(sessions.keys_of(slots))
        results = self._layout.columns.results(sessions.matrix[slots])
        starts, ends = sessions.firsts[slots], sessions.lasts[slots] + self._gap
        emit_windows(self.output, self._output_schema, len(keys), [*keys, *results], starts, ends)

    def _written(self, frozen: FrozenSessions) -> Iterator[tuple[str, pa.Table]]:
        if len(frozen) == 0:
            return
        layout = self._layout
        keys = layout.codec.decode(frozen.all_keys.take(frozen.owners), large=True)
        accumulators = layout.columns.stored(frozen.values)
        yield (
            SESSIONS,
            pa.table(
                [*keys, pa.array(frozen.firsts), pa.array(frozen.lasts), *accumulators],
                names=[*layout.stored_keys, "first", "last", *layout.columns.stored_names],
            ),
        )

    def _restore(self, batch: pa.RecordBatch) -> None:
        keys = self._layout.codec.encode([batch.column(name) for name in self._layout.stored_keys])
        values = self._layout.columns.restored(batch)
        firsts, lasts = (batch.column(name).to_numpy() for name in ("first", "last"))
        self._sessions.replace(keys, firsts, lasts, values)
