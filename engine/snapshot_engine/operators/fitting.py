"""Batches that a user's code returned, brought to exactly the schema that was planned."""

from __future__ import annotations

import pyarrow as pa


class BatchMismatchError(Exception):
    """A batch that does not have the columns that were declared for it."""

    def __init__(self, operator: str, reason: str, found: pa.Schema, expected: pa.Schema) -> None:
        self.operator = operator
        super().__init__(
            f"a batch of operator {operator!r} does not fit its schema: {reason}\n"
            f"  the batch has: {described(found)}\n"
            f"  the schema is: {described(expected)}"
        )


def described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema)


def fit_batch(batch: pa.RecordBatch, expected: pa.Schema, operator: str) -> pa.RecordBatch:
    """The columns of `expected`, in its order and types; a cast that would change a value is an error."""
    if not isinstance(batch, pa.RecordBatch):
        raise BatchMismatchError(operator, f"it is a {type(batch).__qualname__}", pa.schema([]), expected)
    if batch.schema.equals(expected, check_metadata=True):
        return batch
    missing = [name for name in expected.names if name not in batch.schema.names]
    if missing:
        raise BatchMismatchError(operator, f"it has no column {missing[0]!r}", batch.schema, expected)
    unknown = [name for name in batch.schema.names if name not in expected.names]
    if unknown:
        raise BatchMismatchError(operator, f"column {unknown[0]!r} is not declared", batch.schema, expected)
    arrays = [_fit_column(batch, field, expected, operator) for field in expected]
    return pa.RecordBatch.from_arrays(arrays, schema=expected)


def _fit_column(batch: pa.RecordBatch, field: pa.Field, expected: pa.Schema, operator: str) -> pa.Array:
    column = batch.column(field.name)
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowException as error:
            reason = f"column {field.name!r} is {column.type} and cannot become {field.type}: {error}"
            raise BatchMismatchError(operator, reason, batch.schema, expected) from None
    if column.null_count and not field.nullable:
        raise BatchMismatchError(operator, f"column {field.name!r} has nulls", batch.schema, expected)
    return column
