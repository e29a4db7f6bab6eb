from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, NamedTuple, TypedDict

import pyarrow as pa
import pytest

from snapshot_engine.api.schemas import output_schema, returned_schema, to_schema


@dataclass
class Place:
    city: str
    zip: int | None


class Order(NamedTuple):
    place: Place
    amount: float
    tags: list[str]
    prices: dict[str, Decimal]
    at: datetime.datetime
    small: Annotated[int, pa.int16()]


class Row(TypedDict):
    city: str
    ok: bool


PLACE = pa.schema({"city": pa.string(), "zip": pa.int64()})


def test_a_dataclass():
    assert to_schema(Place) == PLACE


def test_a_named_tuple_with_nested_fields():
    schema = to_schema(Order)
    assert schema.field("place").type == pa.struct(list(PLACE))
    assert schema.field("tags").type == pa.list_(pa.string())
    assert schema.field("prices").type == pa.map_(pa.string(), pa.decimal128(38, 18))
    assert schema.field("at").type == pa.timestamp("us")
    assert schema.field("small").type == pa.int16()


def test_a_typed_dict_text_and_arrow():
    expected = pa.schema({"city": pa.string(), "ok": pa.bool_()})
    assert to_schema(Row) == to_schema("city string, ok boolean") == to_schema(expected) == expected


def test_a_field_without_a_column_type_is_named():
    @dataclass
    class Bad:
        city: str
        anything: object

    with pytest.raises(TypeError, match=r"Bad.anything: no column type for .*object.*use bool, int"):
        to_schema(Bad)


@pytest.mark.parametrize("given", [42, int, ["a"]])
def test_what_is_no_schema_is_told_what_would_be(given):
    with pytest.raises(TypeError, match="is not a schema: give a pyarrow schema, text such as"):
        to_schema(given)


def test_a_functions_annotation_is_its_schema():
    def one(record) -> Place: ...

    def many(record) -> Iterator[Place]: ...

    def listed(record) -> list[Place]: ...

    assert returned_schema(one) == PLACE
    assert returned_schema(many, many=True) == returned_schema(listed, many=True) == PLACE


def test_an_annotation_that_names_no_columns_says_nothing():
    def number(record) -> int: ...

    def numbers(record) -> Iterable[int]: ...

    def pair(record) -> tuple[Place, Place]: ...

    def unknown(record) -> NotDefinedAnywhere: ...  # noqa: F821

    assert returned_schema(number) is None and returned_schema(unknown) is None
    assert returned_schema(numbers, many=True) is None and returned_schema(pair, many=True) is None
    assert returned_schema(lambda record: record) is None
    assert returned_schema(len) is None


def test_a_callable_object_is_annotated_at_its_call():
    class Parse:
        def __call__(self, record) -> Place: ...

    assert returned_schema(Parse()) == PLACE


def test_what_is_said_explicitly_wins():
    def one(record) -> Place: ...

    assert output_schema("x int", one) == pa.schema({"x": pa.int32()})
