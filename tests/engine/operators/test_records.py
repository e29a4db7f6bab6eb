from __future__ import annotations

import datetime as dt
import pickle
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.operators.records import Records, to_arrow, to_records
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.user_errors import PlainRecordError, RecordMismatchError

SCHEMA = pa.schema([("id", pa.int64()), ("price", pa.float64()), ("city", pa.string())])
ROWS = StreamType(SCHEMA)
PLAIN = StreamType(RECORDS)


def batch_of(schema: pa.Schema, *rows: tuple[Any, ...]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
    )


def test_a_row_has_its_columns_as_attributes_and_positions() -> None:
    row = to_records(batch_of(SCHEMA, (1, 2.5, "Rome")), ROWS).values[0]
    assert (row.id, row.price, row.city) == (1, 2.5, "Rome") == row
    assert row._asdict() == {"id": 1, "price": 2.5, "city": "Rome"}
    assert row._replace(city="Oslo") == (1, 2.5, "Oslo")
    assert repr(row) == "Row(id=1, price=2.5, city='Rome')"
    assert pickle.loads(pickle.dumps(row)) == row
    with pytest.raises(TypeError, match=r"Row\(id, price, city\)\._replace\(\) got an unexpected .* 'town'"):
        row._replace(town="x")


def test_columns_may_have_any_name() -> None:
    schema = pa.schema([("class", pa.int64()), ("unit price", pa.int64()), ("count", pa.int64()), ("_x", pa.int64())])
    row = to_records(batch_of(schema, (1, 2, 3, 4)), StreamType(schema)).values[0]
    assert (getattr(row, "class"), getattr(row, "unit price"), row.count, row._x) == (1, 2, 3, 4)


TYPES: dict[pa.DataType, Any] = {
    pa.int8(): -5,
    pa.uint64(): 2**64 - 1,
    pa.float32(): 0.5,
    pa.bool_(): True,
    pa.string(): "Zürich",
    pa.large_string(): "x",
    pa.binary(): b"\0\1",
    pa.binary(2): b"ab",
    pa.date32(): dt.date(2024, 2, 29),
    pa.date64(): dt.date(2024, 2, 29),
    pa.time64("us"): dt.time(12, 30, 1, 5),
    pa.timestamp("s"): dt.datetime(1969, 12, 31, 23, 59, 59),
    pa.timestamp("ms"): dt.datetime(2024, 1, 1, 0, 0, 0, 123000),
    pa.timestamp("us"): dt.datetime(2024, 1, 1, 0, 0, 0, 123456),
    pa.timestamp("ns"): dt.datetime(2024, 1, 1, 0, 0, 0, 123456),
    pa.timestamp("us", "UTC"): dt.datetime(2024, 1, 1, tzinfo=dt.UTC),
    pa.timestamp("ms", "Europe/Berlin"): dt.datetime(2024, 1, 1, 11, tzinfo=dt.UTC),
    pa.duration("us"): dt.timedelta(days=-1, microseconds=3),
    pa.duration("ns"): dt.timedelta(seconds=5),
    pa.decimal128(10, 2): Decimal("12.30"),
    pa.list_(pa.int64()): [1, 2, None],
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]): {"a": 1, "b": ["x"]},
    pa.map_(pa.string(), pa.int64()): {"a": 1},
    pa.dictionary(pa.int32(), pa.string()): "coded",
    pa.null(): None,
}


@pytest.mark.parametrize("type_", TYPES, ids=str)
def test_every_type_comes_back_as_it_was(type_: pa.DataType) -> None:
    schema = pa.schema([("x", type_)])
    batch = batch_of(schema, (TYPES[type_],), (None,), (TYPES[type_],))
    stream = StreamType(schema)
    values = [row.x for row in to_records(batch, stream).values]
    assert values == [TYPES[type_], None, TYPES[type_]]
    assert to_arrow(Records([(value,) for value in values]), stream).equals(batch)


def test_nanoseconds_that_python_cannot_hold_are_refused() -> None:
    schema = pa.schema([("at", pa.timestamp("ns"))])
    batch = pa.RecordBatch.from_arrays([pa.array([1], pa.int64()).cast(pa.timestamp("ns"))], schema=schema)
    with pytest.raises(ValueError, match=r"timestamp\[ns\].*cast it to timestamp\[us\]"):
        to_records(batch, StreamType(schema))


@dataclass
class Sale:
    city: str
    id: int
    price: float


class Sold(NamedTuple):
    city: str
    price: float
    id: int


@pytest.mark.parametrize(
    "value",
    [
        (1, 2.5, "Rome"),
        {"city": "Rome", "price": 2.5, "id": 1},
        Sale("Rome", 1, 2.5),
        Sold("Rome", 2.5, 1),
        to_records(batch_of(SCHEMA, (1, 2.5, "Rome")), ROWS).values[0],
    ],
    ids=lambda value: type(value).__name__,
)
def test_functions_may_return_tuples_dicts_dataclasses_and_rows(value: Any) -> None:
    expected = batch_of(SCHEMA, (1, 2.5, "Rome"), (1, 2.5, "Rome"))
    assert to_arrow(Records([value, value]), ROWS).equals(expected)
    assert to_arrow(Records([value, (1, 2.5, "Rome")]), ROWS).equals(expected)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ((1, 2.5), "it has 2 fields, expected 3"),
        ((1, 2.5, "Rome", 4), "it has 4 fields, expected 3"),
        ({"id": 1, "price": 2.5}, "it has no field 'city'"),
        ({"id": 1, "price": 2.5, "city": "Rome", "town": 1}, "the schema has no field 'town'"),
        (Records([]), "it has no field 'id'"),
        (5, "it is a int"),
        (None, "it is a NoneType"),
        ((1, 2.5, 7), "field 'city' is 7 (int)"),
        ((1.5, 2.5, "x"), "field 'id' is 1.5 (float)"),
        (("1", 2.5, "x"), "field 'id' is '1' (str)"),
        ((2**63, 2.5, "x"), f"field 'id' is {2**63} (int)"),
        ((1, "2.5", "x"), "field 'price' is '2.5' (str)"),
    ],
)
@pytest.mark.parametrize("beside", [0, 2])
def test_what_does_not_fit_is_told_with_operator_record_and_schema(value: Any, reason: str, beside: int) -> None:
    records = Records([(1, 2.5, "Rome")] * beside + [value], producer="parse")
    with pytest.raises(RecordMismatchError) as caught:
        to_arrow(records, ROWS)
    text = str(caught.value)
    assert "operator 'parse'" in text
    assert reason in text
    assert repr(value) in text
    assert "id: int64, price: double, city: string" in text


def test_null_in_a_column_that_has_none_is_refused() -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    with pytest.raises(RecordMismatchError, match="not nullable"):
        to_arrow(Records([(1,), (None,)]), StreamType(schema))


def test_integers_go_into_columns_of_floats_and_whole_floats_into_those_of_integers() -> None:
    assert to_arrow(Records([(3.0, 4, None)]), ROWS).to_pylist() == [{"id": 3, "price": 4.0, "city": None}]


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.uint64(), [2**63 + 1, 1]),
        (pa.uint64(), [2**64 - 1, 0]),
        (pa.int64(), [2**53 + 1, 1.0]),
        (pa.int64(), [2**53 + 1, Decimal(1), None]),
    ],
)
def test_integers_stay_what_they_are_whatever_stands_beside_them(type_: pa.DataType, values: list[Any]) -> None:
    batch = to_arrow(Records([(value,) for value in values]), StreamType(pa.schema([("n", type_)])))
    assert batch.column("n").to_pylist() == values


@pytest.mark.parametrize("value", [Decimal("1.5"), np.float32(1.5), float("nan"), float("inf")])
@pytest.mark.parametrize("beside", [1, None])
def test_no_number_is_made_an_integer_by_cutting_it_off(value: Any, beside: int | None) -> None:
    with pytest.raises(RecordMismatchError, match="is not an integer"):
        to_arrow(Records([(beside,), (value,)]), StreamType(pa.schema([("n", pa.int64())])))


NESTED = pa.struct([("n", pa.int32())])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.list_(pa.int64()), [1, 1.5]),
        (pa.list_(pa.list_(pa.int64())), [[1], None, [Decimal("1.5")]]),
        (NESTED, {"n": 1.5}),
        (NESTED, (1.5,)),
        (pa.list_(NESTED), [(1,), (1.5,)]),
        (pa.map_(pa.string(), pa.int64()), {"a": 1.5}),
        (pa.map_(pa.string(), pa.int64()), [("a", 1.5)]),
    ],
)
def test_no_number_inside_a_nested_column_is_cut_off(type_: pa.DataType, value: Any) -> None:
    with pytest.raises(RecordMismatchError, match=r"1\.5.* is not an integer"):
        to_arrow(Records([(value,)]), StreamType(pa.schema([("n", type_)])))


def test_a_field_that_a_struct_does_not_have_is_not_dropped_in_silence() -> None:
    with pytest.raises(RecordMismatchError, match=r"\['m'\] are no fields of struct<n: int32>"):
        to_arrow(Records([({"n": 1, "m": 2},)]), StreamType(pa.schema([("s", NESTED)])))


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.list_(pa.int64()), [1, 2.0, None]),
        (pa.large_list(NESTED), [{"n": 1}, {}, None]),
        (pa.map_(pa.int8(), pa.float64()), {1: 1.5}),
        (pa.list_(pa.float64(), 2), np.array([1.5, 2.5])),
        (NESTED, None),
        (NESTED, (1,)),
        (pa.map_(pa.string(), NESTED), None),
    ],
)
def test_what_fits_a_nested_column_is_taken(type_: pa.DataType, value: Any) -> None:
    batch = to_arrow(Records([(value,)]), StreamType(pa.schema([("n", type_)])))
    assert batch.column("n").equals(pa.array([value], type_))


@dataclass
class Town:
    name: str
    people: int


class Pair(NamedTuple):
    people: int
    name: str


@pytest.mark.parametrize("town", [Town("Ulm", 1), Pair(1, "Ulm"), ("Ulm", 1)], ids=["dataclass", "named", "tuple"])
def test_dataclasses_and_tuples_are_taken_inside_of_nested_columns(town: Any) -> None:
    struct = pa.struct([("name", pa.string()), ("people", pa.int64())])
    schema = pa.schema([("a", struct), ("b", pa.list_(struct)), ("c", pa.map_(pa.string(), struct))])
    batch = to_arrow(Records([(town, [town, None], {"x": town})]), StreamType(schema))
    told = {"name": "Ulm", "people": 1}
    assert batch.to_pylist() == [{"a": told, "b": [told, None], "c": [("x", told)]}]


@pytest.mark.parametrize("value", ["ab", {1: 2}])
def test_what_can_only_be_gone_through_is_no_list(value: Any) -> None:
    with pytest.raises(RecordMismatchError):
        to_arrow(Records([(value,)]), StreamType(pa.schema([("n", pa.list_(pa.int64()))])))


def test_a_dataclass_with_other_fields_than_the_struct_is_refused() -> None:
    with pytest.raises(RecordMismatchError, match=r"\['name', 'people'\] are no fields of struct<n: int32>"):
        to_arrow(Records([(Town("Ulm", 1),)]), StreamType(pa.schema([("s", NESTED)])))


def test_plain_values_come_back_with_their_types() -> None:
    values = [None, True, 1, 2.5, "x", b"y", [1, "a"], (1, (2, 3)), {"a": {1: (2,)}}, dt.datetime(2024, 1, 1), {1}]
    back = to_records(to_arrow(Records(values), PLAIN), PLAIN).values
    assert back == values
    assert [type(value) for value in back] == [type(value) for value in values]


def test_rows_keep_their_columns_in_a_stream_without_schema() -> None:
    row = to_records(batch_of(SCHEMA, (1, 2.5, "Rome")), ROWS).values[0]
    assert to_records(to_arrow(Records([row]), PLAIN), PLAIN).values[0].city == "Rome"


def test_a_value_that_cannot_be_packed_names_the_operator_and_asks_for_a_schema() -> None:
    with pytest.raises(PlainRecordError) as caught:
        to_arrow(Records([1, Sale("Rome", 1, 2.5)], producer="parse"), PLAIN)
    text = str(caught.value)
    assert "operator 'parse'" in text
    assert "Sale cannot be packed" in text
    assert "declare a schema" in text


def test_hidden_columns_are_not_seen_by_functions_and_times_come_back() -> None:
    schema = SCHEMA.append(pa.field(HIDDEN_TIME, pa.int64())).append(pa.field(HIDDEN_KEY, pa.binary()))
    batch = batch_of(schema, (1, 2.5, "Rome", 77, b"k"))
    records = to_records(batch, StreamType(schema, EventTime(HIDDEN_TIME)))
    assert records.values == [(1, 2.5, "Rome")]
    assert records.timestamps is not None
    assert records.timestamps.tolist() == [77]
    out = StreamType(SCHEMA.append(pa.field(HIDDEN_TIME, pa.int64())), EventTime(HIDDEN_TIME))
    assert to_arrow(Records([(2, 1.0, "Oslo")], records.timestamps), out).to_pylist() == [
        {"id": 2, "price": 1.0, "city": "Oslo", HIDDEN_TIME: 77}
    ]


def test_event_times_lie_in_the_column_that_was_named_whatever_its_unit() -> None:
    for unit, raw in (("s", -2), ("ms", -1999), ("us", -1_999_001), ("ns", -1_999_000_001)):
        schema = pa.schema([("at", pa.timestamp(unit))])
        batch = pa.RecordBatch.from_arrays([pa.array([raw], pa.int64()).cast(pa.timestamp(unit))], schema=schema)
        stream = StreamType(schema, EventTime("at", -1))
        if unit != "ns":
            values = Records(to_records(batch, stream).values)
            assert np.array_equal(to_records(values, stream).timestamps, to_records(batch, stream).timestamps)
            assert to_records(values, stream).timestamps.tolist() == [-2001 if unit != "ms" else -2000]


def test_a_row_without_event_time_is_an_error() -> None:
    schema = pa.schema([("at", pa.int64())])
    with pytest.raises(ValueError, match="1 of 2 rows have no event time: 'at' is null"):
        to_records(batch_of(schema, (1,), (None,)), StreamType(schema, EventTime("at")))


def test_unchanged_times_are_handed_on_without_conversion_but_changed_ones_are_not_lost() -> None:
    schema = pa.schema([("at", pa.timestamp("ms")), ("id", pa.int64())])
    stream = StreamType(schema)
    batch = batch_of(schema, (dt.datetime(2024, 1, 1), 1), (dt.datetime(2024, 1, 2), 2))
    records = to_records(batch, stream)
    same = to_arrow(Records([(row.at, 0) for row in records.values], columns=records.columns), stream)
    assert same.column("at").buffers()[1].address == batch.column("at").buffers()[1].address
    turned = to_arrow(Records([(row.at, 0) for row in records.values[::-1]], columns=records.columns), stream)
    assert turned.column("at").to_pylist() == batch.column("at").to_pylist()[::-1]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
    | st.uuids()
    | st.times(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(
            st.text(max_size=3) | st.integers() | st.dates() | st.tuples(st.integers()), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.lists(values, max_size=5))
def test_any_plain_value_survives_the_network(given_values: list[Any]) -> None:
    back = to_records(to_arrow(Records(given_values), PLAIN), PLAIN).values
    assert back == given_values
    assert [type(value) for value in back] == [type(value) for value in given_values]


def test_a_list_that_was_changed_in_place_goes_out_as_it_is_now() -> None:
    """After a map that appends to it and hands the row on."""
    stream = StreamType(pa.schema([("tags", pa.list_(pa.string()))]))
    batch = pa.RecordBatch.from_pydict({"tags": [["a"], []]}, schema=stream.schema)
    records = to_records(batch, stream)
    records.values[1][0].append("b")
    handed_on = Records(records.values, producer="map", columns=records.columns)
    assert to_arrow(handed_on, stream).to_pylist() == [{"tags": ["a"]}, {"tags": ["b"]}]
