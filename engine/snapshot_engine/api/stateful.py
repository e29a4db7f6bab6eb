"""What each keyed operator is: how it is made, and the type of its output. See transformations.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pyarrow as pa

from snapshot_engine.api.output_types import columns_output, records_output
from snapshot_engine.api.schemas import SchemaLike, returned_schema, to_schema
from snapshot_engine.api.transformations import require_callable, require_columnar
from snapshot_engine.graph.columns import keep_columns, require_columns
from snapshot_engine.graph.logical import Step
from snapshot_engine.operators.aggregates import Aggregate, Avg, Count, Sum
from snapshot_engine.operators.functions import BatchKeyedProcessFunction, KeyedProcessFunction
from snapshot_engine.operators.stream_type import HIDDEN_KEY, StreamType

TIMERS = "it sets timers"
BY_BATCH = "it puts out once for each batch, and batches are cut differently each time"


def extract_key(fn: Callable[[Any], Any], input: StreamType) -> Step:
    from snapshot_engine.operators.key_extract import KeyExtractOperator

    keyed_before = HIDDEN_KEY in input.schema.names
    output = input if keyed_before else input.with_schema(input.schema.append(pa.field(HIDDEN_KEY, pa.binary())))
    return Step(partial(KeyExtractOperator, fn=fn, input=input, output=output), output)


def reduce_records(fn: Callable[[Any, Any], Any], keys: tuple[str, ...], input: StreamType) -> Step:
    from snapshot_engine.operators.reduce import ReduceOperator
    from snapshot_engine.operators.row_reduce import RowReduceOperator, keeps_columns

    require_callable(fn, "reduce")
    output = without_hidden_key(input)
    operator = RowReduceOperator if keeps_columns(keys, input) else ReduceOperator
    return Step(partial(operator, fn=fn, keys=keys, input=input, output=output), output, stateful=True)


def aggregate(aggregates: Mapping[str, Aggregate], keys: tuple[str, ...], input: StreamType) -> Step:
    from snapshot_engine.operators.keyed_aggregate import KeyedAggregateOperator, output_type

    needs = aggregated_columns(aggregates, keys, input, "aggregate")
    pruned = StreamType(keep_columns(input.schema, needs))
    output = output_type(keys, aggregates, pruned)
    factory = partial(KeyedAggregateOperator, keys=keys, aggregates=dict(aggregates), input=pruned, output=output)
    return Step(factory, output, stateful=True, nondeterminism=BY_BATCH, needs=needs)


def process(function: Any, keys: tuple[str, ...], schema: SchemaLike | None, input: StreamType) -> Step:
    if isinstance(function, type):
        raise TypeError(f"process needs an object: write {function.__name__}(...)")
    if isinstance(function, BatchKeyedProcessFunction):
        return _process_batches(function, keys, schema, input)
    if not isinstance(function, KeyedProcessFunction):
        raise TypeError(f"process needs a KeyedProcessFunction or BatchKeyedProcessFunction, not {function!r}")
    from snapshot_engine.operators.keyed_process import KeyedProcessOperator

    columns = to_schema(schema) if schema is not None else returned_schema(function.process, many=True)
    output = records_output(columns, input.event_time)
    factory = partial(KeyedProcessOperator, function=function, keys=keys, input=input, output=output)
    timers = TIMERS if overrides(function, KeyedProcessFunction, "on_timer") else None
    return Step(factory, output, stateful=True, nondeterminism=timers, any_side_output=True)


def _process_batches(
    function: BatchKeyedProcessFunction, keys: tuple[str, ...], schema: SchemaLike | None, input: StreamType
) -> Step:
    from snapshot_engine.operators.keyed_process import BatchKeyedProcessOperator

    require_columnar(input, "a BatchKeyedProcessFunction")
    columns = without_hidden_key(input).schema if schema is None else to_schema(schema)
    output = columns_output(columns, input.event_time)
    factory = partial(BatchKeyedProcessOperator, function=function, keys=keys, input=input, output=output)
    return Step(factory, output, stateful=True, nondeterminism=BY_BATCH, any_side_output=True)


def aggregated_columns(
    aggregates: Mapping[str, Aggregate], keys: tuple[str, ...], input: StreamType, method: str
) -> tuple[str, ...]:
    """The columns that keyed aggregates look at, besides event time."""
    require_columnar(input, method)
    if HIDDEN_KEY in keys:
        raise ValueError(
            f"{method} puts the key out as columns, and a key worked out by a function has none: "
            'add it as a column first, with_columns(key=...).key_by("key")'
        )
    if not aggregates:
        raise ValueError(f'{method} needs at least one aggregate: {method}(rows=Count(), total=Sum("price"))')
    wrong = [name for name, value in aggregates.items() if not isinstance(value, Aggregate)]
    if wrong:
        raise TypeError(f'{wrong[0]}={aggregates[wrong[0]]!r} is not an aggregate: Count(), Sum("price"), Min, Max, …')
    clash = sorted(set(aggregates) & set(keys))
    if clash:
        raise ValueError(f"{method} calls a result {clash[0]!r} like a key column; give it another name")
    used = [value.column for value in aggregates.values() if not isinstance(value, Count)]
    require_columns(input.schema, used)
    for name, value in aggregates.items():
        _require_number(name, value, input.schema)
    return tuple(dict.fromkeys((*keys, *used)))


def _require_number(name: str, aggregate: Aggregate, schema: pa.Schema) -> None:
    if not isinstance(aggregate, Sum | Avg):
        return
    type = schema.field(aggregate.column).type
    if not (pa.types.is_integer(type) or pa.types.is_floating(type) or pa.types.is_decimal(type)):
        raise ValueError(f"{name}={aggregate!r}: column {aggregate.column!r} is {type}, not a number")


def without_hidden_key(type: StreamType) -> StreamType:
    """What an operator puts out again of what it got: the key function's bytes were for the edge only."""
    if HIDDEN_KEY not in type.schema.names:
        return type
    return type.with_schema(keep_columns(type.schema, [name for name in type.schema.names if name != HIDDEN_KEY]))


def overrides(function: object, base: type, method: str) -> bool:
    return getattr(type(function), method) is not getattr(base, method)
