"""The headers of Parquet's pages: a structure in Thrift's compact protocol before each of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple


class UnknownPage(ValueError):
    """This is not read here; Arrow may be able to."""


class PageKind(IntEnum):
    DATA = 0
    DICTIONARY = 2


class Encoding(IntEnum):
    PLAIN = 0
    PLAIN_DICTIONARY = 2
    """Of old: in a dictionary page it means PLAIN, in a data page RLE_DICTIONARY."""
    RLE_DICTIONARY = 8


@dataclass(frozen=True)
class PageHeader:
    kind: PageKind
    encoding: Encoding
    values: int
    """Nulls included."""
    size: int
    stored_size: int
    """What follows the header."""


class _Read(NamedTuple):
    value: Any
    end: int


_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_OWN_HEADER = {PageKind.DATA: 5, PageKind.DICTIONARY: 7}


def read_header(data: Sequence[int], begin: int) -> tuple[PageHeader, int]:
    """The header that begins there, and where it ends; raises UnknownPage for what is not read here."""
    try:
        fields, end = _read_struct(data, begin)
        kind = PageKind(fields[1])
        own = fields[_OWN_HEADER[kind]]
        return PageHeader(kind, Encoding(own[2]), own[1], fields[2], fields[3]), end
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise UnknownPage(f"no header of a known page at {begin}") from error


def _read_struct(data: Sequence[int], position: int) -> _Read:
    """Its fields by their numbers."""
    fields: dict[int, Any] = {}
    number = 0
    while (head := data[position]) != 0:
        position += 1
        step, kind = head >> 4, head & 15
        if step:
            number += step
        else:
            number, position = _read_integer(data, position)
        fields[number], position = _read_value(data, position, kind)
    return _Read(fields, position + 1)


def _read_value(data: Sequence[int], position: int, kind: int) -> _Read:
    if kind in (_TRUE, _FALSE):
        return _Read(kind == _TRUE, position)
    if kind in _INTEGERS:
        return _read_integer(data, position)
    if kind == _BINARY:
        size, position = _read_varint(data, position)
        return _Read(None, position + size)
    if kind == _STRUCT:
        return _read_struct(data, position)
    if kind in (_BYTE, _DOUBLE):
        return _Read(None, position + (1 if kind == _BYTE else 8))
    raise ValueError(f"a value of kind {kind}")


def _read_integer(data: Sequence[int], position: int) -> _Read:
    number, position = _read_varint(data, position)
    return _Read((number >> 1) ^ -(number & 1), position)


def _read_varint(data: Sequence[int], position: int) -> _Read:
    number = shift = 0
    while (byte := data[position]) >= 128:
        number |= (byte & 127) << shift
        shift += 7
        position += 1
    return _Read(number | byte << shift, position + 1)
