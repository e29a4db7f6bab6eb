"""Opening and closing users' functions: what they are told of where they run."""

from __future__ import annotations

import gc
from typing import Any, Protocol

from snapshot_engine.operators.functions import Function
from snapshot_engine.operators.operator import OperatorContext
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.state.changed_state import RecordStateChanged


class UnkeyedStateError(Exception):
    """Keyed state was asked for where there are no keys."""


class CellFactory(Protocol):
    """Makes the cells of keyed state."""

    def cell(self, descriptor: Any) -> Any: ...


class FunctionContext:
    """Implements `functions.RuntimeContext`."""

    def __init__(self, context: OperatorContext, cells: CellFactory | None) -> None:
        self.name = context.name
        self.uid = context.uid
        self.subtask = context.subtask
        self.parallelism = context.parallelism
        self.attempt = context.attempt
        self._clock = context.clock
        self._cells = cells

    def state(self, descriptor: Any) -> Any:
        if self._cells is None:
            raise UnkeyedStateError(
                f"operator {self.name!r} asked for state {descriptor.name!r}, but state belongs to a key: "
                "call key_by(...) before it and use a KeyedProcessFunction"
            )
        return self._cells.cell(descriptor)

    def processing_time(self) -> int:
        return self._clock()


def collect_garbage_less_often() -> None:
    """For every operator that makes records, called once when it is opened.

    Python looks for garbage after every 700 new objects; a batch of records is tens of thousands of them, none of
    which is garbage before the batch is done. Looking that often took half of the time of a map.
    """
    if gc.get_threshold()[0] < _NEW_OBJECTS:
        gc.set_threshold(_NEW_OBJECTS, 50, 100)


_NEW_OBJECTS = 200_000


def open_function(fn: Any, context: OperatorContext, cells: CellFactory | None = None) -> None:
    collect_garbage_less_often()
    if not isinstance(fn, Function):
        return
    try:
        fn.open(FunctionContext(context, cells))
    except (UnkeyedStateError, RecordStateChanged):
        raise
    except Exception as error:
        raise UserFunctionError(context.name, "open()", error, has_record=False) from error


def close_function(fn: Any) -> None:
    if isinstance(fn, Function):
        fn.close()
