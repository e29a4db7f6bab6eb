"""Batches that sources and users' code returned, brought to exactly the schema that was planned.

No stream has dictionary- or run-end-encoded columns: such a batch is no single message, as channels and logs want it,
and two batches of one stream would have different dictionaries. Nor has one views of strings, as Polars gives them:
Arrow cannot pick rows out of these, so no key could be sent to its subtask. They are decoded where rows come in.
"""

from __future__ import annotations

from collections import Counter

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
    """The schema of a stream whose batches come with `schema`; the same object if nothing is encoded. Raises ValueError
    where two columns have one name: nothing could tell them apart."""
    doubled = [name for name, times in Counter(schema.names).items() if times > 1]
    if doubled:
        raise ValueError(f"the schema has column {doubled[0]!r} twice: rename one of them")
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
    """What is encoded is decoded also inside of lists, maps and structs."""
    if _is_encoded(type_):
        return _decoded_type(type_.value_type)
    if pa.types.is_string_view(type_):
        return pa.string()
    if pa.types.is_binary_view(type_):
        return pa.binary()
    return _decoded_nest(type_) if pa.types.is_nested(type_) else type_


def _decoded_nest(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([_decoded_field(field) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_decoded_field(type_.key_field), _decoded_field(type_.item_field), type_.keys_sorted)
    if pa.types.is_fixed_size_list(type_):
        return pa.list_(_decoded_field(type_.value_field), type_.list_size)
    if pa.types.is_large_list(type_):
        return pa.large_list(_decoded_field(type_.value_field))
    return pa.list_(_decoded_field(type_.value_field)) if pa.types.is_list(type_) else type_


def _decoded_field(field: pa.Field) -> pa.Field:
    return field.with_type(_decoded_type(field.type))


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
