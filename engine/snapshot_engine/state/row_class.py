"""The class of a stream's records: a tuple with one attribute per column."""

from __future__ import annotations

from collections import namedtuple
from functools import lru_cache
from typing import Any

_named_tuple: Any = namedtuple  # the type checker wants names that are known before the program runs

Row = tuple[Any, ...]
"""A record of a stream with a schema: `row.price`, or by position. Immutable."""


@lru_cache(maxsize=1024)
def row_class(names: tuple[str, ...]) -> type[Row]:
    """The one class for rows with these columns. It is made from an iterable of values, as `tuple` is.

    Rows have `_fields`, `_asdict` and `_replace`, as named tuples do. Columns whose names are no Python
    identifiers are reached by position or by `getattr(row, "the-name")`.
    """
    # A subclass of tuple without a __new__ of its own is made twice as quickly as a named tuple; the getters
    # are taken from one because they are written in C.
    model = _named_tuple("Row", names, rename=True)
    getters = {name: model.__dict__[field] for name, field in zip(names, model._fields, strict=True)}
    positions = {name: position for position, name in enumerate(names)}

    def replace(self: Row, /, **changes: Any) -> Row:
        values = [*self]
        try:
            for name in changes:
                values[positions[name]] = changes[name]
        except KeyError:
            raise ValueError(f"there is no column {name!r}; the row has {', '.join(names)}") from None
        return row(values)

    def as_dict(self: Row) -> dict[str, Any]:
        return dict(zip(names, self, strict=True))

    def reduce(self: Row) -> tuple[Any, ...]:
        return make_row, (names, tuple(self))

    def text(self: Row) -> str:
        return "Row(" + ", ".join(f"{name}={value!r}" for name, value in zip(names, self, strict=True)) + ")"

    members = {
        **getters,
        "__slots__": (),
        "_fields": names,
        "_replace": replace,
        "_asdict": as_dict,
        "__reduce__": reduce,
        "__repr__": text,
    }
    row: type[Row] = type("Row", (tuple,), members)
    return row


def make_row(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_class(names)(values)
