"""Batches that sources and users' code returned, brought to exactly the schema that was planned.

No stream has dictionary- or run-end-encoded columns: such a batch is no single message, as channels and logs want it,
and two batches of one stream would have different dictionaries. They are decoded where rows come in.
"""

from __future__ import annotations

import pyarrow as pa

from snapshot_engine.kernels.arrow_views import plain


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


def decoded_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of a stream whose batches come with `schema`; the same object if nothing is encoded."""
    types = [_decoded_type(field.type) for field in schema]
    if all(type_ == field.type for type_, field in zip(types, schema, strict=True)):
        return schema
    fields = [field.with_type(type_) for field, type_ in zip(schema, types, strict=True)]
    return pa.schema(fields, schema.metadata)


def decode_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with the `decoded_schema` of its own."""
    arrays = [_decoded(column).cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _is_encoded(type_: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_))


def _decoded(column: pa.Array) -> pa.Array:
    return plain(column) if _is_encoded(column.type) else column


def _decoded_type(type_: pa.DataType) -> pa.DataType:
    """Dictionaries are decoded also inside of lists and structs."""
    if _is_encoded(type_):
        return _decoded_type(type_.value_type)
    if pa.types.is_struct(type_) and any(pa.types.is_nested(f.type) or _is_encoded(f.type) for f in type_):
        return pa.struct([field.with_type(_decoded_type(field.type)) for field in type_])
    if pa.types.is_list(type_) and (pa.types.is_nested(type_.value_type) or _is_encoded(type_.value_type)):
        return pa.list_(type_.value_field.with_type(_decoded_type(type_.value_type)))
    return type_


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
    column = _decoded(batch.column(field.name))
    if column.type != field.type:
        try:
            column = column.cast(field.type)
        except pa.ArrowException as error:
            reason = f"column {field.name!r} is {column.type} and cannot become {field.type}: {error}"
            raise BatchMismatchError(operator, reason, batch.schema, expected) from None
    if column.null_count and not field.nullable:
        raise BatchMismatchError(operator, f"column {field.name!r} has nulls", batch.schema, expected)
    return column
