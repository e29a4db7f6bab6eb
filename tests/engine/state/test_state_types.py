from __future__ import annotations

import datetime as dt
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional

import pytest

from snapshot_engine.state.packing import pack
from snapshot_engine.state.row_class import make_row
from snapshot_engine.state.state_types import ListCodec, MapCodec, PlainCodec, codec_of, describe, is_told_as


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


@dataclass
class Bigger(Cart):
    discount: int = 0


@dataclass
class Node:
    parent: Optional[Node] = None  # noqa: UP045


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
        (tuple[Point, int], [(Point(1, 2), 3), (Point(4, 5), 6)]),
        (tuple[Frozen, ...], [(Frozen(1), Frozen(2)), ()]),
        (set[Frozen], [{Frozen(1), Frozen(2)}, set()]),
        (frozenset[Point], [frozenset({Point(1, 2)})]),
        (dict[Frozen, int], [{Frozen(1): 1}, {}]),
        (dict[Point, Cart], [{Point(1, 2): CART}]),
        (list[dict[tuple[Point, int], Point]], [[{(Point(1, 2), 3): Point(4, 5)}]]),
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


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (tuple[Point, int], (Point(1, 2), 3)),
        (set[Point], {Point(1, 2)}),
        (dict[Point, Cart], {Point(1, 2): CART}),
        (list[tuple[Point, Point]], [(Point(1, 2), Point(3, 4))]),
    ],
    ids=str,
)
def test_classes_are_made_again_inside_of_all_that_may_hold_them(type_: Any, value: Any) -> None:
    codec = codec_of(type_)
    (back,) = codec.decode(codec.encode([value]))
    assert repr(back) == repr(value)  # a row is equal to a named tuple


@pytest.mark.parametrize("kept", [[(Point(1, 2), 3)], [(Point(1, 2), 3), (Point(4, 5), 6)]], ids=len)
def test_checkpoints_in_which_named_tuples_inside_of_tuples_are_rows_can_be_read(kept: list[Any]) -> None:
    assert repr(codec_of(tuple[Point, int]).decode(PlainCodec().encode(kept))) == repr(kept)


def test_checkpoints_in_which_keys_are_rows_can_be_read() -> None:
    kept = {Point(1, 2): [Point(3, 4)]}
    assert repr(codec_of(dict[Point, list[Point]]).decode(pack([{Point(1, 2): [[3, 4]]}]))) == repr([kept])
    assert repr(codec_of(dict[Point, int]).decode(PlainCodec().encode([{Point(1, 2): 3}]))) == "[{Point(x=1, y=2): 3}]"


@pytest.mark.parametrize(
    ("type_", "value", "told"),
    [
        (
            Cart,
            Bigger("me"),
            "a Bigger would be Cart after a restart; make it Cart, or name its own class as the state's type",
        ),
        (Frozen, make_row(("a",), (1,)), "a Row would be Frozen"),
        (Point, (1, 2), "a tuple would be Point"),
        (list[Frozen], [Frozen(1), None], "a NoneType would be Frozen"),
        (dict[str, Frozen], Counter(), "a Counter would be dict"),
    ],
    ids=["subclass", "row", "tuple", "inside", "container"],
)
def test_what_would_come_back_as_another_class_is_refused(type_: Any, value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=told):
        codec_of(type_).encode([value])


@pytest.mark.parametrize(
    "type_", [Point | int, Frozen | Cart | None, deque[Frozen], list[Point | int], Sequence[Cart]], ids=str
)
def test_types_that_could_not_be_made_again_are_refused(type_: Any) -> None:
    with pytest.raises(TypeError, match="could not be made again from a checkpoint: "):
        codec_of(type_)


def test_a_class_that_holds_itself_is_refused() -> None:
    with pytest.raises(TypeError, match="Node holds itself"):
        codec_of(Node)


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


@pytest.mark.parametrize(
    ("found", "text", "same"),
    [
        ("value[Cart(at: Any, items: Any)]", "value[Cart(at: datetime, items: dict[str, Item(a: int)])]", True),
        ("list[Cart(i: list[Item(a: Any, b: Any)])]", "list[Cart(i: list[Item(a: tuple[int, str], b: A)])]", True),
        ("map[A(x: Any), B(x: Any)]", "map[A(x: int), B(x: list[A(x: int)])]", True),
        ("value[Cart(at: Any, items: Any)]", "value[Cart(at: datetime)]", False),
        ("value[Cart(at: Any)]", "value[Cart(at: datetime, items: int)]", False),
        ("value[Cart(at: Any, items: Any)]", "value[Cart(items: int, at: datetime)]", False),
        ("value[Cart(at: Any)]", "value[Box(at: int)]", False),
        ("value[Cart(at: int)]", "value[Cart(at: Any)]", False),
        ("value[Cart(at: Any, n: int)]", "value[Cart(at: str, n: int)]", False),
        ("value[any]", "value[int]", False),
    ],
)
def test_checkpoints_that_do_not_know_the_types_of_fields_can_be_read(found: str, text: str, same: bool) -> None:
    assert is_told_as(found, text) is same
    assert is_told_as(text, text)
