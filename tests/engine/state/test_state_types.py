from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import pytest

from snapshot_engine.state.row_class import make_row
from snapshot_engine.state.state_types import ListCodec, MapCodec, PlainCodec, codec_of, describe


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Cart:
    owner: str
    items: list[Point] = field(default_factory=list)
    best: Optional[Point] = None  # noqa: UP045 (both spellings have to work)
    prices: dict[str, Point] = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    a: int


CART = Cart("me", [Point(1, 2)], Point(3, 4), {"a": Point(5, 6)})


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (None, [1, "a", None, [1], {"a": 1}]),
        (int, [1, 2**80]),
        (tuple, [(1, 2), (3, 4)]),
        (tuple, [(1, 2), (3,), ()]),
        (None, [make_row(("a", "b"), (1, "x")), make_row(("a", "b"), (2, "y"))]),
        (None, [Counter("aab"), {1, 2}, dt.date(2024, 1, 1)]),
        (Point, [Point(1, 2)]),
        (Cart, [CART, Cart("you")]),
        (Frozen, [Frozen(1)]),
        (list[Cart], [[CART], []]),
        (Optional[Frozen], [None, Frozen(2)]),  # noqa: UP045
        (Frozen | None, [None, Frozen(2)]),
    ],
    ids=str,
)
def test_values_come_back_equal_and_of_their_types(type_: Any, values: list[Any]) -> None:
    codec = codec_of(type_)
    back = codec.decode(codec.encode(values))
    assert back == values
    assert [type(value) for value in back] == [type(value) for value in values]


def test_nested_classes_are_made_again() -> None:
    codec = codec_of(Cart)
    (back,) = codec.decode(codec.encode([CART]))
    assert isinstance(back.items[0], Point)
    assert isinstance(back.prices["a"], Point)


def test_lists_and_maps() -> None:
    lists = ListCodec(codec_of(Point))
    assert lists.decode(lists.encode([[Point(1, 2)], [], [Point(3, 4), Point(5, 6)]]))[2] == [(3, 4), (5, 6)]
    maps = MapCodec(PlainCodec(), codec_of(Point))
    values = [{(1, "a"): Point(1, 2)}, {}, {dt.date(2024, 1, 1): Point(3, 4)}]
    assert maps.decode(maps.encode(values)) == values


def test_the_description_changes_with_the_fields() -> None:
    @dataclass
    class Other:
        owner: str

    Other.__name__ = "Cart"
    assert describe(Cart) != describe(Other)
    assert describe(Frozen) == "Frozen(a: int)"
    assert describe(list[int]) == "list[int]"
    assert describe(int | None) == "Union[int, None]"
    assert codec_of(None).text == "any"
