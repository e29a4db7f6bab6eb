"""What folds return, as columns: those that go out, and those that are kept as state.

Kept is what the function returned, also where the stream's own type would cut it off (half a millisecond in a timestamp
of milliseconds, the last digits of a sum of 32-bit floats): else results would depend on where batches are cut, since
the next fold of the same batch is given the very object.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.arrow_views import plain
from snapshot_engine.kernels.newest import trace_results
from snapshot_engine.operators.record_fields import UNFIT, mismatch
from snapshot_engine.operators.rows import arrow_column, python_values, rows_of
from snapshot_engine.state.key_codec import plain_type
from snapshot_engine.state.newest_rows import Linked
from snapshot_engine.state.row_class import Row

_SAMPLE = 256
"""So many results are looked at to see whether the function hands on what it is given."""


def kept_type(type_: pa.DataType) -> pa.DataType:
    """The type that holds all that Python's values of `type_` may have, and nothing of what others in the batch had."""
    type_ = plain_type(type_)
    if pa.types.is_floating(type_):
        return pa.float64()
    if pa.types.is_timestamp(type_) and type_.unit in ("s", "ms"):
        return pa.timestamp("us", type_.tz)
    if pa.types.is_duration(type_) and type_.unit in ("s", "ms"):
        return pa.duration("us")
    if pa.types.is_time32(type_):
        return pa.time64("us")
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    return _kept_nest(type_) if pa.types.is_nested(type_) else type_


def _kept_nest(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(kept_type(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(kept_type(type_.key_type), kept_type(type_.item_type))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(kept_type(type_.value_type), type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(kept_type(type_.value_type))
    return pa.list_(kept_type(type_.value_type)) if pa.types.is_list(type_) else type_


@dataclass(frozen=True, slots=True)
class Folded:
    """The results of a batch and what they were made from."""

    results: Sequence[Row]
    records: Sequence[Row]
    batch: pa.RecordBatch | None
    """The records as they came in, if they came as columns."""
    linked: Linked
    befores: Sequence[int]
    """`linked.before`, as Python has it."""
    known: Sequence[Row | None]
    """What `befores` refer to: the old rows, None, the results."""


class KeptRows:
    """Rows of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        self.names = tuple(schema.names)
        self.schema = pa.schema([field.with_type(kept_type(field.type)) for field in schema])
        self._declared = schema
        # What lies inside lists and structs may have been changed in place: that an object is the same says nothing.
        self._traceable = not any(pa.types.is_nested(field.type) for field in self.schema)

    def rows(self, kept: pa.RecordBatch) -> list[Row]:
        return rows_of([python_values(column) for column in kept.columns], self.names)

    def convert(self, rows: Sequence[Row], operator: str) -> pa.RecordBatch:
        """Rows as they are kept. What does not fit is a RecordMismatchError that names the operator and the row."""
        columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) if rows else [() for _ in self.names]
        try:
            arrays = [arrow_column(column, field) for column, field in zip(columns, self.schema, strict=True)]
        except UNFIT as error:
            raise mismatch(rows, columns, self._declared, operator, error) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def convert_folded(self, folded: Folded, operator: str) -> pa.RecordBatch:
        """The same for the results of folds, of which many may be rows that were columns a moment ago."""
        if not self._traceable or folded.batch is None or not _hands_on(folded):
            return self.convert(folded.results, operator)
        is_new = _same(folded.results, folded.records)
        records = self._from_declared(folded.batch)
        if is_new.all():
            return records
        linked = folded.linked
        is_old = _same(folded.results, map(folded.known.__getitem__, folded.befores))
        origins = np.empty(len(is_new), np.int64)
        trace_results(linked.before, linked.old.num_rows, is_new, is_old, origins)
        own = [folded.results[position] for position in np.flatnonzero(~(is_new | is_old)).tolist()]
        every = pa.concat_batches([linked.old, records, self.convert(own, operator)])
        return every.take(pa.array(origins))

    def declared(self, kept: pa.RecordBatch, rows: Sequence[Row], operator: str) -> list[pa.Array]:
        """The columns of the stream's own types; `rows` are those that `kept` was made from."""
        return [self._declared_column(number, kept.column(number), rows, operator) for number in range(len(self.names))]

    def _declared_column(self, number: int, kept: pa.Array, rows: Sequence[Row], operator: str) -> pa.Array:
        field = self._declared.field(number)
        if kept.type == field.type:
            return kept
        try:
            return kept.cast(field.type, safe=not pa.types.is_floating(field.type))
        except UNFIT:  # something is cut off, or Arrow has no such cast
            values = [row[number] for row in rows]
        try:
            return arrow_column(values, field)
        except UNFIT as error:
            columns = list(zip(*rows, strict=True))
            raise mismatch(rows, columns, self._declared, operator, error) from None

    def _from_declared(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Columns of the stream's own types as they are kept; nothing nested."""
        columns = zip([plain(batch.column(name)) for name in self.names], self.schema, strict=True)
        arrays = [array if array.type == field.type else array.cast(field.type) for array, field in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _same(results: Sequence[Row], others: Iterable[Row | None]) -> npt.NDArray[np.bool_]:
    return np.fromiter(map(is_, results, others), np.bool_, len(results))


def _hands_on(folded: Folded) -> bool:
    """Whether most results seem to be rows that the function was given."""
    sample = zip(folded.results[:_SAMPLE], folded.records, folded.befores)  # noqa: B905 (not all of the records)
    given = sum(result is record or result is folded.known[before] for result, record, before in sample)
    return 2 * given > min(_SAMPLE, len(folded.results))
