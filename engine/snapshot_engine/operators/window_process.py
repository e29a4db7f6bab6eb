"""Windows over records, in any shape, with any function of the user's.

Results go out when the watermark has passed the end of the window, with the event time end - 1. A record that comes
later, but within the allowed lateness, makes the window's result go out again, once for each batch that had such
records. One that comes later still goes to the late output, or nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from snapshot_engine.operators.aligned_windows import AlignedWindows
from snapshot_engine.operators.function_context import close_function, open_function
from snapshot_engine.operators.functions import Window
from snapshot_engine.operators.key_reading import KeyReader
from snapshot_engine.operators.keyed_operator import PortionedOperator
from snapshot_engine.operators.operator import Data, OperatorContext
from snapshot_engine.operators.process_context import Emissions
from snapshot_engine.operators.records import Records, needs_times, to_records
from snapshot_engine.operators.session_windows import SessionWindows
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.operators.window_folds import FunctionKind, WindowCallContext, fold_of
from snapshot_engine.operators.window_storage import WindowStorage
from snapshot_engine.operators.windows import SessionWindow, WindowShape
from snapshot_engine.state.record_keys import Key


class WindowProcessOperator(PortionedOperator):
    kind = "window-process"

    def __init__(
        self,
        function_kind: FunctionKind,
        function: Any,
        keys: Sequence[str],
        window: WindowShape,
        input: StreamType,
        output: StreamType,
        allowed_lateness_ms: int = 0,
        late_tag: str | None = None,
    ) -> None:
        super().__init__(KeyReader(keys, input))
        if input.event_time is None:
            raise ValueError("windows need event time, and the stream has none")
        self.function_kind = function_kind
        self.function = function
        self.window = window
        self.input = input
        self.type = output
        self.allowed_lateness_ms = allowed_lateness_ms
        self.late_tag = late_tag

    def open_state(self, context: OperatorContext) -> None:
        open_function(self.function, context)
        self._fold = fold_of(self.function_kind, self.function, self.input, self.name)
        self._windows = self._open_windows()
        self._emissions = Emissions(self.name, keeps_times=needs_times(self.type))
        self._context = WindowCallContext(context.clock, self._emit_side)

    def _open_windows(self) -> WindowStorage:
        if isinstance(self.window, SessionWindow):
            return SessionWindows(self.window, self._fold, self.allowed_lateness_ms, self.state)
        return AlignedWindows(self.window, self._fold, self.allowed_lateness_ms, self.state)

    def close(self) -> None:
        close_function(self.function)

    def flush(self) -> None:
        self._emissions.flush(self.output)

    def process(self, port: int, data: Data) -> None:
        self.get_through()
        records = to_records(data, self.input)
        assert records.timestamps is not None
        keys = self.reader.of(data, records)
        try:
            late = self._windows.add(keys, records.values, records.timestamps, self.watermark)
        except Exception as error:
            record = records.values[self._windows.position]
            doing = f"the window's {self.function_kind} function"
            raise UserFunctionError(self.name, doing, error, record, has_record=True) from error
        if late:
            self._put_out_late(records, late)
        for key, window, kept in self._windows.again():
            self._put_out(key, window, kept)
        self.flush()

    def on_watermark(self, timestamp: int) -> None:
        self.begin(self._pass(timestamp))

    def _pass(self, timestamp: int) -> Iterator[None]:
        self.watermark = timestamp
        for key, window, kept in self._windows.over(timestamp):
            self._put_out(key, window, kept)
            if self._emissions.full:
                self.flush()
            yield
        self.flush()
        self.output.watermark(timestamp)

    def _put_out_late(self, records: Records, late: list[int]) -> None:
        self.late_rows += len(late)
        if self.late_tag is not None:
            values = [records.values[position] for position in late]
            chosen = records.chosen(np.array(late, np.intp), values)
            self.output.emit_side(self.late_tag, chosen)

    def _put_out(self, key: Key, window: Window, kept: Any) -> None:
        context = self._context
        context.window = window
        context.current_watermark = self.watermark
        user_key = self.reader.for_user(key)
        try:
            self._emissions.add_all(self._fold.results(user_key, context, kept), window.end - 1)
        except Exception as error:
            doing = f"the window's {self.function_kind} function for key {user_key!r:.100} and {window}"
            raise UserFunctionError(self.name, doing, error, has_record=False) from error

    def _emit_side(self, tag: str, value: Any) -> None:
        self._emissions.add_side(tag, value, self._context.window.end - 1)
