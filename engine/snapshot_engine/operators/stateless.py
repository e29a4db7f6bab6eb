"""Functions without state: on records (map, filter, flat_map), and on whole batches (Arrow, pandas)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, NoReturn, cast

import numpy as np
import pyarrow as pa

from snapshot_engine.operators.fitting import fit_batch
from snapshot_engine.operators.function_context import close_function, open_function
from snapshot_engine.operators.operator import Data, Operator, OperatorContext
from snapshot_engine.operators.records import Records, needs_times, to_arrow, to_records
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.operators.user_errors import UserFunctionError


class _RecordOperator(Operator):
    """Calls a user's function once per record."""

    doing = "the function"

    def __init__(self, fn: Callable[[Any], Any], input: StreamType) -> None:
        self.fn = fn
        self.input = input
        self.name = "?"

    def open(self, context: OperatorContext) -> None:
        self.name = context.name
        open_function(self.fn, context)

    def close(self) -> None:
        close_function(self.fn)

    def _call_all(self, values: Any) -> list[Any]:
        remaining = iter(values)
        try:
            results = list(map(self.fn, remaining))
            if len(results) < len(values):
                raise StopIteration  # the function's: `map` takes it for the end
            return results
        except Exception as error:
            self._failed(error, values, remaining)

    def _failed(self, error: Exception, values: Any, remaining: Iterator[Any]) -> NoReturn:
        record = values[len(values) - remaining.__length_hint__() - 1]  # type: ignore[attr-defined]
        raise UserFunctionError(self.name, self.doing, error, record, has_record=True) from error


class MapOperator(_RecordOperator):
    """One record out for each record in; it keeps its event time."""

    doing = "the map function"

    def __init__(self, fn: Callable[[Any], Any], input: StreamType, output: StreamType) -> None:
        super().__init__(fn, input)
        self.keeps_times = needs_times(output)

    def process(self, port: int, data: Data) -> None:
        records = to_records(data, self.input, times=self.keeps_times)
        values = self._call_all(records.values)
        times = records.timestamps if self.keeps_times else None
        self.output.emit(Records(values, times, self.name, records.columns))


class FilterOperator(_RecordOperator):
    """The records for which the function returns something true."""

    doing = "the filter function"

    def process(self, port: int, data: Data) -> None:
        records = to_records(data, self.input, times=False)
        kept = self._call_all(records.values)
        values = list(compress(records.values, kept))
        if len(values) == len(records):
            self.output.emit(records)
        elif values:
            positions = np.flatnonzero(np.fromiter(map(bool, kept), np.bool_, len(kept)))
            self.output.emit(records.chosen(positions, values))


class FlatMapOperator(_RecordOperator):
    """Any number of records out for each record in, all with its event time."""

    doing = "the flat_map function"

    def __init__(self, fn: Callable[[Any], Iterable[Any] | None], input: StreamType, output: StreamType) -> None:
        super().__init__(fn, input)
        self.keeps_times = needs_times(output)

    def process(self, port: int, data: Data) -> None:
        records = to_records(data, self.input, times=self.keeps_times)
        values, ends = self._flattened(records.values)
        times = None
        if self.keeps_times and records.timestamps is not None:
            times = np.repeat(records.timestamps, np.diff(ends, prepend=0))
        self.output.emit(Records(values, times, self.name))

    def _flattened(self, values: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """All results in order, and for each record how many there were up to and with its own."""
        fn, flat, ends = self.fn, [], []
        remaining = iter(values)
        try:
            for value in remaining:
                results = fn(value)
                if results is not None:
                    flat.extend(results)
                ends.append(len(flat))
        except Exception as error:
            self._failed(error, values, remaining)
        return flat, ends


class _BatchOperator(Operator):
    """Calls a user's function once per batch."""

    doing = "the function"

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
        batch = to_arrow(data, self.input)
        try:
            results = list(self._results(batch))
        except Exception as error:
            raise UserFunctionError(self.name, self.doing, error, has_record=False) from error
        for result in results:
            self.output.emit(fit_batch(result, self.type.schema, self.name))

    def _results(self, batch: pa.RecordBatch) -> Iterable[Any]:
        raise NotImplementedError


class ArrowBatchOperator(_BatchOperator):
    """`fn` takes a record batch and returns one, or an iterable of them."""

    doing = "the Arrow function"

    def _results(self, batch: pa.RecordBatch) -> Iterable[Any]:
        result = self.fn(batch)
        if isinstance(result, pa.RecordBatch):
            return (result,)
        if isinstance(result, pa.Table):
            return cast(Iterable[Any], result.to_batches())
        return cast(Iterable[Any], _not_none(result, "batch", "batch.slice(0, 0)"))


class PandasBatchOperator(_BatchOperator):
    """`fn` takes a pandas DataFrame and returns one, or an iterable of them."""

    doing = "the pandas function"

    def _results(self, batch: pa.RecordBatch) -> Iterable[Any]:
        import pandas as pd

        result = self.fn(_frame_of(batch))
        frames = (result,) if isinstance(result, pd.DataFrame) else _not_none(result, "frame", "frame.head(0)")
        for frame in frames:
            yield self._batch_of(frame)

    def _batch_of(self, frame: Any) -> pa.RecordBatch:
        """pandas has no maps: which lists of pairs are some, only the schema says."""
        maps = {f.name: f.type for f in self.type.schema if _holds_map(f.type) and f.name in frame.columns}
        rest = pa.RecordBatch.from_pandas(frame.drop(columns=list(maps)), preserve_index=False)
        if not maps:
            return rest
        arrays = [pa.Array.from_pandas(frame[name], type=type_) for name, type_ in maps.items()]
        return pa.RecordBatch.from_arrays([*rest.columns, *arrays], names=[*rest.schema.names, *maps])


def _frame_of(batch: pa.RecordBatch) -> Any:
    """Integers beside nulls are pandas' nullable ones: as floats, which is its habit, large ones would change."""
    frame = batch.to_pandas()
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if pa.types.is_integer(field.type) and column.null_count:
            frame[field.name] = column.to_pandas(types_mapper=_nullable)
    return frame


def _nullable(type_: pa.DataType) -> Any:
    """`Int64` for int64, `UInt8` for uint8."""
    import pandas as pd

    return pd.api.types.pandas_dtype(str(type_).replace("i", "I", 1).replace("u", "U", 1))


def _not_none(result: Any, what: str, empty: str) -> Any:
    """Taken for no rows, a forgotten `return` would lose them all, and nobody would hear of it."""
    if result is None:
        raise TypeError(f"it returned None: return a {what}, or {empty} for no rows")
    return result


def _holds_map(type_: pa.DataType) -> bool:
    return pa.types.is_map(type_) or any(_holds_map(type_.field(n).type) for n in range(type_.num_fields))
