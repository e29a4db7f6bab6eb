"""What each windowed operator is: how it is made, and the type of its output. See transformations.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from snapshot_engine.api.output_types import with_hidden_time
from snapshot_engine.api.schemas import SchemaLike, returned_schema, to_schema
from snapshot_engine.api.stateful import aggregated_columns, without_hidden_key
from snapshot_engine.api.transformations import refuse_unkeyed, require_callable
from snapshot_engine.api.windows import Window, shape_of
from snapshot_engine.graph.columns import keep_columns
from snapshot_engine.graph.logical import Step
from snapshot_engine.operators.aggregates import Aggregate
from snapshot_engine.operators.functions import AggregateFunction, ProcessWindowFunction
from snapshot_engine.operators.operator import Operator
from snapshot_engine.operators.stream_type import HIDDEN_TIME, RECORDS, EventTime, StreamType
from snapshot_engine.operators.windows import WINDOW_END, WINDOW_START, SessionWindow, WindowShape

if TYPE_CHECKING:
    from snapshot_engine.operators.combining import Combining

ON_WATERMARKS = "its output comes with watermarks"

FunctionKind = Literal["reduce", "aggregate", "process"]


@dataclass(frozen=True)
class WindowSpec:
    """A window that can be planned: keyed, with event time."""

    keys: tuple[str, ...]
    shape: WindowShape
    input: StreamType
    lateness_ms: int
    late_tag: str | None

    def late_outputs(self) -> Mapping[str, StreamType]:
        return {} if self.late_tag is None else {self.late_tag: without_hidden_key(self.input)}


def check_window(
    window: Window,
    keys: tuple[str, ...],
    input: StreamType,
    lateness_ms: int,
    late_tag: str | None,
    lost: str | None,
) -> WindowSpec:
    if not keys:
        refuse_unkeyed(input)
    if input.event_time is None:
        raise ValueError(
            "windows need event time, and the stream has none: "
            + (lost or 'call with_watermark("column", delay="2s") before key_by')
        )
    return WindowSpec(keys, shape_of(window), input, lateness_ms, late_tag)


def aggregate_columns(aggregates: Mapping[str, Aggregate], spec: WindowSpec) -> Step:
    assert spec.input.event_time is not None
    needs = (*aggregated_columns(aggregates, spec.keys, spec.input, "aggregate"), spec.input.event_time.column)
    for name in (WINDOW_START, WINDOW_END):
        if name in spec.keys or name in aggregates:
            raise ValueError(f"the result of a window has a column {name!r} of its own; rename yours")
    # Late rows go out as they came in, so nothing may be left out of them.
    pruned = spec.input if spec.late_tag else spec.input.with_schema(keep_columns(spec.input.schema, needs))
    factory, output = _windowed_aggregate(aggregates, spec, pruned)
    return Step(
        factory,
        output,
        stateful=True,
        nondeterminism=ON_WATERMARKS,
        side_outputs=spec.late_outputs(),
        needs=None if spec.late_tag else needs,
        combining=_combining(aggregates, spec, pruned),
    )


def _combining(aggregates: Mapping[str, Aggregate], spec: WindowSpec, input: StreamType) -> Combining | None:
    """Sessions depend on the time of every row, and late rows go out as they came in."""
    if isinstance(spec.shape, SessionWindow) or spec.late_tag is not None:
        return None
    from snapshot_engine.operators.combining import combining_for

    return combining_for(spec.keys, spec.shape, aggregates, input)


def _windowed_aggregate(
    aggregates: Mapping[str, Aggregate], spec: WindowSpec, input: StreamType
) -> tuple[Callable[[], Operator], StreamType]:
    if isinstance(spec.shape, SessionWindow):
        from snapshot_engine.operators import session_aggregate

        output = session_aggregate.output_type(spec.keys, aggregates, input)
        return partial(
            session_aggregate.SessionAggregateOperator,
            keys=spec.keys,
            window=spec.shape,
            aggregates=dict(aggregates),
            input=input,
            output=output,
            allowed_lateness_ms=spec.lateness_ms,
            late_tag=spec.late_tag,
        ), output
    from snapshot_engine.operators import window_aggregate

    output = window_aggregate.output_type(spec.keys, aggregates, input)
    return partial(
        window_aggregate.WindowAggregateOperator,
        keys=spec.keys,
        window=spec.shape,
        aggregates=dict(aggregates),
        input=input,
        output=output,
        allowed_lateness_ms=spec.lateness_ms,
        late_tag=spec.late_tag,
    ), output


def reduce_records(fn: Callable[[Any, Any], Any], spec: WindowSpec) -> Step:
    require_callable(fn, "reduce")
    output = without_hidden_key(spec.input)
    columns = None if output.plain else output.schema
    return _over_records("reduce", fn, columns, spec)


def aggregate_with(function: Any, schema: SchemaLike | None, spec: WindowSpec) -> Step:
    _require_instance(function, AggregateFunction, "aggregate_with")
    columns = to_schema(schema) if schema is not None else returned_schema(function.get_result)
    if isinstance(spec.shape, SessionWindow) and type(function).merge is AggregateFunction.merge:
        raise ValueError(f"{type(function).__name__} needs merge() to be used in session windows")
    return _over_records("aggregate", function, columns, spec)


def process_window(function: Any, schema: SchemaLike | None, spec: WindowSpec) -> Step:
    _require_instance(function, ProcessWindowFunction, "process")
    columns = to_schema(schema) if schema is not None else returned_schema(function.process, many=True)
    return _over_records("process", function, columns, spec)


def _over_records(kind: FunctionKind, function: Any, columns: pa.Schema | None, spec: WindowSpec) -> Step:
    from snapshot_engine.operators.window_process import WindowProcessOperator

    # The result's time is the window's last millisecond, whatever times its records had: else it would be late.
    output = StreamType(with_hidden_time(RECORDS if columns is None else columns), EventTime(HIDDEN_TIME))
    factory = partial(
        WindowProcessOperator,
        function_kind=kind,
        function=function,
        keys=spec.keys,
        window=spec.shape,
        input=spec.input,
        output=output,
        allowed_lateness_ms=spec.lateness_ms,
        late_tag=spec.late_tag,
    )
    return Step(
        factory,
        output,
        stateful=True,
        nondeterminism=ON_WATERMARKS,
        side_outputs=spec.late_outputs(),
        any_side_output=kind == "process",
    )


def _require_instance(function: Any, base: type, method: str) -> None:
    if isinstance(function, type) and issubclass(function, base):
        raise TypeError(f"{method} needs an object: write {function.__name__}(...)")
    if not isinstance(function, base):
        raise TypeError(f"{method} needs an object of a subclass of {base.__name__}, not {function!r}")
