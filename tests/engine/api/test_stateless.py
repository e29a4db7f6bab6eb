"""map, filter, flat_map, batches and column expressions: types, names and problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

from snapshot_engine.api import Environment, col, lit
from snapshot_engine.connectors.parquet_sink import ParquetSink
from snapshot_engine.operators.expressions import FilterExprOperator, SelectOperator, WithColumnsOperator
from snapshot_engine.operators.stateless import (
    ArrowBatchOperator,
    FilterOperator,
    FlatMapOperator,
    MapOperator,
    PandasBatchOperator,
)
from snapshot_engine.operators.stream_type import HIDDEN_TIME, RECORDS, EventTime, StreamType


@dataclass
class Order:
    city: str
    amount: int


def parse(record) -> Order:
    return Order(record.city, record.amount)


def parse_all(record) -> Iterator[Order]:
    yield parse(record)


def same(value):
    return value


def type_of(stream):
    return stream._end.type


def test_map_to_a_dataclass_has_its_columns(orders, operator_named):
    stream = orders.map(parse)
    assert type_of(stream).schema == pa.schema({"city": pa.string(), "amount": pa.int64()})
    assert isinstance(operator_named("map parse", stream), MapOperator)


def test_map_without_a_schema_gives_plain_records(orders):
    assert type_of(orders.map(same)) == StreamType(RECORDS)
    assert type_of(orders.map(same)).plain


def test_map_with_a_schema_as_text(orders):
    assert type_of(orders.map(same, schema="a int, b string")).schema.names == ["a", "b"]


def test_flat_map_reads_the_element_of_its_annotation(orders, operator_named):
    stream = orders.flat_map(parse_all)
    assert type_of(stream).schema.names == ["city", "amount"]
    assert isinstance(operator_named("flat_map parse_all", stream), FlatMapOperator)


def test_filter_keeps_the_type(timed, operator_named):
    stream = timed.filter(same)
    assert type_of(stream) == type_of(timed)
    assert isinstance(operator_named("filter same", stream), FilterOperator)


def test_filter_takes_an_expression_too(orders, operator_named):
    stream = orders.filter(col("amount") > 3)
    assert isinstance(operator_named("where", stream), FilterExprOperator)


def test_map_in_arrow_and_in_pandas(timed, operator_named):
    kept = timed.map_in_arrow(same)
    assert type_of(kept) == type_of(timed)
    changed = kept.map_in_pandas(same, schema="ts timestamp, total double").name("totals")
    assert type_of(changed).event_time == EventTime("ts")
    assert isinstance(operator_named("totals", changed), PandasBatchOperator)
    assert isinstance(kept.env.graph.nodes[2].step.factory(), ArrowBatchOperator)


def test_event_time_goes_on_hidden_where_its_column_is_gone(timed):
    assert type_of(timed.map(parse)).event_time == EventTime(HIDDEN_TIME)
    assert type_of(timed.map(parse)).schema.names == ["city", "amount", HIDDEN_TIME]
    plain = type_of(timed.map(same))
    assert plain.plain and plain.event_time == EventTime(HIDDEN_TIME)


def test_event_time_stays_in_its_column_where_that_is_kept(timed):
    stream = timed.map(same, schema="city string, ts timestamp")
    assert type_of(stream).event_time == EventTime("ts")
    assert HIDDEN_TIME not in type_of(stream).schema.names


def test_select_with_names_expressions_and_constants(orders, operator_named):
    stream = orders.select("city", total=col("amount") * col("price"), one=lit(1), text="x")
    assert type_of(stream).schema.names == ["city", "total", "one", "text"]
    assert type_of(stream).schema.field("total").type == pa.float64()
    assert isinstance(operator_named("select", stream), SelectOperator)


def test_select_keeps_a_hidden_event_time(orders):
    timed = orders.with_watermark(lambda record: 0)
    assert type_of(timed.select("city")).event_time == EventTime(HIDDEN_TIME)


def test_select_of_all_columns_does_not_double_the_hidden_ones(orders):
    import polars as pl

    timed = orders.with_watermark(lambda record: 0)
    assert type_of(timed.select(pl.all())).schema.names == [*type_of(orders).schema.names, HIDDEN_TIME]


def test_with_columns_adds_and_replaces(timed, operator_named):
    stream = timed.with_columns(col("city").str.to_uppercase(), total=col("amount") + 1)
    assert type_of(stream).schema.names == ["city", "amount", "price", "ts", "total"]
    assert type_of(stream).event_time == EventTime("ts")
    assert isinstance(operator_named("with_columns", stream), WithColumnsOperator)


def test_where_reads_sql(orders, operator_named):
    assert isinstance(operator_named("where", orders.where("amount > 3 AND city = 'Berlin'")), FilterExprOperator)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda s: s.select("ctiy"), "'select': the stream has no column 'ctiy'; did you mean 'city'?"),
        (lambda s: s.select(x=col("amuont") + 1), "no column 'amuont'; did you mean 'amount'?"),
        (lambda s: s.with_columns(x=col("nope")), "(columns: city, amount, price, ts)"),
        (lambda s: s.where(col("nope") > 1), "'where': the stream has no column 'nope'"),
        (lambda s: s.where("nope > 1"), "no column 'nope'"),
        (lambda s: s.where(col("amount")), "not boolean"),
        (lambda s: s.where(42), "where needs an expression"),
        (lambda s: s.select(), "no columns given"),
        (lambda s: s.select(42), "42 is neither a column nor an expression"),
        (lambda s: s.select(x=col("city").cum_count()), "not computed row by row"),
        (lambda s: s.map(42), "map needs a function, not 42"),
        (lambda s: s.flat_map(None), "flat_map needs a function"),
        (lambda s: s.map(same, schema="a strng"), "did you mean 'string'?"),
        (lambda s: s.map(same).map_in_arrow(same), "map_in_arrow works on columns, but the records"),
        (lambda s: s.map(same).select("x"), "select works on columns"),
    ],
)
def test_what_cannot_work_is_told_with_the_operator_and_its_line(orders, refused, build, words):
    problem = refused(build(orders))
    assert words in problem and "test_stateless.py:" in problem


def test_a_line_inside_a_long_expression_is_that_of_its_own_call(orders, refused):
    stream = (
        orders.filter(same)
        .select("ctiy")
        .filter(same)
    )  # fmt: skip
    line = test_a_line_inside_a_long_expression_is_that_of_its_own_call.__code__.co_firstlineno + 3
    assert f"test_stateless.py:{line}: 'select'" in refused(stream)


def test_names_come_from_the_functions(orders, planned):
    class Clean:
        def __call__(self, record):
            return record

    graph = planned(orders.map(parse).filter(Clean()).map(lambda record: record))
    assert graph.vertices["orders"].name == "orders -> map parse -> filter Clean -> map -> out0"


@pytest.mark.parametrize("method", ["name", "uid", "parallelism"])
def test_settings_must_follow_an_operator(orders, refused, method):
    value = 2 if method == "parallelism" else "x"
    problem = refused(getattr(orders.rebalance(), method)(value))
    assert f"'{method}': it does not follow an operator" in problem


def test_sources_that_are_none(env: Environment, refused):
    assert "is not a Source: it has no bounded, schema" in refused(env.from_source(object()))


def test_a_class_in_place_of_a_source(env: Environment, source, refused):
    assert "is a class: make an object of it" in refused(env.from_source(source))


def test_sinks_that_are_none(orders, refused):
    orders.sink_to(object(), name="nothing")
    problem = refused()
    assert "'nothing'" in problem and "is not a Sink: it has no exactly_once, open" in problem


def test_a_sink_may_refuse_a_schema_while_planning(orders, sink, refused):
    class Picky(sink):
        def check(self, schema):
            raise ValueError(f"cannot write {schema.names}")

    orders.sink_to(Picky())
    assert "cannot write ['city', 'amount', 'price', 'ts']" in refused()


def test_print_and_collect_are_sinks(orders, planned, tmp_path):
    orders.print("> ").uid("screen")
    end = orders.collect(tmp_path / "rows").uid("rows")
    graph = planned()
    assert {"print", "collect"} <= {vertex.operators[-1].name for vertex in graph.vertices.values()}
    assert end.sink.read_committed() == []
    assert any("'print'" in warning and "this sink is not" in warning for warning in graph.warnings)


def test_the_arguments_of_the_manifest_cannot_be_changed():
    env = Environment(args={"city": "Berlin"})
    with pytest.raises(TypeError):
        env.args["city"] = "Bonn"  # type: ignore[index]


def test_a_parquet_sink_without_columns_is_refused_while_planning(orders, refused, tmp_path):
    orders.map(same).sink_to(ParquetSink(tmp_path / "out"))
    assert "a Parquet sink needs columns" in refused()
