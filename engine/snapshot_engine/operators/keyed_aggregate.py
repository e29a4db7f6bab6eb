"""Running aggregates per key: after every batch, the new totals of the keys it touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from snapshot_engine.kernels.distinct_rows import distinct_rows
from snapshot_engine.operators.aggregates import Aggregate
from snapshot_engine.operators.group_table import GroupLayout, GroupTable, tables_of
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Snapshot
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.operators.window_output import bounded
from snapshot_engine.state.piece_chain import PieceChain
from snapshot_engine.state.restored_tables import restored_tables

KIND = "keyed-aggregate"


def output_type(keys: Sequence[str], aggregates: Mapping[str, Aggregate], input: StreamType) -> StreamType:
    """The key columns, then the aggregates; totals have no event time of their own."""
    layout = GroupLayout(keys, aggregates, input.schema)
    return StreamType(pa.schema([*layout.key_fields, *layout.columns.fields()]))


class KeyedAggregateOperator(Operator):
    def __init__(
        self, *, keys: Sequence[str], aggregates: Mapping[str, Aggregate], input: StreamType, output: StreamType
    ) -> None:
        self._input = input
        self._output_schema = output.schema
        self._layout = GroupLayout(keys, aggregates, input.schema)
        self._stamps = np.zeros(0, np.int64)
        self._batches = 0

    def open(self, context: OperatorContext) -> None:
        self._layout.columns.operator = context.name
        schema = self._layout.describe()
        self._chain = PieceChain(context, KIND, schema)
        self._groups = GroupTable(self._layout, tracked=context.incremental)
        for name, batch in restored_tables(context, KIND, schema, lambda _: self._layout.stored_keys):
            self._groups.restore(name, batch)

    def process(self, port: int, data: Data) -> None:
        batch = to_arrow(data, self._input)
        rows = self._groups.add_batch(batch, self._layout.encode(batch), self._chain.epoch)
        if len(self._stamps) < self._groups.size:
            self._stamps = np.zeros(2 * self._groups.size, np.int64)
        self._batches += 1
        touched = np.empty(len(rows), np.int32)
        touched = touched[: distinct_rows(rows, self._stamps, self._batches, touched)]
        results = pa.RecordBatch.from_arrays(self._groups.results(touched), schema=self._output_schema)
        for part in bounded(results):
            self.output.emit(part)

    def snapshot(self, checkpoint: int) -> Snapshot:
        plan = self._chain.plan()
        frozen = self._groups.freeze(plan.after)
        return self._chain.snapshot(checkpoint, plan, {}, lambda: tables_of(frozen.batches()))

    def on_completed(self, checkpoint: int) -> None:
        self._chain.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self._chain.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        return self._groups.size, self._groups.nbytes
