from __future__ import annotations

import pyarrow as pa
import pytest

from snapshot_engine.api.ddl import parse_ddl


def test_columns_in_the_words_of_spark_sql():
    schema = parse_ddl("city string, amount double, n int, big bigint, ok boolean, at timestamp, raw binary, day date")
    assert schema == pa.schema(
        {
            "city": pa.string(),
            "amount": pa.float64(),
            "n": pa.int32(),
            "big": pa.int64(),
            "ok": pa.bool_(),
            "at": pa.timestamp("ms"),
            "raw": pa.binary(),
            "day": pa.date32(),
        }
    )


def test_nested_types():
    schema = parse_ddl("tags array<string>, prices map<string, decimal(10, 2)>, who struct<name: string, age int>")
    assert schema.field("tags").type == pa.list_(pa.string())
    assert schema.field("prices").type == pa.map_(pa.string(), pa.decimal128(10, 2))
    assert schema.field("who").type == pa.struct({"name": pa.string(), "age": pa.int32()})


def test_colons_case_and_quoted_names():
    assert parse_ddl("a: INT, `two words` String").names == ["a", "two words"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("city strng", "unknown type 'strng'; did you mean 'string'?"),
        ("city quux", "(types: boolean,"),
        ("city", "expected a type, found the end"),
        ("", "expected a column's name, found the end"),
        ("a int b int", "expected a comma or the end, found 'b'"),
        ("a int, a string", "has column 'a' twice"),
        ("a array<int", "expected '>', found the end"),
        ("a decimal(x)", "expected a number, found 'x'"),
        ("a int; b int", "';' does not belong into a schema"),
        ("a array int", "expected '<', found 'int'"),
    ],
)
def test_what_is_not_understood_is_told_with_its_place(text, words):
    with pytest.raises(ValueError) as caught:
        parse_ddl(text)
    assert words in str(caught.value) and repr(text) in str(caught.value)
