"""What each operator without state is: how it is made, and the type of its output.

Every function is called while planning with the type of the input; what it raises becomes a problem of the
operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from snapshot_engine.api.durations import DurationLike, milliseconds, positive_milliseconds
from snapshot_engine.api.output_types import columns_output, is_time, records_output, with_hidden_time
from snapshot_engine.api.schemas import SchemaLike, output_schema, to_schema
from snapshot_engine.graph.columns import HIDDEN, require_columns
from snapshot_engine.graph.logical import Step
from snapshot_engine.operators.stream_type import HIDDEN_TIME, EventTime, StreamType

if TYPE_CHECKING:
    import polars as pl


def map_records(fn: Callable[[Any], Any], schema: SchemaLike | None, input: StreamType) -> Step:
    from snapshot_engine.operators.stateless import MapOperator

    require_callable(fn, "map")
    output = records_output(output_schema(schema, fn), input.event_time)
    return Step(partial(MapOperator, fn=fn, input=input, output=output), output)


def filter_records(fn: Callable[[Any], Any], input: StreamType) -> Step:
    from snapshot_engine.operators.stateless import FilterOperator

    return Step(partial(FilterOperator, fn=fn, input=input), input)


def flat_map_records(fn: Callable[[Any], Any], schema: SchemaLike | None, input: StreamType) -> Step:
    from snapshot_engine.operators.stateless import FlatMapOperator

    require_callable(fn, "flat_map")
    output = records_output(output_schema(schema, fn, many=True), input.event_time)
    return Step(partial(FlatMapOperator, fn=fn, input=input, output=output), output)


def map_arrow(fn: Callable[[Any], Any], schema: SchemaLike | None, input: StreamType) -> Step:
    from snapshot_engine.operators.stateless import ArrowBatchOperator

    output = _batch_output(fn, "map_in_arrow", schema, input)
    return Step(partial(ArrowBatchOperator, fn=fn, input=input, output=output), output)


def map_pandas(fn: Callable[[Any], Any], schema: SchemaLike | None, input: StreamType) -> Step:
    from snapshot_engine.operators.stateless import PandasBatchOperator

    output = _batch_output(fn, "map_in_pandas", schema, input)
    return Step(partial(PandasBatchOperator, fn=fn, input=input, output=output), output)


def _batch_output(fn: Callable[[Any], Any], method: str, schema: SchemaLike | None, input: StreamType) -> StreamType:
    require_callable(fn, method)
    require_columnar(input, method)
    return columns_output(input.schema if schema is None else to_schema(schema), input.event_time)


def select(columns: Sequence[Any], named: Mapping[str, Any], input: StreamType) -> Step:
    import polars as pl

    from snapshot_engine.operators.expressions import SelectOperator, output_schema

    require_columnar(input, "select")
    exprs = expressions(columns, named)
    require_known_columns(exprs, input)
    chosen = output_schema(exprs, input, keep=False).names
    exprs += [pl.col(name) for name in input.schema.names if name in HIDDEN and name not in chosen]
    output = columns_output(output_schema(exprs, input, keep=False), input.event_time)
    return Step(partial(SelectOperator, exprs=exprs, input=input, output=output), output)


def with_columns(columns: Sequence[Any], named: Mapping[str, Any], input: StreamType) -> Step:
    from snapshot_engine.operators.expressions import WithColumnsOperator, output_schema

    require_columnar(input, "with_columns")
    exprs = expressions(columns, named)
    require_known_columns(exprs, input)
    output = columns_output(output_schema(exprs, input, keep=True), input.event_time)
    return Step(partial(WithColumnsOperator, exprs=exprs, input=input, output=output), output)


def where(condition: pl.Expr | str, input: StreamType) -> Step:
    import polars as pl

    from snapshot_engine.operators.expressions import FilterExprOperator, require_condition

    require_columnar(input, "where")
    expr = pl.sql_expr(condition) if isinstance(condition, str) else condition
    if not isinstance(expr, pl.Expr):
        raise TypeError(f'where needs an expression such as col("price") > 100, not {condition!r}')
    require_known_columns([expr], input)
    require_condition(expr, input)
    return Step(partial(FilterExprOperator, expr=expr, input=input), input)


def expressions(columns: Sequence[Any], named: Mapping[str, Any]) -> list[pl.Expr]:
    """Column names become columns; a named value that is no expression becomes a constant."""
    import polars as pl

    exprs = [pl.col(column) if isinstance(column, str) else column for column in columns]
    wrong = [expr for expr in exprs if not isinstance(expr, pl.Expr)]
    if wrong:
        raise TypeError(f'{wrong[0]!r} is neither a column nor an expression such as col("price") * 2')
    if not exprs and not named:
        raise ValueError("no columns given")
    return exprs + [
        (value if isinstance(value, pl.Expr) else pl.lit(value)).alias(name) for name, value in named.items()
    ]


def require_known_columns(exprs: Sequence[pl.Expr], input: StreamType) -> None:
    """Selectors (`col("^a.*$")`) name what there is; everything else must be there."""
    named = [name for expr in exprs if not expr.meta.has_multiple_outputs() for name in expr.meta.root_names()]
    require_columns(input.schema, named)


def watermark(
    event_time: str | Callable[[Any], int],
    delay: DurationLike,
    idle_timeout: DurationLike | None,
    max_drift: DurationLike | None,
    input: StreamType,
) -> Step:
    from snapshot_engine.operators.watermarks import WatermarkOperator

    delay_ms = milliseconds(delay)
    idle_ms = None if idle_timeout is None else positive_milliseconds(idle_timeout, "idle_timeout")
    drift_ms = None if max_drift is None else positive_milliseconds(max_drift, "max_drift")
    if isinstance(event_time, str):
        time = EventTime(_time_column(event_time, input))
        output = StreamType(input.schema, time)
        extract = None
    else:
        require_callable(event_time, "with_watermark")
        time = EventTime(HIDDEN_TIME)
        output = StreamType(with_hidden_time(input.schema), time)
        extract = event_time
    factory = partial(
        WatermarkOperator,
        event_time=time,
        delay_ms=delay_ms,
        idle_timeout_ms=idle_ms,
        input=input,
        extract=extract,
        keeps_together=drift_ms is not None,
    )
    return Step(
        factory,
        output,
        stateful=True,
        uid_by_input=True,
        makes_watermarks=True,
        takes_silence_for_idle=idle_ms is not None,
        max_drift_ms=drift_ms,
    )


def _time_column(column: str, input: StreamType) -> str:
    if input.plain:
        raise ValueError(
            f"with_watermark({column!r}) needs a column, but the records have none: "
            "give a function of the record that returns epoch milliseconds, "
            "or give the operator before it a schema"
        )
    require_columns(input.schema, [column])
    if not is_time(input.schema.field(column).type):
        raise ValueError(
            f"event time column {column!r} is {input.schema.field(column).type}; "
            "it must be int64 (epoch milliseconds) or a timestamp: cast it where it is made"
            ' (in NumPy .astype("int64"))'
        )
    return column


def refuse_unkeyed(input: StreamType) -> NoReturn:  # noqa: ARG001
    raise ValueError("it keeps state, and state belongs to a key: call key_by(...) before it")


def require_callable(fn: object, method: str) -> None:
    if not callable(fn):
        raise TypeError(f"{method} needs a function, not {fn!r}")


def require_columnar(input: StreamType, method: str) -> None:
    if input.plain:
        raise ValueError(
            f"{method} works on columns, but the records before it have none: "
            'give that operator a schema, e.g. map(fn, schema="city string, amount double")'
        )
