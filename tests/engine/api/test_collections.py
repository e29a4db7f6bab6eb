from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pytest

from snapshot_engine.api.collections import table_of
from snapshot_engine.connectors.collection import CollectionSource
from snapshot_engine.connectors.protocols import EndOfSplit
from snapshot_engine.operators.stream_type import RECORDS


class Order(NamedTuple):
    city: str
    amount: float


def test_annotated_classes_dicts_tables_and_plain_values(env):
    expected = pa.schema({"city": pa.string(), "amount": pa.float64()})
    for rows in (
        [Order("Berlin", 1.5)],
        [{"city": "Berlin", "amount": 1.5}],
        pa.table({"city": ["Berlin"], "amount": [1.5]}),
        pa.record_batch({"city": ["Berlin"], "amount": [1.5]}),
    ):
        assert env.from_collection(rows)._end.type.schema == expected
    assert env.from_collection([1, "two", (3,)])._end.type.schema == RECORDS
    assert env.from_collection([])._end.type.schema == RECORDS


def test_a_schema_makes_columns_of_tuples(env):
    stream = env.from_collection([("Berlin", 1)], schema="city string, amount double")
    assert stream._end.type.schema.names == ["city", "amount"]


def test_it_is_bounded_and_has_one_subtask(env, planned):
    graph = planned(env.from_collection([1, 2], uid="in"))
    assert graph.vertices["in"].parallelism == 1


@pytest.mark.parametrize(
    ("rows", "schema", "words"),
    [
        ([("Berlin", "much")], "city string, amount double", "amount"),
        ([("Berlin",)], "city string, amount double", "fields"),
        ([object()], None, "object"),
        (3, None, "not iterable"),
    ],
)
def test_rows_that_do_not_fit_are_refused_at_their_line(env, refused, rows, schema, words):
    problem = refused(env.from_collection(rows, schema=schema))
    assert words in problem and "'from_collection'" in problem and "test_collections.py:" in problem


def test_a_reader_goes_on_at_any_position():
    source = CollectionSource(table_of(range(10), None))
    reader = source.open("all", None)
    assert reader.read(4).num_rows == 4 and reader.position() == 4 and reader.lag() == 6
    again = source.open("all", reader.position())
    assert again.read(100).equals(reader.read(100)) and again.position() == 10
    with pytest.raises(EndOfSplit):
        again.read(1)
