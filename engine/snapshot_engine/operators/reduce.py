"""A running reduce: each record is folded into what its key had before, and the result goes out.

For plain values, and for rows whose keys have lists or structs; all other rows are reduced by `row_reduce.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from snapshot_engine.operators.function_context import close_function, open_function
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.keyed_operator import KeyedOperator, restored_state
from snapshot_engine.operators.operator import Data, OperatorContext
from snapshot_engine.operators.record_types import RowFolding, record_type
from snapshot_engine.operators.records import Records, needs_times, to_records, visible_schema
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.record_state import RecordState
from snapshot_engine.state.record_tables import FLAT, MISSING, StateTable, detached
from snapshot_engine.state.state_types import PlainCodec

_TABLE = "reduced"


class ReduceOperator(KeyedOperator):
    """`fn(old, new)`; the first record of a key is its own result. Results have the event time of the new record."""

    kind = "reduce"

    def __init__(
        self, fn: Callable[[Any, Any], Any], keys: Sequence[str], input: StreamType, output: StreamType
    ) -> None:
        super().__init__(KeyReader(keys, input))
        self.fn = fn
        self.input = input
        self.keeps_times = needs_times(output)
        self._folding = None if input.plain else RowFolding(visible_schema(input))

    def open_state(self, context: OperatorContext) -> None:
        self._table = _declared(self.state, self.input)
        open_function(self.fn, context)

    def close(self) -> None:
        close_function(self.fn)

    def process(self, port: int, data: Data) -> None:
        records = to_records(data, self.input, times=self.keeps_times)
        keys = self.reader.of(data, records)
        results: list[Any] = []
        try:
            if self._folding is not None:
                self._fold_rows(keys, records.values, results, self._folding)
            else:
                self._fold_values(keys, records.values, results)
        except Exception as error:
            record = records.values[len(results)]
            raise UserFunctionError(self.name, "the reduce function", error, record, has_record=True) from error
        times = records.timestamps if self.keeps_times else None
        self.output.emit(Records(results, times, self.name, records.columns))

    def _fold_rows(self, keys: list[Key], rows: Sequence[Any], results: list[Any], folding: RowFolding) -> None:
        """Rows never change in place, so the table's dictionary can be written to directly."""
        fn, row, width, add = self.fn, folding.row, folding.width, results.append
        values = self._table.writable()
        get = values.get
        for key, result in zip(keys, rows):  # noqa: B905 (one key for each row)
            old = get(key)
            if old is not None:
                result = fn(old, result)
                if type(result) is tuple and len(result) == width:
                    result = row(result)
                elif type(result) is not row:
                    result = folding.as_row(result, self.name)
            values[key] = result
            add(result)
        self._table.touch_all(FLAT, keys)

    def _fold_values(self, keys: list[Key], values: Sequence[Any], results: list[Any]) -> None:
        """Plain values may: what goes out must not change any more when the function goes on with what it returned."""
        for key, value in zip(keys, values, strict=True):
            old = self._table.own(FLAT, key)
            result = value if old is MISSING else self.fn(old, value)
            self._table.put(FLAT, key, result)
            results.append(detached(result))


def read_reduced(
    context: OperatorContext, reader: KeyReader, input: StreamType
) -> tuple[list[pa.Array], list[Any]] | None:
    """The keys, as columns, and what they had in a checkpoint of this operator; None if the checkpoint has no such."""
    if not any(state.kind == ReduceOperator.kind for state in context.restored):
        return None
    state = restored_state(context, ReduceOperator.kind, reader)
    values = _declared(state, input).spaces[FLAT]
    state.all_declared()
    return reader.keys.arrays(list(values)), list(values.values())


def _declared(state: RecordState, input: StreamType) -> StateTable:
    text = record_type(input)
    return state.declare(_TABLE, text, PlainCodec(text))
