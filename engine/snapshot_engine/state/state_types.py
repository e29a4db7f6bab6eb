"""The types of keyed state: how they are told in checkpoints, and how many values of one become bytes."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from types import ModuleType
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
    """Values that are turned into plain ones first: dataclasses and named tuples, and what holds such."""

    def __init__(self, text: str, converters: Converters) -> None:
        self.text = text
        self._converters = converters
        self._plain = PlainCodec() if converters.once_plain else None

    def encode(self, values: Sequence[Any]) -> bytes:
        plain = list(map(self._converters.to_plain, values))
        return pack(plain) if self._plain is None else self._plain.encode(plain)

    def decode(self, data: bytes) -> list[Any]:
        plain = unpack(data) if self._plain is None else self._plain.decode(data)
        return list(map(self._converters.from_plain, plain))


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
    """The codec of a type that a user named in a descriptor; None is any plain value. A type that cannot be kept is a
    TypeError."""
    if type_ is None or type_ is Any:
        return PlainCodec()
    _check_reach(type_, ())
    text = describe(type_)
    converters = _converters(type_)
    return PlainCodec(text) if converters is None else ConvertedCodec(text, converters)


def checked_by(type_: Any) -> Callable[[Any], Any]:
    """What returns a value of the type that a user named, and refuses one of another class where it can be told at a
    glance: packing would find it at the next checkpoint, far from the line that made it."""
    return partial(_checked, type_=type_) if _has_fields(type_) else _same


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


_UNKNOWN_FIELDS = re.compile(r"\(\w+: Any(?:, \w+: Any)*\)")


def is_told_as(found: str, text: str) -> bool:
    """Whether a checkpoint that says `found` has a state of the type `text`. Older ones may say Any of all fields of a
    class, where they did not know better."""
    known = _UNKNOWN_FIELDS.sub(lambda fields: fields.group().replace(": Any", ": \0"), found).split("\0")
    at = 0
    for part in known[:-1]:
        if not text.startswith(part, at):
            return False
        at = _end_of_field(text, at + len(part))
    return text[at:] == known[-1]


def _end_of_field(text: str, at: int) -> int:
    """Where the type that begins there ends."""
    depth = 0
    for position in range(at, len(text)):
        depth += (text[position] in "([") - (text[position] in ")]")
        if depth < 0 or (depth == 0 and text[position] == ","):
            return position
    return len(text)


def _name(type_: Any) -> str:
    if type_ in (typing.Union, types.UnionType):
        return "Union"
    return getattr(type_, "__qualname__", None) or str(type_)


def _has_fields(type_: Any) -> bool:
    """Whether it is a dataclass or a named tuple."""
    if not isinstance(type_, type):
        return False
    return dataclasses.is_dataclass(type_) or (issubclass(type_, tuple) and hasattr(type_, "_fields"))


def _fields(type_: Any) -> dict[str, Any] | None:
    """The fields of a dataclass or named tuple with their types."""
    if not _has_fields(type_):
        return None
    dataclass_ = dataclasses.is_dataclass(type_)
    names = [field.name for field in dataclasses.fields(type_)] if dataclass_ else list(type_._fields)
    noted = type_.__dict__.get(_NOTED)
    hints = _hints(type_) if noted is None else noted
    return {name: hints.get(name, Any) for name in names}


def _hints(type_: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(type_)
    except Exception as error:  # annotations may be any text
        raise TypeError(
            f"the types of the fields of {type_.__qualname__} cannot be found ({error}): write the class at the top "
            "level of its module, and import there, outside of `if TYPE_CHECKING`, what its annotations name"
        ) from error


_NOTED = "__noted_field_types__"


def note_field_types(module: ModuleType) -> None:
    """To be called before code of `module` is sent to where the module is not: annotations that are texts, as they are
    with `from __future__ import annotations`, name what is known only here."""
    for class_ in _classes_in(module, module.__name__):
        # What is no state may be annotated with anything.
        with contextlib.suppress(Exception):
            if _has_fields(class_):
                setattr(class_, _NOTED, typing.get_type_hints(class_))


def _classes_in(place: Any, module: str) -> Iterator[type]:
    """The classes of a module with those inside of them."""
    within = f"{place.__qualname__}." if isinstance(place, type) else ""
    for value in list(vars(place).values()):
        if isinstance(value, type) and value.__module__ == module and value.__qualname__.startswith(within):
            yield value
            yield from _classes_in(value, module)


_SEQUENCES = (list, tuple, set, frozenset)


@dataclass(frozen=True, slots=True)
class Converters:
    """To plain values and back. What was packed as a row of another class, as checkpoints may have it, is read too."""

    to_plain: Callable[[Any], Any]
    from_plain: Callable[[Any], Any]
    once_plain: bool = False
    """Whether checkpoints have had such values as they were, named tuples as rows, and so in the form of those."""


def _check_reach(type_: Any, inside: tuple[Any, ...]) -> None:
    """Refuses a class with fields where it would not be made again; `inside` are the classes that hold it."""
    if type_ in inside:
        raise TypeError(
            f"{_name(type_)} holds itself, which a state's type cannot; keep what it refers to in a MapState, by a key"
        )
    fields = _fields(type_)
    if fields is not None:
        for field in fields.values():
            _check_reach(field, (*inside, type_))
        return
    arguments = typing.get_args(type_)
    for argument in arguments:
        _check_reach(argument, inside)
    if not _reaches_into(type_) and any(map(_holds_class, (typing.get_origin(type_), *arguments))):
        raise TypeError(
            f"a state of type {describe(type_)} could not be made again from a checkpoint: dataclasses and named "
            "tuples may stand alone, in a list, tuple, set, frozenset or dict, and beside None; instead of a choice "
            "between several, name a dataclass with an optional field for each"
        )


def _reaches_into(type_: Any) -> bool:
    origin = typing.get_origin(type_)
    if origin in (typing.Union, types.UnionType):
        return _optional(type_) is not None
    return origin in (*_SEQUENCES, dict)


def _holds_class(type_: Any) -> bool:
    return _fields(type_) is not None or any(map(_holds_class, typing.get_args(type_)))


def _optional(type_: Any) -> Any:
    """The type that may also be None; None if it is one of several."""
    others = [argument for argument in typing.get_args(type_) if argument is not type(None)]
    return others[0] if len(others) == 1 else None


def _converters(type_: Any) -> Converters | None:
    """None where the values are plain already."""
    fields = _fields(type_)
    if fields is not None:
        return _class_converters(type_, fields)
    origin, arguments = typing.get_origin(type_), typing.get_args(type_)
    if not arguments or not _reaches_into(type_):
        return None
    if origin is dict:
        return _dict_converters(*map(_converters, arguments))
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _tuple_converters(list(map(_converters, arguments)))
    if origin in _SEQUENCES:
        return _sequence_converters(origin, _converters(arguments[0]))
    return _optional_converters(_converters(_optional(type_)))


def _sequence_converters(origin: type, item: Converters | None) -> Converters | None:
    """Lists, sets and tuples of any length; sets as lists, since what a class is turned into cannot be in a set."""
    if item is None:
        return None
    to_plain, from_plain = item.to_plain, item.from_plain
    made = tuple if origin is tuple else list
    return Converters(
        lambda values: made(map(to_plain, _checked(values, origin))),
        lambda values: origin(map(from_plain, values)),
        item.once_plain or origin is not list,
    )


def _tuple_converters(items: list[Converters | None]) -> Converters | None:
    if not any(items):
        return None

    def to_plain(values: Any) -> Any:
        pairs = zip(items, _checked(values, tuple), strict=True)
        return tuple(value if item is None else item.to_plain(value) for item, value in pairs)

    def from_plain(values: Any) -> Any:
        pairs = zip(items, values, strict=True)
        return tuple(value if item is None else item.from_plain(value) for item, value in pairs)

    return Converters(to_plain, from_plain, once_plain=True)


def _dict_converters(key: Converters | None, value: Converters | None) -> Converters | None:
    """As pairs where the keys are converted, since what a class is turned into cannot be a key."""
    if key is None and value is None:
        return None
    key_to, key_from = (key.to_plain, key.from_plain) if key else (_same, _same)
    value_to, value_from = (value.to_plain, value.from_plain) if value else (_same, _same)
    made: Callable[[Any], Any] = dict if key is None else list

    def to_plain(values: Any) -> Any:
        return made((key_to(name), value_to(item)) for name, item in _checked(values, dict).items())

    def from_plain(values: Any) -> Any:
        pairs = values.items() if isinstance(values, dict) else values
        return {key_from(name): value_from(item) for name, item in pairs}

    return Converters(to_plain, from_plain, once_plain=value is None or value.once_plain)


def _optional_converters(inner: Converters | None) -> Converters | None:
    if inner is None:
        return None
    to_plain, from_plain = inner.to_plain, inner.from_plain
    return Converters(
        lambda value: None if value is None else to_plain(value),
        lambda value: None if value is None else from_plain(value),
        inner.once_plain,
    )


def _class_converters(type_: Any, fields: dict[str, Any]) -> Converters:
    pairs = [(name, _converters(field)) for name, field in fields.items()]

    def to_plain(value: Any) -> list[Any]:
        _checked(value, type_)
        return [getattr(value, name) if pair is None else pair.to_plain(getattr(value, name)) for name, pair in pairs]

    def from_plain(values: Any) -> Any:
        each = zip(pairs, values, strict=True)
        fields = {name: value if pair is None else pair.from_plain(value) for (name, pair), value in each}
        made = type_.__new__(type_, **fields) if issubclass(type_, tuple) else type_.__new__(type_)
        if not issubclass(type_, tuple):
            for name, value in fields.items():
                object.__setattr__(made, name, value)
        return made

    return Converters(to_plain, from_plain)


def _checked(value: Any, type_: type) -> Any:
    """What is of another class, a subclass or a row with the same fields, would be of this one after a restart."""
    if type(value) is not type_:
        raise TypeError(
            f"a {type(value).__qualname__} would be {type_.__qualname__} after a restart; make it "
            f"{type_.__qualname__}, or name its own class as the state's type"
        )
    return value


def _same(value: Any) -> Any:
    return value
