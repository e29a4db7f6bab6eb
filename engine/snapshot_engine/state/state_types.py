"""The types of keyed state: how they are told in checkpoints, and how many values of one become bytes."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Sequence
from itertools import accumulate, chain
from typing import Any, Protocol

from snapshot_engine.state.packing import pack, unpack
from snapshot_engine.state.row_class import row_class


class ValueCodec(Protocol):
    """Many values as bytes and back; `text` is what the checkpoint says of their type."""

    text: str

    def encode(self, values: Sequence[Any]) -> bytes: ...
    def decode(self, data: bytes) -> list[Any]: ...


class PlainCodec:
    """Values that pack by themselves. Rows and tuples of one kind are packed by columns: each by itself is dear."""

    def __init__(self, text: str = "any") -> None:
        self.text = text

    def encode(self, values: Sequence[Any]) -> bytes:
        kinds = set(map(type, values))
        kind = kinds.pop() if len(kinds) == 1 else None
        names = getattr(kind, "_fields", None)
        if names is None and kind is tuple and len(set(map(len, values))) == 1:
            names = len(values[0])
        if not names:
            return pack([None, list(values)])
        names = list(names) if isinstance(names, tuple) else names
        return pack([names, [list(column) for column in zip(*values, strict=True)]])

    def decode(self, data: bytes) -> list[Any]:
        names, values = unpack(data)
        if names is None:
            return list(values)
        rows = zip(*values, strict=True)
        return list(rows) if isinstance(names, int) else list(map(row_class(tuple(names)), rows))


class ConvertedCodec:
    """Values that are turned into plain ones first: dataclasses and named tuples."""

    def __init__(self, text: str, to_plain: Callable[[Any], Any], from_plain: Callable[[Any], Any]) -> None:
        self.text = text
        self._to_plain = to_plain
        self._from_plain = from_plain

    def encode(self, values: Sequence[Any]) -> bytes:
        return pack([self._to_plain(value) for value in values])

    def decode(self, data: bytes) -> list[Any]:
        return [self._from_plain(value) for value in unpack(data)]


class ListCodec:
    """Lists of elements: all elements one after the other, and where each list ends."""

    def __init__(self, element: ValueCodec) -> None:
        self.text = f"list[{element.text}]"
        self._element = element

    def encode(self, values: Sequence[Any]) -> bytes:
        elements = list(chain.from_iterable(values))
        return pack([list(map(len, values)), self._element.encode(elements) if elements else b""])

    def decode(self, data: bytes) -> list[Any]:
        sizes, elements = unpack(data)
        return _cut(self._element.decode(elements) if elements else [], sizes)


class MapCodec:
    """Dictionaries: as lists of keys and lists of values."""

    def __init__(self, key: ValueCodec, value: ValueCodec) -> None:
        self.text = f"map[{key.text}, {value.text}]"
        self._keys = ListCodec(key)
        self._values = ListCodec(value)

    def encode(self, values: Sequence[Any]) -> bytes:
        keys = [list(value.keys()) for value in values]
        return pack([self._keys.encode(keys), self._values.encode([list(value.values()) for value in values])])

    def decode(self, data: bytes) -> list[Any]:
        keys, values = unpack(data)
        pairs = zip(self._keys.decode(keys), self._values.decode(values), strict=True)
        return [dict(zip(mine, theirs, strict=True)) for mine, theirs in pairs]


def _cut(elements: list[Any], sizes: list[int]) -> list[Any]:
    ends = list(accumulate(sizes))
    return [elements[end - size : end] for size, end in zip(sizes, ends, strict=True)]


def codec_of(type_: Any) -> ValueCodec:
    """The codec of a type that a user named in a descriptor; None is any plain value."""
    if type_ is None or type_ is Any:
        return PlainCodec()
    text = describe(type_)
    converters = _converters(type_)
    return PlainCodec(text) if converters is None else ConvertedCodec(text, *converters)


def describe(type_: Any) -> str:
    """The type as text that changes whenever the stored form would: a class with fields is told with them."""
    if type_ is None or type_ is type(None):
        return "None"
    if typing.get_origin(type_) is not None:
        inner = ", ".join(describe(argument) for argument in typing.get_args(type_))
        return f"{_name(typing.get_origin(type_))}[{inner}]"
    fields = _fields(type_)
    if fields is not None:
        return f"{type_.__name__}({', '.join(f'{name}: {describe(field)}' for name, field in fields.items())})"
    return _name(type_)


def _name(type_: Any) -> str:
    if type_ in (typing.Union, types.UnionType):
        return "Union"
    return getattr(type_, "__qualname__", None) or str(type_)


def _fields(type_: Any) -> dict[str, Any] | None:
    """The fields of a dataclass or named tuple with their types."""
    if not isinstance(type_, type):
        return None
    if dataclasses.is_dataclass(type_):
        names = [field.name for field in dataclasses.fields(type_)]
    elif issubclass(type_, tuple) and hasattr(type_, "_fields"):
        names = list(type_._fields)
    else:
        return None
    try:
        hints = typing.get_type_hints(type_)
    except NameError:  # a type that is known only where the class was written
        hints = {}
    return {name: hints.get(name, Any) for name in names}


_Converters = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _converters(type_: Any) -> _Converters | None:
    """To plain values and back; None where the values are plain already."""
    fields = _fields(type_)
    if fields is not None:
        return _class_converters(type_, fields)
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if origin is list and arguments and (inner := _converters(arguments[0])) is not None:
        to_plain, from_plain = inner
        return (lambda value: [to_plain(item) for item in value], lambda value: [from_plain(item) for item in value])
    if origin is dict and len(arguments) == 2 and (inner := _converters(arguments[1])) is not None:
        to_plain, from_plain = inner
        return (
            lambda value: {key: to_plain(item) for key, item in value.items()},
            lambda value: {key: from_plain(item) for key, item in value.items()},
        )
    if origin in (typing.Union, types.UnionType):
        others = [argument for argument in arguments if argument is not type(None)]
        if len(others) == 1 and (inner := _converters(others[0])) is not None:
            to_plain, from_plain = inner
            return (
                lambda value: None if value is None else to_plain(value),
                lambda value: None if value is None else from_plain(value),
            )
    return None


def _class_converters(type_: Any, fields: dict[str, Any]) -> _Converters:
    inner = {name: _converters(field) for name, field in fields.items()}

    def to_plain(value: Any) -> list[Any]:
        return [getattr(value, name) if pair is None else pair[0](getattr(value, name)) for name, pair in inner.items()]

    def from_plain(values: list[Any]) -> Any:
        pairs = zip(inner.items(), values, strict=True)
        fields = {name: value if pair is None else pair[1](value) for (name, pair), value in pairs}
        made = type_.__new__(type_, **fields) if issubclass(type_, tuple) else type_.__new__(type_)
        if not issubclass(type_, tuple):
            for name, value in fields.items():
                object.__setattr__(made, name, value)
        return made

    return to_plain, from_plain
