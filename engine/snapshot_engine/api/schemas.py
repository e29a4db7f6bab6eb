"""What users may give as a schema: an Arrow schema, text, or a class with annotated fields."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import types
import typing
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, Union

import pyarrow as pa

from snapshot_engine.api.ddl import parse_ddl

SchemaLike: TypeAlias = pa.Schema | str | type
"""An Arrow schema, text such as `"city string, amount double"`, or a dataclass, NamedTuple or TypedDict."""

_SCALARS: dict[Any, pa.DataType] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us"),
    datetime.date: pa.date32(),
    datetime.time: pa.time64("us"),
    datetime.timedelta: pa.duration("us"),
    decimal.Decimal: pa.decimal128(38, 18),
}


def to_schema(given: SchemaLike) -> pa.Schema:
    """Raises TypeError or ValueError with what is allowed instead."""
    if isinstance(given, pa.Schema):
        from snapshot_engine.operators.fitting import decoded_schema

        return decoded_schema(given)
    if isinstance(given, str):
        return parse_ddl(given)
    if has_fields(given):
        return _schema_of_class(given)
    raise TypeError(
        f'{given!r} is not a schema: give a pyarrow schema, text such as "city string, amount double", '
        "or a dataclass, NamedTuple or TypedDict"
    )


def returned_schema(fn: Callable[..., Any], *, many: bool = False) -> pa.Schema | None:
    """The schema that `fn`'s return annotation names (of one element of it, if `many`); None if it names
    none."""
    returned = _return_annotation(fn)
    if many:
        returned = _element_of(returned)
    if isinstance(returned, type) and has_fields(returned):
        return _schema_of_class(returned)
    return None


def output_schema(given: SchemaLike | None, fn: Callable[..., Any], *, many: bool = False) -> pa.Schema | None:
    """What was said explicitly, else what the function's annotation says, else None: plain records."""
    return to_schema(given) if given is not None else returned_schema(fn, many=many)


def has_fields(candidate: Any) -> bool:
    """Whether it is a dataclass, a NamedTuple or a TypedDict."""
    if not isinstance(candidate, type):
        return False
    return (
        dataclasses.is_dataclass(candidate)
        or (issubclass(candidate, tuple) and hasattr(candidate, "_fields"))
        or typing.is_typeddict(candidate)
    )


def _schema_of_class(given: type) -> pa.Schema:
    hints = typing.get_type_hints(given, include_extras=True)
    names = _field_names(given)
    untyped = [name for name in names if name not in hints]
    if untyped:
        raise TypeError(f"{given.__name__} has fields without a type: {', '.join(untyped)}")
    return pa.schema([pa.field(name, _arrow_type(hints[name], f"{given.__name__}.{name}")) for name in names])


def _field_names(given: type) -> list[str]:
    if dataclasses.is_dataclass(given):
        return [field.name for field in dataclasses.fields(given)]
    if issubclass(given, tuple):
        return list(getattr(given, "_fields", ()))
    return list(given.__annotations__)


def _arrow_type(hint: Any, where: str) -> pa.DataType:
    if isinstance(hint, pa.DataType):
        return hint
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and has_fields(hint):
        return pa.struct(list(_schema_of_class(hint)))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        given = [extra for extra in arguments[1:] if isinstance(extra, pa.DataType)]
        return given[0] if given else _arrow_type(arguments[0], where)
    if origin in (Union, types.UnionType):
        rest = [argument for argument in arguments if argument is not type(None)]
        if len(rest) == 1:
            return _arrow_type(rest[0], where)
    if origin is list and arguments:
        return pa.list_(_arrow_type(arguments[0], where))
    if origin is dict and len(arguments) == 2:
        return pa.map_(_arrow_type(arguments[0], where), _arrow_type(arguments[1], where))
    raise TypeError(
        f"{where}: no column type for {hint!r}; use bool, int, float, str, bytes, datetime, date, Decimal, "
        "list[...], dict[..., ...], another such class, or Annotated[..., pa.int32()]"
    )


def _return_annotation(fn: Callable[..., Any]) -> Any:
    plain = isinstance(fn, types.FunctionType | types.MethodType)
    try:
        target = fn if plain else type(fn).__call__
        return typing.get_type_hints(target).get("return")
    except Exception:
        # An annotation that cannot be resolved (imported for type checking only) says nothing about the
        # schema.
        return None


def _element_of(annotation: Any) -> Any:
    origin = typing.get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Iterable) and (typing.get_args(annotation)):
        if origin is tuple or issubclass(origin, dict):
            return None
        return typing.get_args(annotation)[0]
    return None
