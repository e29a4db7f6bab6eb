"""Keys that a user's function computes: added to the batch as packed bytes, so that rows can be sent by them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from itertools import chain
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from snapshot_engine.operators.function_context import close_function, open_function
from snapshot_engine.operators.operator import Data, Operator, OperatorContext
from snapshot_engine.operators.records import to_arrow, to_records
from snapshot_engine.operators.stream_type import HIDDEN_KEY, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError, shown
from snapshot_engine.state.packing import pack, pack_all

_SIMPLE = frozenset({type(None), bool, int, str, bytes})
_OTHERS = (dt.date, dt.time, dt.timedelta, UUID)


class KeyExtractOperator(Operator):
    """Adds the hidden key column. Two records have the same key if it has the same type and the same value.

    Keys are None, bool, int, float, str, bytes, dates and times, Decimal, UUID, or tuples of these.
    """

    def __init__(self, fn: Callable[[Any], Any], input: StreamType, output: StreamType) -> None:
        self.fn = fn
        self.input = input
        self.type = output
        self.name = "?"

    def open(self, context: OperatorContext) -> None:
        self.name = context.name
        open_function(self.fn, context)

    def close(self) -> None:
        close_function(self.fn)

    def process(self, port: int, data: Data) -> None:
        records = to_records(data, self.input, times=False)
        packed = pa.array(self._packed_keys(records.values), pa.binary())
        batch = to_arrow(records, self.input)
        arrays = [packed if name == HIDDEN_KEY else batch.column(name) for name in self.type.schema.names]
        self.output.emit(pa.RecordBatch.from_arrays(arrays, schema=self.type.schema))

    def _packed_keys(self, values: Any) -> list[bytes]:
        remaining = iter(values)
        try:
            keys = list(map(self.fn, remaining))
            if len(keys) < len(values):
                raise StopIteration  # the function's: `map` takes it for the end
        except Exception as error:
            record = values[len(values) - remaining.__length_hint__() - 1]
            raise UserFunctionError(self.name, "the key function", error, record, has_record=True) from error
        if _all_simple(keys):
            return pack_all(keys)
        return [self._packed_key(key, record) for key, record in zip(keys, values, strict=True)]

    def _packed_key(self, key: Any, record: Any) -> bytes:
        try:
            return pack(canonical(key))
        except TypeError as error:
            raise UserFunctionError(self.name, "the key function", error, record, has_record=True) from None


def _all_simple(keys: list[Any]) -> bool:
    kinds = set(map(type, keys))
    if kinds == {tuple}:
        kinds = set(map(type, chain.from_iterable(keys)))
    return kinds <= _SIMPLE


def canonical(key: Any) -> Any:
    """The key in the one form that equal keys share; raises TypeError for what cannot be a key."""
    if type(key) in _SIMPLE or isinstance(key, _OTHERS):
        return key
    if isinstance(key, float):
        return float(key) + 0.0  # -0.0 is 0.0
    if isinstance(key, Decimal):
        return key.normalize()
    if isinstance(key, np.generic):
        return canonical(key.item())
    if isinstance(key, tuple):
        return tuple(canonical(item) for item in key)
    raise TypeError(
        f"{shown(key)} ({type(key).__qualname__}) cannot be a key: return None, bool, int, float, str, bytes, a date "
        "or time, Decimal, UUID, or a tuple of these"
    )
