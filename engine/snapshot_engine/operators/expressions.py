"""Column expressions, evaluated by Polars on whole batches.

Polars is imported inside functions only, never when this module is: many jobs do without it, and it takes a fifth of a
second. Where slots are forked it is loaded before (`runtime/spark_daemon.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from snapshot_engine.operators.operator import Data, Operator, OperatorContext
from snapshot_engine.operators.records import to_arrow, visible_schema
from snapshot_engine.operators.stream_type import StreamType

if TYPE_CHECKING:
    import polars as pl


class ExpressionError(ValueError):
    """An expression that cannot be evaluated on the columns there are."""


def _polars() -> Any:
    # One thread: a slot is one core, and its neighbours need theirs. Counts only before the first import.
    os.environ.setdefault("POLARS_MAX_THREADS", "1")
    import polars

    return polars


def output_schema(exprs: Sequence[pl.Expr], input: StreamType, *, keep: bool) -> pa.Schema:
    """The columns that come out; `keep`: all of the input's too, as `with_columns` does.

    Raises ExpressionError for a missing column, a type that does not go with the operation, and expressions that
    need more than their own row (sums, shifts): their results would depend on where batches begin.
    """
    for expr in exprs:
        _require_columns(expr, input)
        _require_row_by_row(expr)
    return _Projection(exprs, input.schema).fields(keep=keep)


def require_condition(expr: pl.Expr, input: StreamType) -> None:
    """Refuse what cannot be a filter's condition on this stream."""
    field = output_schema([expr], input, keep=False).field(0)
    if field.type != pa.bool_():
        raise ExpressionError(f"the condition {expr} is {field.type}, not boolean")


def _require_columns(expr: pl.Expr, input: StreamType) -> None:
    if not _is_mere_column(expr) and (expr.meta.has_multiple_outputs() or expr.meta.is_column_selection()):
        return  # a selector: it names what there is
    missing = [name for name in expr.meta.root_names() if name not in input.schema.names]
    if missing:
        there = ", ".join(visible_schema(input).names)
        raise ExpressionError(f"there is no column {missing[0]!r}; the columns are {there}")


def _require_row_by_row(expr: pl.Expr) -> None:
    """Every part of the expression must give a row's result from that row alone."""
    exceptions = _polars().exceptions
    parts = [expr]
    while parts:
        part = parts.pop()
        try:
            alone = part.meta.is_literal(allow_aliasing=True) or (
                part.meta.is_row_separable() and part.meta.is_length_preserving()
            )
        except exceptions.PolarsError:  # a user's Python function inside: what it does is not known
            alone = True
        if not alone and not part.meta.is_column_selection(allow_aliasing=True):
            raise ExpressionError(
                f"{part} is not computed row by row: its result would depend on where batches begin and end; "
                "use windows or keyed state for what spans rows"
            )
        parts.extend(part.meta.pop())


class _Projection:
    """Expressions on batches of one schema. Mere columns are handed on untouched, the rest goes through Polars."""

    def __init__(self, exprs: Sequence[pl.Expr], schema: pa.Schema) -> None:
        self.schema = schema
        self.columns = {e.meta.output_name(): e.meta.root_names()[0] for e in exprs if _is_mere_column(e)}
        self.computed = [expr for expr in exprs if not _is_mere_column(expr)]
        self.needed = self._needed_columns()
        self.order = [name for expr in exprs for name in self._names(expr)]
        if len(set(self.order)) < len(self.order):
            double = next(name for name in self.order if self.order.count(name) > 1)
            raise ExpressionError(f"two expressions are called {double!r}; name one with .alias(...)")

    def fields(self, *, keep: bool) -> pa.Schema:
        empty = self.schema.empty_table().to_batches()
        batch = empty[0] if empty else pa.RecordBatch.from_pylist([], schema=self.schema)
        computed = {name: plain_type(array.type) for name, array in self.evaluate(batch).items()}
        fields = {field.name: field for field in self.schema} if keep else {}
        for name in self.order:
            if name in self.columns:
                fields[name] = self.schema.field(self.columns[name]).with_name(name)
            else:
                fields[name] = pa.field(name, computed[name])
        metadata = self.schema.metadata if keep else None
        return pa.schema(list(fields.values()), metadata=metadata)

    def evaluate(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """Each expression's column, in the type that Polars gives it."""
        results = {name: batch.column(source) for name, source in self.columns.items()}
        if self.computed:
            frame = _polars().DataFrame(batch.select(self.needed))
            results.update(_arrow_columns(self._select(frame, self.computed)))
        return results

    def _select(self, frame: pl.DataFrame, exprs: Sequence[pl.Expr]) -> pl.DataFrame:
        polars = _polars()
        try:
            # with_columns, unlike select, repeats constants for every row.
            names = frame.clear().select(exprs).columns
            return frame.with_columns(exprs).select(names)
        except polars.exceptions.PolarsError as error:
            told = ", ".join(f"{name}: {type_}" for name, type_ in frame.schema.items())
            raise ExpressionError(f"{error}; the columns are {told}") from None

    def _names(self, expr: pl.Expr) -> list[str]:
        if _is_mere_column(expr):
            return [expr.meta.output_name()]
        empty = pa.RecordBatch.from_pylist([], schema=self.schema).select(self.needed)
        return self._select(_polars().DataFrame(empty), [expr]).columns

    def _needed_columns(self) -> list[str]:
        """Only what the expressions look at is converted; at least one column, which tells the number of rows."""
        if any(e.meta.has_multiple_outputs() or e.meta.is_column_selection() for e in self.computed):
            return list(self.schema.names)
        roots = {root for expr in self.computed for root in expr.meta.root_names()}
        return [name for name in self.schema.names if name in roots] or _cheapest(self.schema)


def _cheapest(schema: pa.Schema) -> list[str]:
    fixed = [field.name for field in schema if pa.types.is_primitive(field.type)]
    return (fixed or schema.names)[:1]


def _is_mere_column(expr: pl.Expr) -> bool:
    bare = expr.meta.undo_aliases()
    return bool(bare.meta.is_column()) and not expr.meta.has_multiple_outputs()


def _arrow_columns(frame: pl.DataFrame) -> dict[str, pa.Array]:
    table = frame.to_arrow()
    return {name: _one_chunk(table.column(name)) for name in table.column_names}


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    combined = column.combine_chunks()
    return combined.chunk(0) if isinstance(combined, pa.ChunkedArray) else combined


def plain_type(type_: pa.DataType) -> pa.DataType:
    """The usual Arrow type for what Polars gives as a large, viewed or categorical one."""
    if pa.types.is_large_string(type_) or pa.types.is_string_view(type_) or pa.types.is_dictionary(type_):
        return pa.string()
    if pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_):
        return pa.binary()
    if pa.types.is_large_list(type_) or pa.types.is_list(type_):
        return pa.list_(plain_type(type_.value_type))
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(plain_type(type_.value_type), type_.list_size)
    if pa.types.is_struct(type_):
        return pa.struct([field.with_type(plain_type(field.type)) for field in type_])
    return type_


class _ExpressionOperator(Operator):
    def __init__(self, exprs: Sequence[pl.Expr], input: StreamType) -> None:
        self.exprs = list(exprs)
        self.input = input
        self.name = "?"

    def open(self, context: OperatorContext) -> None:
        self.name = context.name
        _polars()
        self._projection = _Projection(self.exprs, self.input.schema)

    def _evaluate(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        try:
            return self._projection.evaluate(batch)
        except ExpressionError as error:
            raise ExpressionError(f"an expression of operator {self.name!r} failed: {error}") from None


class SelectOperator(_ExpressionOperator):
    """Only the expressions' columns come out."""

    def __init__(self, exprs: Sequence[pl.Expr], input: StreamType, output: StreamType) -> None:
        super().__init__(exprs, input)
        self.type = output

    def process(self, port: int, data: Data) -> None:
        batch = to_arrow(data, self.input)
        results = self._evaluate(batch)
        arrays = [self._result(batch, results, field) for field in self.type.schema]
        self.output.emit(pa.RecordBatch.from_arrays(arrays, schema=self.type.schema))

    def _result(self, batch: pa.RecordBatch, results: dict[str, pa.Array], field: pa.Field) -> pa.Array:
        column = results[field.name]
        return column if column.type == field.type else column.cast(field.type)


class WithColumnsOperator(SelectOperator):
    """All columns of the input, and the expressions' added or in their places."""

    def _result(self, batch: pa.RecordBatch, results: dict[str, pa.Array], field: pa.Field) -> pa.Array:
        if field.name not in results:
            return batch.column(field.name)
        return super()._result(batch, results, field)


class FilterExprOperator(_ExpressionOperator):
    """The rows for which the expression is true; null counts as false."""

    def __init__(self, expr: pl.Expr, input: StreamType) -> None:
        super().__init__([expr], input)

    def process(self, port: int, data: Data) -> None:
        batch = to_arrow(data, self.input)
        (mask,) = self._evaluate(batch).values()
        self.output.emit(batch.filter(mask))
