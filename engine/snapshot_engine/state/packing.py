"""Plain Python values as bytes and back, type for type: what goes in comes out equal and of the same type.

MessagePack, with extension types for what it does not know. Never pickle: the bytes cross the network and lie
in checkpoints. Equal values of equal types give equal bytes, but for sets and dicts.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import ormsgpack

from snapshot_engine.state.row_class import row_class

# Dictionaries whose keys are not all strings are spelled out by `_pairs`: the library would turn dates and
# UUIDs into strings there.
_OPTIONS = (
    ormsgpack.OPT_PASSTHROUGH_TUPLE
    | ormsgpack.OPT_PASSTHROUGH_SUBCLASS
    | ormsgpack.OPT_PASSTHROUGH_DATACLASS
    | ormsgpack.OPT_PASSTHROUGH_DATETIME
    | ormsgpack.OPT_PASSTHROUGH_BIG_INT
    | ormsgpack.OPT_PASSTHROUGH_ENUM
    | ormsgpack.OPT_PASSTHROUGH_UUID
)

# Part of the checkpoint format: never renumber.
_TUPLE, _BIG_INT, _DATETIME, _DATE, _TIME, _TIMEDELTA, _DECIMAL, _UUID = range(1, 9)
_SET, _FROZENSET, _DICT, _COUNTER, _ORDERED_DICT, _DEQUE, _ROW = range(9, 16)

_NATIVE = frozenset({type(None), bool, int, float, bytes, bytearray, memoryview})

PACKABLE = (
    "None, bool, int, float, str, bytes, list, tuple, dict, set, frozenset, datetime, date, time, timedelta, "
    "Decimal, UUID, Counter, OrderedDict, deque and rows"
)


class PackError(TypeError):
    """A value that has no packed form."""


# A byte that MessagePack never uses: what follows is the list of a tuple's items. Tuples are common as keys
# and records, and an extension type costs a call back into Python.
_TUPLE_MARK = b"\xc1"


class UnpackError(ValueError):
    """Bytes that `pack` did not make, or not this version of it."""


def pack(value: Any) -> bytes:
    if type(value) is tuple:
        return _TUPLE_MARK + _pack_item(list(value))
    return _pack_item(value)


def unpack(data: bytes) -> Any:
    try:
        if data[:1] == _TUPLE_MARK:
            return tuple(ormsgpack.unpackb(data[1:], ext_hook=_from_extension))
        return ormsgpack.unpackb(data, ext_hook=_from_extension)
    except ValueError as error:
        raise UnpackError(f"packed values cannot be read: they are damaged, or of a newer version ({error})") from error


def pack_all(values: Sequence[Any]) -> list[bytes]:
    """As `pack` for each value; a PackError tells the position of its value as `error.args[1]`."""
    packb, extension, options, mark = ormsgpack.packb, _extension, _OPTIONS, _TUPLE_MARK
    try:
        kinds = set(map(type, values))
        if kinds == {tuple}:
            return [mark + packb(list(value), extension, options) for value in values]
        if tuple not in kinds:
            return [packb(value, extension, options) for value in values]
    except TypeError:
        pass
    return [_pack_at(position, value) for position, value in enumerate(values)]


def unpack_all(packed: Sequence[bytes]) -> list[Any]:
    unpackb, hook, mark = ormsgpack.unpackb, _from_extension, _TUPLE_MARK[0]
    return [
        unpackb(data, ext_hook=hook) if data[0] != mark else tuple(unpackb(data[1:], ext_hook=hook)) for data in packed
    ]


def _pack_item(value: Any) -> bytes:
    try:
        return ormsgpack.packb(value, _extension, _OPTIONS)
    except TypeError:
        return ormsgpack.packb(_spelled_out(value), _extension, _OPTIONS)


def _pack_at(position: int, value: Any) -> bytes:
    try:
        return pack(value)
    except TypeError as error:
        raise PackError(str(error), position) from None


def _spelled_out(value: Any) -> Any:
    """`value` with dicts that have other keys than strings as pairs; raises PackError at what is foreign."""
    if type(value) is dict:
        if all(type(key) is str for key in value):
            return {key: _spelled_out(item) for key, item in value.items()}
        return ormsgpack.Ext(_DICT, _pairs(value))
    if type(value) is list:
        return [_spelled_out(item) for item in value]
    if type(value) is str:
        return _without_surrogates(value)
    return value if type(value) in _NATIVE else _extension(value)


def _without_surrogates(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PackError("a str with lone surrogates cannot be packed; encode it to bytes first") from None
    return text


def _pairs(value: dict[Any, Any]) -> bytes:
    return pack([list(value.keys()), list(value.values())])


def _extension(value: Any) -> Any:
    """Called by the library for every value it does not pack by itself."""
    encode = _ENCODERS.get(type(value))
    if encode is not None:
        return encode(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ormsgpack.Ext(_ROW, pack([list(value._fields), list(value)]))
    if isinstance(value, np.generic):
        return value.item()
    raise PackError(f"a value of type {type(value).__qualname__} cannot be packed; what can: {PACKABLE}")


def _text(code: int, text: Callable[[Any], str]) -> Callable[[Any], Any]:
    return lambda value: ormsgpack.Ext(code, text(value).encode())


def _items(code: int) -> Callable[[Any], Any]:
    return lambda value: ormsgpack.Ext(code, pack(list(value)))


_ENCODERS: dict[type, Callable[[Any], Any]] = {
    tuple: _items(_TUPLE),
    int: _text(_BIG_INT, str),
    dt.datetime: lambda value: ormsgpack.Ext(_DATETIME, _datetime_text(value).encode()),
    dt.date: _text(_DATE, dt.date.isoformat),
    dt.time: _text(_TIME, dt.time.isoformat),
    dt.timedelta: lambda value: ormsgpack.Ext(_TIMEDELTA, pack([value.days, value.seconds, value.microseconds])),
    Decimal: _text(_DECIMAL, str),
    UUID: lambda value: ormsgpack.Ext(_UUID, value.bytes),
    set: _items(_SET),
    frozenset: _items(_FROZENSET),
    Counter: lambda value: ormsgpack.Ext(_COUNTER, _pairs(value)),
    OrderedDict: lambda value: ormsgpack.Ext(_ORDERED_DICT, _pairs(value)),
    deque: lambda value: ormsgpack.Ext(_DEQUE, pack([value.maxlen, list(value)])),
}


def _datetime_text(value: dt.datetime) -> str:
    """ISO 8601 with the offset, and the zone's name where it has one (as in zoneinfo.ZoneInfo)."""
    zone = getattr(value.tzinfo, "key", None)
    return f"{value.isoformat()}[{zone}]" if zone else value.isoformat()


def _datetime_from(data: bytes) -> dt.datetime:
    text, bracket, zone = data.decode().partition("[")
    value = dt.datetime.fromisoformat(text)
    if not bracket:
        return value
    from zoneinfo import ZoneInfo

    return value.astimezone(ZoneInfo(zone[:-1]))


def _row_from(data: bytes) -> Any:
    names, values = unpack(data)
    return row_class(tuple(names))(values)


_DECODERS: dict[int, Callable[[bytes], Any]] = {
    _TUPLE: lambda data: tuple(unpack(data)),
    _BIG_INT: lambda data: int(data),
    _DATETIME: _datetime_from,
    _DATE: lambda data: dt.date.fromisoformat(data.decode()),
    _TIME: lambda data: dt.time.fromisoformat(data.decode()),
    _TIMEDELTA: lambda data: dt.timedelta(*unpack(data)),
    _DECIMAL: lambda data: Decimal(data.decode()),
    _UUID: lambda data: UUID(bytes=data),
    _SET: lambda data: set(unpack(data)),
    _FROZENSET: lambda data: frozenset(unpack(data)),
    _DICT: lambda data: dict(zip(*unpack(data), strict=True)),
    _COUNTER: lambda data: Counter(dict(zip(*unpack(data), strict=True))),
    _ORDERED_DICT: lambda data: OrderedDict(zip(*unpack(data), strict=True)),
    _DEQUE: lambda data: (lambda maxlen, items: deque(items, maxlen))(*unpack(data)),
    _ROW: _row_from,
}


def _from_extension(code: int, data: bytes) -> Any:
    decode = _DECODERS.get(code)
    if decode is None:
        raise UnpackError(f"extension type {code} is not known")
    return decode(bytes(data))
