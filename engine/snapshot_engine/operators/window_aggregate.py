"""Aggregates over tumbling and sliding windows of event time, column by column.

Every pane of time has a table of its own, so that putting out a window and forgetting it cost nothing per row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import Rows
from snapshot_engine.operators.aggregates import Aggregate
from snapshot_engine.operators.event_times import event_times
from snapshot_engine.operators.group_table import GroupLayout, GroupTable, tables_of
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Snapshot
from snapshot_engine.operators.panes import PaneGrid
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import HIDDEN_KEY, EventTime, StreamType
from snapshot_engine.operators.weights import rows_counted
from snapshot_engine.operators.window_output import emit_window, window_fields
from snapshot_engine.operators.windows import WINDOW_END, SlidingWindow, TumblingWindow
from snapshot_engine.protocol.elements import MIN_WATERMARK
from snapshot_engine.state.columnar_table import SpareMemory
from snapshot_engine.state.key_index import key_index
from snapshot_engine.state.piece_chain import PieceChain
from snapshot_engine.state.restored_tables import restored_tables, restored_watermark

KIND = "window-aggregate"


def output_type(keys: Sequence[str], aggregates: Mapping[str, Aggregate], input: StreamType) -> StreamType:
    """The key columns, the window's start and end, the aggregates."""
    layout = GroupLayout(keys, aggregates, input.schema)
    schema = pa.schema([*layout.key_fields, *window_fields(), *layout.columns.fields()])
    return StreamType(schema, EventTime(WINDOW_END, -1))


class WindowAggregateOperator(Operator):
    """Puts a window out when the watermark passes its end, and again, for the keys concerned, when late rows that are
    still allowed change it. Rows that come later than that go to `late_tag`, or are dropped and counted.

    Rows may have been combined before (`row_combiner.py`): each batch says so itself.
    """

    def __init__(
        self,
        *,
        keys: Sequence[str],
        window: TumblingWindow | SlidingWindow,
        aggregates: Mapping[str, Aggregate],
        input: StreamType,
        output: StreamType,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        if input.event_time is None:
            raise ValueError("windows need event time, and the input has none")
        self._input = input
        self._event_time = input.event_time
        self._output_schema = output.schema
        self._late_tag = late_tag
        self._late_columns = [name for name in input.schema.names if name != HIDDEN_KEY]
        self._layout = GroupLayout(keys, aggregates, input.schema)
        self._grid = PaneGrid.of(window, allowed_lateness_ms)
        self._window = window
        self._panes: dict[int, GroupTable] = {}
        self._watermark = MIN_WATERMARK
        self._expected = 0
        self._spare: SpareMemory | None = None

    def open(self, context: OperatorContext) -> None:
        self._layout.columns.operator = context.name
        schema = {**self._layout.describe(), "window": str(self._window)}
        self._chain = PieceChain(context, KIND, schema)
        self._tracked = context.incremental
        watermark = restored_watermark(context, KIND)
        if watermark is not None:
            self._watermark = watermark
        for name, batch in restored_tables(context, KIND, schema, lambda _: self._layout.stored_keys):
            self._restore(name, batch)

    def process(self, port: int, data: Data) -> None:
        batch = to_arrow(data, self._input)
        changed: dict[int, list[tuple[int, Rows]]] = {}
        for pane, part in self._grid.split(batch, event_times(batch, self._event_time)):
            if self._grid.expired(pane, self._watermark):
                self._drop_late(pane, part)
                continue
            rows = self._pane(pane).add_batch(part, self._layout.encode(part), self._chain.epoch)
            for window in self._grid.windows_of(pane):
                if self._grid.due(window, self._watermark) and not self._grid.closed(window, self._watermark):
                    changed.setdefault(window, []).append((pane, rows))
        for window in sorted(changed):
            self._put_out_again(window, changed[window])

    def on_watermark(self, timestamp: int) -> None:
        if timestamp > self._watermark:
            for window in self._grid.windows_due(self._panes, self._watermark, timestamp):
                self._put_out(window)
            self._watermark = timestamp
            for pane in [pane for pane in self._panes if self._grid.expired(pane, timestamp)]:
                dropped = self._panes.pop(pane)
                self._expected, self._spare = dropped.size, dropped.table.spare()
        self.output.watermark(timestamp)

    def snapshot(self, checkpoint: int) -> Snapshot:
        plan = self._chain.plan()
        frozen = [(pane, table.freeze(plan.after)) for pane, table in self._panes.items()]
        return self._chain.snapshot(
            checkpoint,
            plan,
            {"watermark": self._watermark},
            lambda: tables_of(batch for pane, groups in frozen for batch in groups.batches(pane)),
        )

    def on_completed(self, checkpoint: int) -> None:
        self._chain.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self._chain.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        tables = self._panes.values()
        return sum(table.size for table in tables), sum(table.nbytes for table in tables)

    def _pane(self, pane: int) -> GroupTable:
        table = self._panes.get(pane)
        if table is None:
            # A pane will have about as many keys as the last one had: room for them from the start.
            spare, self._spare = self._spare, None
            table = GroupTable(self._layout, tracked=self._tracked, expected=self._expected, spare=spare)
            self._panes[pane] = table
        return table

    def _drop_late(self, pane: int, part: pa.RecordBatch) -> None:
        if not self._grid.windows_of(pane):
            return  # not late: between two windows
        self.late_rows += rows_counted(part)
        if self._late_tag is not None:
            self.output.emit_side(self._late_tag, part.select(self._late_columns))

    def _put_out(self, window: int) -> None:
        tables = self._tables_of(window)
        if len(tables) == 1:
            self._emit(window, tables[0].results())
            return
        merged = GroupTable(self._layout, tracked=False, expected=max(table.size for table in tables))
        for table in tables:
            merged.take_in(table)
        self._emit(window, merged.results())

    def _put_out_again(self, window: int, changes: Iterable[tuple[int, Rows]]) -> None:
        """Put out the keys that have changed in a window that was put out before."""
        changed = key_index(self._layout.codec)
        for pane, rows in changes:
            changed.add(self._panes[pane].table.keys().take(np.unique(rows)))
        merged = GroupTable(self._layout, tracked=False, expected=changed.size)
        for table in self._tables_of(window):
            rows = table.table.find(changed.keys())
            merged.take_in(table, rows[rows >= 0])
        self._emit(window, merged.results())

    def _tables_of(self, window: int) -> list[GroupTable]:
        return [self._panes[pane] for pane in self._grid.panes_of(window) if pane in self._panes]

    def _emit(self, window: int, columns: list[pa.Array]) -> None:
        emit_window(self.output, self._output_schema, len(self._layout.keys), columns, window, window + self._grid.size)

    def _restore(self, name: str, batch: pa.RecordBatch) -> None:
        windows = batch.column("window").to_numpy()
        for pane in np.unique(windows).tolist():
            if not self._grid.expired(pane, self._watermark):
                self._pane(pane).restore(name, batch.filter(pa.array(windows == pane)))
