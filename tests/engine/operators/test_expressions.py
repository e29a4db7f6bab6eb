from __future__ import annotations

import datetime as dt
import pickle
import subprocess
import sys
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from polars import col

from snapshot_engine.operators.expressions import (
    ExpressionError,
    FilterExprOperator,
    SelectOperator,
    WithColumnsOperator,
    output_schema,
    require_condition,
)
from snapshot_engine.operators.records import Records
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime, StreamType

SCHEMA = pa.schema(
    [("price", pa.float64()), ("city", pa.string()), ("n", pa.int32()), ("at", pa.timestamp("ms", "UTC"))]
)
INPUT = StreamType(SCHEMA, EventTime("at"))
TIMES = [dt.datetime(2024, 1, 1, hour, tzinfo=dt.UTC) for hour in range(3)]
BATCH = pa.record_batch(
    {"price": [1.0, 2.0, None], "city": ["Rome", None, "Oslo"], "n": [1, 2, 3], "at": TIMES}, schema=SCHEMA
)


def run(bench: Any, kind: Any, exprs: Any, data: Any = BATCH) -> pa.RecordBatch:
    output = StreamType(output_schema(exprs, INPUT, keep=kind is WithColumnsOperator))
    operator = pickle.loads(pickle.dumps(kind(exprs, INPUT, output)))
    collected = bench.open(operator, output)
    operator.process(0, data)
    (batch,) = collected.data
    assert batch.schema == output.schema
    return batch


def test_select_gives_only_the_columns_asked_for_in_order(bench: Any) -> None:
    batch = run(bench, SelectOperator, [col("n"), (col("price") * 2).alias("double"), col("city").alias("town")])
    assert batch.schema.names == ["n", "double", "town"]
    assert batch.to_pylist()[0] == {"n": 1, "double": 2.0, "town": "Rome"}


def test_mere_columns_are_handed_on_without_a_copy(bench: Any) -> None:
    batch = run(bench, SelectOperator, [col("n"), col("city").alias("town"), col("price") + 1])
    assert batch.column("n").buffers()[1].address == BATCH.column("n").buffers()[1].address
    assert batch.column("town").buffers()[2].address == BATCH.column("city").buffers()[2].address


def test_with_columns_replaces_in_place_and_appends(bench: Any) -> None:
    batch = run(bench, WithColumnsOperator, [col("n") * 10, col("city").str.to_uppercase().alias("CITY")])
    assert batch.schema.names == ["price", "city", "n", "at", "CITY"]
    assert batch.column("n").to_pylist() == [10, 20, 30]
    assert batch.schema.field("CITY").type == pa.string()


def test_constants_are_repeated_for_every_row(bench: Any) -> None:
    assert run(bench, SelectOperator, [pl.lit(7).alias("seven")]).column(0).to_pylist() == [7, 7, 7]


def test_selectors_and_several_columns_at_once(bench: Any) -> None:
    batch = run(bench, SelectOperator, [pl.selectors.numeric() * 2, col("at").dt.truncate("1d").alias("day")])
    assert batch.schema.names == ["price", "n", "day"]


def test_types_are_those_of_arrow_users(bench: Any) -> None:
    batch = run(bench, SelectOperator, [pl.struct("city", "n").alias("s"), pl.concat_list("n", "n").alias("l")])
    assert batch.schema.field("s").type == pa.struct([("city", pa.string()), ("n", pa.int32())])
    assert batch.schema.field("l").type == pa.list_(pa.int32())


def test_records_are_taken_as_well_as_batches(bench: Any) -> None:
    records = Records([(1.0, "x", 1, TIMES[0])])
    assert run(bench, SelectOperator, [col("price") + col("n")], records).to_pylist() == [{"price": 2.0}]


def test_a_filter_keeps_the_rows_that_are_true_and_drops_null(bench: Any) -> None:
    operator = FilterExprOperator(col("price") > 1, INPUT)
    collected = bench.open(operator, INPUT)
    operator.process(0, BATCH)
    assert collected.data[0].column("n").to_pylist() == [2]
    assert collected.data[0].schema == SCHEMA


@pytest.mark.parametrize("expr", [col("prize"), (col("price") + col("prize")).alias("x"), col("prize") > 1])
def test_a_missing_column_is_told_with_the_columns_there_are(expr: Any) -> None:
    hidden = StreamType(SCHEMA.append(pa.field(HIDDEN_TIME, pa.int64())))
    with pytest.raises(ExpressionError, match=r"^there is no column 'prize'; the columns are price, city, n, at$"):
        output_schema([expr], hidden, keep=True)


def test_an_operation_on_the_wrong_type_is_told_at_planning() -> None:
    with pytest.raises(ExpressionError, match=r"(?s)str.*the columns are"):
        output_schema([col("city") * 2], INPUT, keep=False)


@pytest.mark.parametrize(
    "expr",
    [
        col("price").sum(),
        col("price").shift(1),
        col("price").cum_sum(),
        col("price") / col("price").sum(),
        col("price").drop_nulls(),
        col("price").sum().over("city"),
        pl.len(),
    ],
    ids=str,
)
def test_what_needs_more_than_its_row_is_refused(expr: Any) -> None:
    with pytest.raises(ExpressionError, match="not computed row by row"):
        output_schema([expr], INPUT, keep=False)


@pytest.mark.parametrize(
    "expr",
    [
        pl.when(col("n") > 1).then(pl.lit("big")).otherwise(pl.lit("small")),
        col("city").is_in(["Rome"]),
        col("at").dt.hour().cast(pl.Int64),
        col("n").fill_null(0).clip(0, 5),
        col("city").str.contains("o").not_(),
        pl.coalesce("city", pl.lit("?")),
        col("n").map_batches(lambda n: n + 1, return_dtype=pl.Int32),
        pl.all(),
    ],
    ids=str,
)
def test_what_needs_only_its_row_is_allowed(expr: Any) -> None:
    assert len(output_schema([expr], INPUT, keep=False)) >= 1


def test_two_results_of_one_name_are_refused() -> None:
    with pytest.raises(ExpressionError, match="two expressions are called 'n'"):
        output_schema([col("n"), col("n") + 1], INPUT, keep=False)


def test_a_condition_must_be_boolean() -> None:
    require_condition(col("n") > 1, INPUT)
    with pytest.raises(ExpressionError, match="is int32, not boolean"):
        require_condition(col("n") + 1, INPUT)


def test_an_error_on_data_names_the_operator(bench: Any) -> None:
    exprs = [col("city").cast(pl.Int64)]
    operator = SelectOperator(exprs, INPUT, StreamType(output_schema(exprs, INPUT, keep=False)))
    bench.open(operator)
    with pytest.raises(ExpressionError, match="operator 'the operator'"):
        operator.process(0, BATCH)


def test_the_module_does_not_import_polars() -> None:
    code = "import sys, snapshot_engine.operators.expressions; sys.exit('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
