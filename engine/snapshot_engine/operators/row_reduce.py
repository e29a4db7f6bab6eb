"""A running reduce over rows: as `reduce.py`, with the newest row of each key kept in columns.

Rows that lived on as Python objects, one per key, would lie scattered over the heap, and so would all that is made in
the holes between them: with 100,000 keys each step of a batch took three to five times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from snapshot_engine.kernels.arrow_views import is_byteslike, is_wordlike
from snapshot_engine.operators.function_context import close_function, open_function
from snapshot_engine.operators.kept_rows import Folded, KeptRows
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, Snapshot
from snapshot_engine.operators.record_types import RowFolding
from snapshot_engine.operators.records import Records, assembled, needs_times, to_arrow, to_records, visible_schema
from snapshot_engine.operators.reduce import read_reduced
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.state.key_codec import KeyCodec, plain_type
from snapshot_engine.state.newest_rows import FrozenRows, NewestRows
from snapshot_engine.state.piece_chain import PieceChain
from snapshot_engine.state.restored_tables import restored_tables

KIND = "reduce-rows"

_TABLE = "rows"


def keeps_columns(keys: Sequence[str], input: StreamType) -> bool:
    """Whether the operator of this file can reduce the stream: it has a schema, and keys without lists and structs."""
    types = [plain_type(input.schema.field(key).type) for key in keys]
    return not input.plain and all(is_wordlike(type_) or is_byteslike(type_) for type_ in types)


class RowReduceOperator(Operator):
    """`fn(old, new)`; the first record of a key is its own result. Results have the event time of the new record."""

    def __init__(
        self, fn: Callable[[Any, Any], Any], keys: Sequence[str], input: StreamType, output: StreamType
    ) -> None:
        self.fn = fn
        self.input = input
        self.type = output
        self.keeps_times = needs_times(output)
        self.name = "?"
        self._reader = KeyReader(keys, input)
        self._codec = KeyCodec(keys, [input.schema.field(key).type for key in keys])
        self._visible = visible_schema(input)
        self._kept = KeptRows(self._visible)
        self._folding = RowFolding(self._visible)
        self._stored_keys = [f"key.{key}" for key in keys]
        self._stored_names = [f"col.{name}" for name in self._visible.names]

    def open(self, context: OperatorContext) -> None:
        self.name = context.name
        schema = self._describe()
        self._chain = PieceChain(context, KIND, schema)
        self._newest = NewestRows(self._codec, self._kept.schema, tracked=context.incremental)
        earlier = read_reduced(context, self._reader, self.input)
        if earlier is not None:
            self._take_over(*earlier)
        else:
            for _, batch in restored_tables(context, KIND, schema, lambda _: self._stored_keys):
                self._restore(batch)
        open_function(self.fn, context)

    def close(self) -> None:
        close_function(self.fn)

    def process(self, port: int, data: Data) -> None:
        records = to_records(data, self.input, times=self.keeps_times)
        if not len(records):
            return
        batch = self._as_columns(data, records)
        linked = self._newest.link(self._codec.encode(self._reader.columns_of(batch, records)))
        known, befores = [*self._kept.rows(linked.old), None], linked.before.tolist()
        results = self._fold(known, befores, records.values)
        folded = Folded(results, records.values, batch, linked, befores, known)
        kept = self._kept.convert_folded(folded, self.name)
        self._newest.put(linked, kept, self._chain.epoch)
        times = records.timestamps if self.keeps_times else None
        put_out = Records(results, times, self.name)
        columns = self._kept.declared(kept, results, self.name)
        put_out.source = (assembled(columns, put_out, self.type), None)
        self.output.emit(put_out)

    def snapshot(self, checkpoint: int) -> Snapshot:
        plan = self._chain.plan()
        frozen = self._newest.freeze(plan.after)
        return self._chain.snapshot(checkpoint, plan, {}, lambda: self._written(frozen))

    def on_completed(self, checkpoint: int) -> None:
        self._chain.completed(checkpoint)

    def on_aborted(self, checkpoint: int) -> None:
        self._chain.aborted(checkpoint)

    def state_size(self) -> tuple[int, int]:
        return self._newest.size, self._newest.nbytes

    def _as_columns(self, data: Data, records: Records) -> pa.RecordBatch | None:
        """The records as they came in, or None if they never were columns."""
        if not isinstance(data, Records):
            return data
        if records.source is not None and records.source[0].schema.equals(self.input.schema):
            return to_arrow(records, self.input)
        return None

    def _fold(self, known: list[Any], befores: list[int], records: Sequence[Any]) -> list[Any]:
        """The results; they are added to `known` too, since `befores` says where in it each record has its old row."""
        fn, row, as_row = self.fn, self._folding.row, self._folding.as_row
        first, add = len(known), known.append
        try:
            for before, result in zip(befores, records):  # noqa: B905 (one for each record)
                old = known[before]
                if old is not None:
                    result = fn(old, result)
                    if type(result) is not row:
                        result = as_row(result, self.name)
                add(result)
        except Exception as error:
            record = records[len(known) - first]
            raise UserFunctionError(self.name, "the reduce function", error, record, has_record=True) from error
        return known[first:]

    def _describe(self) -> dict[str, str]:
        """For the checkpoint: keys and columns with their types."""
        keys = zip(self._codec.names, self._codec.types, strict=True)
        described = {f"key {name}": str(type_) for name, type_ in keys}
        return {**described, **{f"column {field.name}": str(field.type) for field in self._visible}}

    def _written(self, frozen: FrozenRows) -> Iterator[tuple[str, pa.Table]]:
        batches = list(frozen.batches(self._stored_keys, self._stored_names))
        if batches:
            yield _TABLE, pa.Table.from_batches(batches)

    def _restore(self, batch: pa.RecordBatch) -> None:
        columns = [batch.column(name) for name in self._stored_names]
        rows = pa.RecordBatch.from_arrays(columns, schema=self._kept.schema)
        self._newest.replace(self._codec.encode([batch.column(key) for key in self._stored_keys]), rows)

    def _take_over(self, keys: list[pa.Array], rows: Sequence[Any]) -> None:
        self._newest.replace(self._codec.encode(keys), self._kept.convert(rows, self.name))
