"""What users' functions return, taken apart into the fields of the schema that was declared for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import pyarrow as pa

from snapshot_engine.operators.rows import arrow_column
from snapshot_engine.operators.user_errors import RecordMismatchError

UNFIT = (pa.ArrowException, ValueError, TypeError, OverflowError)
"""What `arrow_column` raises where a value does not fit its field."""


class _UnfitError(Exception):
    """Says why a value has not the fields it should have."""


def fields_of(values: Sequence[Any], schema: pa.Schema, producer: str) -> list[tuple[Any, ...]]:
    """For each field of the schema its values. Raises RecordMismatchError at the first record that has others."""
    names = tuple(schema.names)
    try:
        columns = list(zip(*_as_tuples(values, names), strict=True))
        if len(columns) == len(names):
            return columns
    except (_UnfitError, KeyError, ValueError):
        pass
    return list(zip(*[_one_record(value, names, schema, producer) for value in values], strict=True))


def _as_tuples(values: Sequence[Any], names: tuple[str, ...]) -> Sequence[tuple[Any, ...]]:
    """The quick way, for values that all have one type; it need not find out what is wrong with any of them."""
    kinds = set(map(type, values))
    if len(kinds) > 1:
        raise _UnfitError
    kind = kinds.pop()
    if kind is tuple or getattr(kind, "_fields", None) == names:
        return values
    if kind is dict and set(map(len, values)) != {len(names)}:
        raise _UnfitError
    return list(map(_getter(itemgetter, names) if kind is dict else _reader(kind, names), values))


def _reader(kind: type, names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """How a value of this type becomes a tuple of the fields called `names`."""
    if issubclass(kind, tuple):
        fields = getattr(kind, "_fields", None)
        if fields is None:
            return lambda value: _of_length(value, names)
        _require(names, fields)
        return _getter(itemgetter, [fields.index(name) for name in names])
    if issubclass(kind, Mapping):
        return lambda value: _of_mapping(value, names)
    if dataclasses.is_dataclass(kind):
        _require(names, [field.name for field in dataclasses.fields(kind)])
        return _getter(attrgetter, names)
    raise _UnfitError(f"it is a {kind.__qualname__}")


def _getter(make: Any, items: Sequence[Any]) -> Callable[[Any], tuple[Any, ...]]:
    if len(items) > 1:
        several: Callable[[Any], tuple[Any, ...]] = make(*items)
        return several
    one = make(items[0])
    return lambda value: (one(value),)


def _require(names: Sequence[str], there: Sequence[str]) -> None:
    missing = [name for name in names if name not in there]
    if missing:
        raise _UnfitError(f"it has no field {missing[0]!r}")


def _of_length(value: tuple[Any, ...], names: tuple[str, ...]) -> tuple[Any, ...]:
    if len(value) != len(names):
        raise _UnfitError(f"it has {len(value)} fields, expected {len(names)}")
    return value


def _of_mapping(value: Mapping[str, Any], names: tuple[str, ...]) -> tuple[Any, ...]:
    _require(names, list(value))
    unknown = [name for name in value if name not in names]
    if unknown:
        raise _UnfitError(f"the schema has no field {unknown[0]!r}")
    return tuple([value[name] for name in names])


def _one_record(value: Any, names: tuple[str, ...], schema: pa.Schema, producer: str) -> tuple[Any, ...]:
    try:
        return _reader(type(value), names)(value)
    except _UnfitError as error:
        raise RecordMismatchError(producer, str(error), value, schema) from None


def mismatch(
    values: Sequence[Any], columns: Sequence[Sequence[Any]], schema: pa.Schema, producer: str, error: Exception
) -> RecordMismatchError:
    """Which record has the value that does not fit: looked for only now that there is one."""
    for field, column in zip(schema, columns, strict=True):
        for position, value in enumerate(column):
            try:
                arrow_column([value], field)
            except UNFIT as reason:
                text = f"field {field.name!r} is {value!r:.100} ({type(value).__qualname__}): {reason}"
                return RecordMismatchError(producer, text, values[position], schema)
    return RecordMismatchError(producer, str(error), values[0], schema)
