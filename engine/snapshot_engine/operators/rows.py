"""Columns to rows and back: the two loops that the speed of every record function depends on."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from numbers import Number
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_engine.state.row_class import Row, row_class

_DATETIME_UNITS = ("s", "ms", "us")
_NO_LISTS = (str, bytes, bytearray, Mapping)
"""What can be gone through, but is no list of its parts."""
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def rows_of(columns: Sequence[Sequence[Any]], names: tuple[str, ...]) -> list[Row]:
    """One row per position of the columns."""
    return list(map(row_class(names), zip(*columns, strict=True)))


def python_values(array: pa.Array) -> list[Any]:
    """The values of a column as Python has them: int, float, str, datetime, list, dict …; None for null."""
    type_ = array.type
    if pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_boolean(type_):
        return _numbers(array)
    if pa.types.is_timestamp(type_):
        return _datetimes(array)
    if pa.types.is_date32(type_):
        return _from_numpy(array)
    if pa.types.is_duration(type_):
        return _from_numpy(_microseconds(array) if type_.unit == "ns" else array)
    if pa.types.is_dictionary(type_):
        return python_values(array.dictionary_decode())
    if isinstance(array, pa.ExtensionArray):
        return python_values(array.storage)
    if pa.types.is_nested(type_):
        values: list[Any] = array.to_pylist(maps_as_pydicts="strict")
        return values
    plain: list[Any] = array.to_pylist()
    return plain


def _from_numpy(array: pa.Array) -> list[Any]:
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _numbers(array: pa.Array) -> list[Any]:
    if not array.null_count:
        return _from_numpy(array)
    values = _from_numpy(array.fill_null(False if pa.types.is_boolean(array.type) else 0))
    for position in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
        values[position] = None
    return values


def _datetimes(array: pa.Array) -> list[Any]:
    zone = array.type.tz
    if array.type.unit not in _DATETIME_UNITS:
        array = _microseconds(array)
    if zone is None:
        return _from_numpy(array)
    if zone.upper() in ("UTC", "Z", "ETC/UTC", "+00:00"):
        return _utc_datetimes(array)
    values: list[Any] = array.to_pylist()
    return values


def _utc_datetimes(array: pa.Array) -> list[Any]:
    """An epoch plus a duration is made ten times as quickly as a datetime whose zone is replaced."""
    if array.null_count:
        return [None if value is None else value.replace(tzinfo=dt.UTC) for value in _from_numpy(array)]
    since_epoch = array.cast(pa.int64()).view(pa.duration(array.type.unit))
    try:
        return list(map(add, repeat(_EPOCH), _from_numpy(since_epoch)))
    except (TypeError, OverflowError):
        raise ValueError(
            f"a column of type {array.type} has times beyond the year 9999, which Python's datetime cannot hold"
        ) from None


def _microseconds(array: pa.Array) -> pa.Array:
    """Python's times have microseconds: what would lose nanoseconds is refused."""
    type_ = array.type
    target = pa.duration("us") if pa.types.is_duration(type_) else pa.timestamp("us", type_.tz)
    try:
        return array.cast(target)
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"a column of type {type_} has values that Python's datetime cannot hold ({error}); "
            f"cast it to {target} before functions on records"
        ) from None


def arrow_column(values: Sequence[Any], field: pa.Field) -> pa.Array:
    """Python values as a column of exactly `field.type`; raises where a value would be changed by that."""
    type_ = field.type
    array = None
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        array = _number_column(values, type_)
    if array is None:
        if pa.types.is_nested(type_) and _may_be_cut_off(type_):
            values = [_checked_nested(value, type_) for value in values]
        array = pa.array(values, type_)
    if array.null_count and not field.nullable:
        raise ValueError("it is None, but the column is not nullable")
    return array


def _number_column(values: Sequence[Any], type_: pa.DataType) -> pa.Array | None:
    """Through numpy, which is quicker and, unlike `pa.array`, lets no 1.5 become the integer 1."""
    numbers = np.array(values)
    # Integers that numpy made floats of (among floats, or below and above 2**63) may not be the same any more.
    kinds = "iu" if pa.types.is_integer(type_) else "iuf"
    if numbers.ndim != 1 or numbers.dtype.kind not in kinds:
        return _checked_numbers(values, type_) if pa.types.is_integer(type_) else None
    array = pa.array(numbers)
    return array if array.type == type_ else array.cast(type_, safe=not pa.types.is_floating(type_))


def _checked_numbers(values: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Columns with nulls, or with something that is no integer at all."""
    for value in values:
        _check_integer(value)
    return pa.array(values, type_)


def _may_be_cut_off(type_: pa.DataType) -> bool:
    """Whether it is worth while to look at each value of a nested type."""
    if pa.types.is_integer(type_) or pa.types.is_struct(type_):
        return True
    return any(_may_be_cut_off(type_.field(number).type) for number in range(type_.num_fields))


def _checked_nested(value: Any, type_: pa.DataType) -> Any:
    """The value as `pa.array` takes it: it knows no dataclasses, and would cut off what does not fit inside of lists,
    structs and maps. What has another shape it refuses by itself.
    """
    if value is None:
        return None
    if pa.types.is_integer(type_):
        _check_integer(value)
    elif pa.types.is_map(type_):
        pairs = value.items() if isinstance(value, Mapping) else value
        key_type, item_type = type_.key_type, type_.item_type
        return [(_checked_nested(key, key_type), _checked_nested(item, item_type)) for key, item in pairs]
    elif pa.types.is_struct(type_):
        return _checked_struct(_by_names(value, type_), type_)
    elif _is_list(type_) and isinstance(value, Iterable) and not isinstance(value, _NO_LISTS):
        return [_checked_nested(item, type_.value_type) for item in value]
    return value


def _is_list(type_: pa.DataType) -> bool:
    return pa.types.is_nested(type_) and hasattr(type_, "value_type")


def _checked_struct(value: Any, type_: pa.StructType) -> Any:
    if isinstance(value, Mapping):
        unknown = value.keys() - {field.name for field in type_}
        if unknown:
            raise ValueError(f"{sorted(map(str, unknown))} are no fields of {type_}")
        return {field.name: _checked_nested(value.get(field.name), field.type) for field in type_}
    if isinstance(value, tuple) and len(value) == type_.num_fields:
        return tuple(_checked_nested(item, field.type) for item, field in zip(value, type_, strict=True))
    return value


def _by_names(value: Any, type_: pa.StructType) -> Any:
    """What has fields of its own as a dictionary; a tuple has positions only."""
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    names = getattr(value, "_fields", None)
    if isinstance(value, tuple) and names is not None and set(names) == {field.name for field in type_}:
        return dict(zip(names, value, strict=True))
    return value


def _check_integer(value: Any) -> None:
    if type(value) is not int and isinstance(value, Number) and not _is_whole(value):
        raise ValueError(f"{value!r} is not an integer")


def _is_whole(number: Any) -> bool:
    try:
        return bool(int(number) == number)
    except (TypeError, ValueError, OverflowError):  # complex, nan, inf
        return False
