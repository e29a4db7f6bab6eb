"""An operator in several subtasks under random barriers, aborts, crashes and changes of parallelism.

`Fleet` stands for the runtime and the checkpoint store. It writes snapshots long after they were taken, deletes what
no complete or pending checkpoint refers to, and starts the subtasks again from the last complete checkpoint.
"""

from __future__ import annotations

import copy
import itertools
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
import pytest

from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.operator import Operator, OperatorContext, Snapshot
from snapshot_engine.protocol.elements import MAX_WATERMARK
from snapshot_engine.state.handles import OperatorState, PieceHandle

Row = dict[str, Any]


class Reference(Protocol):
    """What the operator should do, in plain Python. Rows that are put out are tuples."""

    def process(self, port: int, rows: list[Row]) -> tuple[list[Any], list[Any]]: ...
    def watermark(self, timestamp: int) -> list[Any]: ...


class PieceStore:
    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}
        self._numbers = itertools.count()

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        path = f"{next(self._numbers)}-{name}"
        self.tables[path] = table
        return PieceHandle(path, table.nbytes, "", shared)

    def write_bytes(self, name: str, data: bytes, *, shared: bool = False) -> PieceHandle:
        raise AssertionError("columnar state is written as tables")

    def read_table(self, handle: PieceHandle) -> pa.Table:
        return self.tables[handle.path]

    def read_bytes(self, handle: PieceHandle) -> bytes:
        raise AssertionError("columnar state is read as tables")

    def keep_only(self, paths: set[str]) -> None:
        self.tables = {path: table for path, table in self.tables.items() if path in paths}


@dataclass
class Output:
    rows: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)
    largest: int = 0

    def emit(self, data: pa.RecordBatch) -> None:
        data.validate(full=True)
        assert data.num_rows > 0
        self.largest = max(self.largest, data.num_rows)
        self.rows.extend(tuples_of(data))

    def emit_side(self, tag: str, data: pa.RecordBatch) -> None:
        assert tag == "late"
        self.late.extend(tuples_of(data))

    def watermark(self, timestamp: int) -> None:
        self.watermarks.append(timestamp)

    def idle(self) -> None:
        raise AssertionError("nobody is idle here")


def tuples_of(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in batch.to_pylist()]


@dataclass
class Checkpoint:
    parallelism: int
    snapshots: list[Snapshot | None]
    reference: Reference
    rows: list[Any]
    late: list[Any]
    references: set[str]
    states: list[OperatorState] | None = None

    def write(self, store: PieceStore) -> None:
        if self.states is None:
            written = [None if snapshot is None else snapshot.write(store) for snapshot in self.snapshots]
            self.states = [OperatorState.from_json(state.to_json()) for state in written if state is not None]


class Fleet:
    def __init__(
        self,
        make: Callable[[], Operator],
        keys: Sequence[Sequence[str]],
        schemas: Sequence[pa.Schema],
        reference: Reference,
        *,
        parallelism: int = 2,
        key_groups: int = 16,
        incremental: bool = True,
    ) -> None:
        self._make = make
        self._keys = keys
        self._schemas = schemas
        self._fresh = copy.deepcopy(reference)
        self._reference = reference
        self._key_groups = key_groups
        self._incremental = incremental
        self.store = PieceStore()
        self.rows: list[Any] = []
        self.late: list[Any] = []
        self.expected: list[Any] = []
        self.expected_late: list[Any] = []
        self.pending: dict[int, Checkpoint] = {}
        self.complete: Checkpoint | None = None
        self._numbers = itertools.count(1)
        self._start(parallelism, [], rescaled=False)

    def process(self, rows: list[Row], port: int = 0) -> None:
        batch = pa.RecordBatch.from_pylist(rows, schema=self._schemas[port])
        parts = HashPartitioner(self._keys[port], len(self.operators), self._key_groups).split(batch)
        for operator, part in zip(self.operators, parts, strict=True):
            if part is not None:
                operator.process(port, part)
        expected, late = self._reference.process(port, rows)
        self.expected.extend(expected)
        self.expected_late.extend(late)
        self._collect()

    def watermark(self, timestamp: int) -> None:
        for operator in self.operators:
            operator.on_watermark(timestamp)
        self.expected.extend(self._reference.watermark(timestamp))
        self._collect()
        assert all(output.watermarks[-1] == timestamp for output in self.outputs)

    def snapshot(self) -> None:
        number = next(self._numbers)
        self.pending[number] = Checkpoint(
            len(self.operators),
            [operator.snapshot(number) for operator in self.operators],
            copy.deepcopy(self._reference),
            list(self.rows),
            list(self.late),
            set() if self.complete is None else self._paths(self.complete),
        )

    def write(self, number: int) -> None:
        self.pending[number].write(self.store)

    def finish(self, number: int) -> None:
        """Complete a pending checkpoint; older ones are subsumed."""
        checkpoint = self.pending.pop(number)
        checkpoint.write(self.store)
        self.complete = checkpoint
        for older in [other for other in self.pending if other < number]:
            del self.pending[older]
        self._clean()
        for operator in self.operators:
            operator.on_completed(number)

    def abort(self, number: int) -> None:
        del self.pending[number]
        self._clean()
        for operator in self.operators:
            operator.on_aborted(number)

    def crash(self, parallelism: int, *, doubled: bool = False) -> None:
        """Start again from the last complete checkpoint; `doubled` hands every state out twice."""
        self.pending.clear()
        self._clean()
        if self.complete is None:
            self._reference = copy.deepcopy(self._fresh)
            self.rows, self.late, self.expected, self.expected_late = [], [], [], []
            self._start(parallelism, [], rescaled=False)
            return
        assert self.complete.states is not None
        self._reference = copy.deepcopy(self.complete.reference)
        self.rows, self.late = list(self.complete.rows), list(self.complete.late)
        self.expected, self.expected_late = list(self.rows), list(self.late)
        rescaled = parallelism != self.complete.parallelism
        states = self.complete.states * (2 if doubled and rescaled else 1)
        self._start(parallelism, states, rescaled=rescaled)

    def check(self) -> None:
        assert Counter(self.rows) == Counter(self.expected)
        assert Counter(self.late) == Counter(self.expected_late)

    def end(self) -> None:
        self.watermark(MAX_WATERMARK)
        for operator in self.operators:
            operator.end_input()
        self._collect()
        self.check()

    def _start(self, parallelism: int, states: list[OperatorState], *, rescaled: bool) -> None:
        self.operators = [pickle.loads(pickle.dumps(self._make())) for _ in range(parallelism)]
        self.outputs = [Output() for _ in range(parallelism)]
        for index, (operator, output) in enumerate(zip(self.operators, self.outputs, strict=True)):
            operator.output = output
            operator.open(
                OperatorContext(
                    uid="op",
                    name="the operator",
                    subtask=index,
                    parallelism=parallelism,
                    key_groups=self._key_groups,
                    attempt=(1, 1),
                    restored=states if rescaled else states[index : index + 1],
                    rescaled=rescaled,
                    reader=self.store,
                    clock=lambda: 0,
                    incremental=self._incremental,
                )
            )

    def _collect(self) -> None:
        for output in self.outputs:
            self.rows.extend(output.rows)
            self.late.extend(output.late)
            output.rows.clear()
            output.late.clear()

    def _paths(self, checkpoint: Checkpoint) -> set[str]:
        return {piece.path for state in checkpoint.states or [] for piece in state.pieces}

    def _clean(self) -> None:
        kept = self._paths(self.complete) if self.complete else set()
        for checkpoint in self.pending.values():
            kept |= self._paths(checkpoint) | checkpoint.references
        self.store.keep_only(kept)


@pytest.fixture(scope="session")
def fleet() -> type[Fleet]:
    return Fleet
