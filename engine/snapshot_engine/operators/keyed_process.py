"""Process functions on keyed streams: record by record, or all rows of a key in a batch at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import repeat
from types import GeneratorType
from typing import Any

import numpy as np
import pyarrow as pa

from snapshot_engine.operators.event_times import event_times
from snapshot_engine.operators.fitting import fit_batch
from snapshot_engine.operators.function_context import close_function, open_function
from snapshot_engine.operators.functions import (
    BatchKeyedProcessFunction,
    KeyedProcessFunction,
    RoundListener,
    TimeDomain,
)
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.keyed_operator import PortionedOperator
from snapshot_engine.operators.operator import Data, OperatorContext
from snapshot_engine.operators.process_context import CallContext, Emissions
from snapshot_engine.operators.records import needs_times, to_arrow, to_records
from snapshot_engine.operators.stream_type import HIDDEN_KEY, StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.protocol.elements import MAX_WATERMARK
from snapshot_engine.state.cells import Cells, CurrentKey
from snapshot_engine.state.record_keys import Key
from snapshot_engine.state.timers import KeyTimers, TimerQueue

EVENT_TIMERS = "timers:event"
PROCESSING_TIMERS = "timers:processing"
ROUND_TIMERS = "timers:round"


class TimedOperator(PortionedOperator):
    """Keyed state, timers of both kinds, and a user's function with `on_timer`."""

    def __init__(self, function: Any, reader: KeyReader, output: StreamType) -> None:
        super().__init__(reader)
        self.function = function
        self.type = output
        self.current = CurrentKey()

    def open_state(self, context: OperatorContext) -> None:
        self._event = TimerQueue(self.state, EVENT_TIMERS)
        self._processing = TimerQueue(self.state, PROCESSING_TIMERS)
        self.emissions = Emissions(self.name, keeps_times=needs_times(self.type))
        self._rounds = TimerQueue(self.state, ROUND_TIMERS) if tells_rounds(self.function) else None
        self._timers = KeyTimers(self._event, self._processing, self.current, self._rounds)
        self.context = CallContext(self.current, self.reader, self._timers, self.emissions, context.clock)
        self.context.current_watermark = self.watermark
        open_function(self.function, context, Cells(self.state, self.current))

    def close(self) -> None:
        close_function(self.function)

    def flush(self) -> None:
        self.emissions.flush(self.output)

    def on_watermark(self, timestamp: int) -> None:
        self.begin(self._pass(timestamp))

    def _pass(self, timestamp: int) -> Iterator[None]:
        self.watermark = self.context.current_watermark = timestamp
        ended = timestamp == MAX_WATERMARK
        yield from self._fire(self._event.due_at_the_end() if ended else self._event.due(timestamp), "event")
        self.output.watermark(timestamp)

    def next_deadline(self) -> int | None:
        return self._processing.next_time()

    def on_deadline(self, now: int) -> None:
        self.begin(self._fire(self._processing.due(now), "processing"))

    @property
    def has_timers(self) -> bool:
        return self._processing.next_time() is not None

    def on_round_end(self, round: int) -> None:
        self.begin(self._end_round(round))

    def _end_round(self, round: int) -> Iterator[None]:
        """Keys that asked for it are told once: what was told before a snapshot is in no snapshot any more."""
        self._timers.round = round + 1
        if self._rounds is not None:
            for _, key in self._rounds.due(round):
                self.current.key = key
                self.context.timestamp = None
                try:
                    self.take(self.function.on_round_end(round, self.context))
                    self.emissions.stamp(self.context.emitted_time())
                except Exception as error:
                    told = f"on_round_end({round}) for key {self.context.current_key!r:.100}"
                    raise UserFunctionError(self.name, told, error, has_record=False) from error
                if self.emissions.full:
                    self.flush()
                yield
            self.flush()
        self.output.round_end(round)

    def _fire(self, due: Iterator[tuple[int, Key]], domain: TimeDomain) -> Iterator[None]:
        context = self.context
        context.time_domain = domain
        for timestamp, key in due:
            self.current.key = key
            context.timestamp = timestamp if domain == "event" else None
            try:
                self.take(self.function.on_timer(timestamp, context))
                self.emissions.stamp(context.emitted_time())
            except Exception as error:
                told = f"on_timer({timestamp}) for key {context.current_key!r:.100}"
                raise UserFunctionError(self.name, told, error, has_record=False) from error
            if self.emissions.full:
                self.flush()
            yield
        context.time_domain = None
        self.flush()

    def take(self, results: Any) -> None:
        """What a user's function returned or yields: any number of results."""
        if results is not None:
            self.emissions.values.extend(_several(results))

    def process_records(self, data: Data, type_: StreamType, reader: KeyReader, fn: Callable[..., Any]) -> None:
        """Call `fn` for every record, with its key current."""
        self.get_through()
        records = to_records(data, type_)
        keys = reader.of(data, records)
        times: Iterable[int | None] = repeat(None) if records.timestamps is None else records.timestamps.tolist()
        current, context, emissions = self.current, self.context, self.emissions
        values, stamps = emissions.values, emissions.times
        record: Any = None
        try:
            for record, current.key, context.timestamp in zip(records.values, keys, times, strict=False):
                results = fn(record, context)
                if results is not None:
                    values.extend(results if type(results) in _PLURAL else _several(results))
                if len(stamps) < len(values) and emissions.keeps_times:
                    emissions.stamp(context.emitted_time())
        except Exception as error:
            told = f"{fn.__name__}() for key {context.current_key!r:.100}"
            raise UserFunctionError(self.name, told, error, record, has_record=True) from error
        self.flush()


def tells_rounds(function: object) -> bool:
    """Whether a process function has an `on_round_end` of its own."""
    own = getattr(type(function), "on_round_end", None)
    return own is not None and own is not RoundListener.on_round_end


_PLURAL = (list, GeneratorType)


def _several(results: Any) -> Iterable[Any]:
    """A single record is itself iterable, but is meant as one: better refused than taken apart."""
    if isinstance(results, dict | str | bytes) or hasattr(type(results), "_fields"):
        raise TypeError(
            f"a process function returned a single {type(results).__qualname__}: yield it, or return a list of records"
        )
    several: Iterable[Any] = results
    return several


class KeyedProcessOperator(TimedOperator):
    kind = "keyed-process"

    def __init__(
        self, function: KeyedProcessFunction, keys: Sequence[str], input: StreamType, output: StreamType
    ) -> None:
        super().__init__(function, KeyReader(keys, input), output)
        self.input = input

    def process(self, port: int, data: Data) -> None:
        self.process_records(data, self.input, self.reader, self.function.process)


class BatchKeyedProcessOperator(TimedOperator):
    """Rows are brought together by key once for each batch; the function sees slices of it."""

    kind = "keyed-process"

    def __init__(
        self, function: BatchKeyedProcessFunction, keys: Sequence[str], input: StreamType, output: StreamType
    ) -> None:
        super().__init__(function, KeyReader(keys, input), output)
        self.input = input

    def open_state(self, context: OperatorContext) -> None:
        super().open_state(context)
        self.emissions = _BatchEmissions(self.name, self.type)
        self.context._emissions = self.emissions

    def process(self, port: int, data: Data) -> None:
        self.get_through()
        batch = to_arrow(data, self.input)
        ordered, keys, bounds = _by_key(batch, self.reader.of_batch(batch))
        latest = None
        if self.input.event_time is not None:
            latest = np.maximum.reduceat(event_times(ordered, self.input.event_time), bounds[:-1]).tolist()
        shown = ordered.drop_columns([HIDDEN_KEY]) if HIDDEN_KEY in ordered.schema.names else ordered
        for number, key in enumerate(keys):
            self.current.key = key
            self.context.timestamp = None if latest is None else latest[number]
            rows = shown.slice(bounds[number], bounds[number + 1] - bounds[number])
            try:
                self.take(self.function.process(rows, self.context))
            except Exception as error:
                told = f"process() for key {self.context.current_key!r:.100} and {rows.num_rows} rows"
                raise UserFunctionError(self.name, told, error, has_record=False) from error
        self.flush()

    def take(self, results: Any) -> None:
        if results is not None:
            self.emissions.values.extend((results,) if isinstance(results, pa.RecordBatch) else results)


class _BatchEmissions(Emissions):
    """Batches on their way out: of one batch in, one batch out."""

    def __init__(self, producer: str, type_: StreamType) -> None:
        super().__init__(producer, keeps_times=False)
        self._schema = type_.schema

    def flush(self, output: Any) -> None:
        if self.values:
            batches = [fit_batch(batch, self._schema, self._producer) for batch in self.values]
            self.values = []
            for batch in pa.Table.from_batches(batches, self._schema).combine_chunks().to_batches():
                output.emit(batch)
        sides, self._sides = self._sides, {}
        for tag, (batches, _) in sides.items():
            for batch in batches:
                output.emit_side(tag, batch)


def _by_key(batch: pa.RecordBatch, keys: list[Key]) -> tuple[pa.RecordBatch, list[Key], list[int]]:
    """The rows by key, in the order in which the keys came; the keys; and where the rows of each begin and end."""
    numbers: dict[Key, int] = {}
    codes = np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)
    if len(numbers) <= 1:
        return batch, list(numbers), [0, len(keys)][: len(numbers) + 1]
    order = np.argsort(codes, kind="stable")
    bounds = [0, *np.cumsum(np.bincount(codes)).tolist()]
    return batch.take(pa.array(order)), list(numbers), bounds
