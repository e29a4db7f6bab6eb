"""The class of a stream's records: a tuple with one attribute per column."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from functools import lru_cache
from keyword import iskeyword
from typing import Any

_named_tuple: Any = namedtuple  # the type checker wants names that are known before the program runs

Row = tuple[Any, ...]
"""A record of a stream with a schema: `row.price`, or by position. Immutable."""

_MOST_PARAMETERS = 16
"""With more columns it is quicker to put the changed values into a copy than to ask of each whether it changes."""


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
        "_asdict": as_dict,
        "__reduce__": reduce,
        "__repr__": text,
    }
    row: type[Row] = type("Row", (tuple,), members)
    row._replace = _replacer(row, names)  # type: ignore[attr-defined]
    return row


def make_row(names: tuple[str, ...], values: tuple[Any, ...]) -> Row:
    return row_class(names)(values)


def _replacer(row: type[Row], names: tuple[str, ...]) -> Callable[..., Row]:
    """The method `_replace`: written for the very columns where these can be parameters, which is the quickest way.

    A name that is no column's is a TypeError of Python's own, in which the method's name tells what columns there are.
    """
    replace = _any_replacer(row, names)
    if len(names) <= _MOST_PARAMETERS and all(map(_can_be_parameter, names)):
        replace = _written_replacer(row, names)
    replace.__qualname__ = _full_name(names)
    return replace


def _full_name(names: tuple[str, ...]) -> str:
    return f"Row({', '.join(names)})._replace"


def _written_replacer(row: type[Row], names: tuple[str, ...]) -> Callable[..., Row]:
    own = "_" * (max(map(len, names)) + 1)  # longer than any column's name, so that it can be none
    unchanged = "".join(
        f"    if {name} is {own}same: {name} = {own}row[{number}]\n" for number, name in enumerate(names)
    )
    source = (
        f"def replace({own}row, /, *, {', '.join(f'{name}={own}same' for name in names)}):\n"
        f"{unchanged}"
        f"    return {own}class(({', '.join(names)},))\n"
    )
    scope: dict[str, Any] = {f"{own}same": object(), f"{own}class": row}
    exec(source, scope)
    replace: Callable[..., Row] = scope["replace"]
    return replace


def _can_be_parameter(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not iskeyword(name)


def _any_replacer(row: type[Row], names: tuple[str, ...]) -> Callable[..., Row]:
    positions = {name: position for position, name in enumerate(names)}

    def replace(self: Row, /, **changes: Any) -> Row:
        values = [*self]
        try:
            for name in changes:
                values[positions[name]] = changes[name]
        except KeyError as error:
            raise TypeError(f"{_full_name(names)}() got an unexpected keyword argument {error.args[0]!r}") from None
        return row(values)

    return replace
