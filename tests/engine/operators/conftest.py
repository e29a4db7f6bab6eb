"""An operator by itself: what it put out, a clock and a store of state that the test controls."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.operators.operator import Operator, OperatorContext, Origin
from snapshot_engine.operators.records import Records, to_arrow, to_records
from snapshot_engine.operators.stream_type import StreamType
from snapshot_engine.state.handles import OperatorState, PieceHandle


class MemoryPieces:
    """Where snapshots are written to and restored from; counts what was written."""

    def __init__(self) -> None:
        self.tables: dict[str, pa.Table] = {}

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        path = f"{len(self.tables)}-{name}"
        self.tables[path] = table
        return PieceHandle(path, table.nbytes, "", shared)

    def write_bytes(self, name: str, data: bytes, *, shared: bool = False) -> PieceHandle:
        return PieceHandle(name, len(data), "", shared, data)

    def read_table(self, handle: PieceHandle) -> pa.Table:
        return self.tables[handle.path]

    def read_bytes(self, handle: PieceHandle) -> bytes:
        assert handle.inline is not None
        return handle.inline


@dataclass
class Collected:
    """An operator's output."""

    type: StreamType | None = None
    data: list[Any] = field(default_factory=list)
    sides: list[tuple[str, Any]] = field(default_factory=list)
    watermarks: list[int] = field(default_factory=list)
    idles: int = 0
    events: list[Any] = field(default_factory=list)

    def emit(self, data: Any) -> None:
        if len(data):
            self.data.append(data)
            self.events.append("data")

    def emit_side(self, tag: str, data: Any) -> None:
        self.sides.append((tag, data))

    def watermark(self, timestamp: int) -> None:
        self.watermarks.append(timestamp)
        self.events.append(timestamp)

    def idle(self) -> None:
        self.idles += 1
        self.events.append("idle")

    def records(self) -> list[Any]:
        """All values put out so far, as if they had been sent over the network."""
        assert self.type is not None
        batches = [to_arrow(data, self.type) for data in self.data]
        return [value for batch in batches for value in to_records(batch, self.type).values]

    def side(self, tag: str) -> list[Any]:
        found: list[Any] = []
        for name, data in self.sides:
            if name == tag:
                found.extend(data.values if isinstance(data, Records) else data.to_pylist())
        return found

    def times(self) -> list[int]:
        assert self.type is not None
        found: list[int] = []
        for data in self.data:
            times = to_records(to_arrow(data, self.type), self.type).timestamps
            assert times is not None
            found.extend(times.tolist())
        return found


class Bench:
    """Opens operators, takes their snapshots, and opens others from those."""

    def __init__(self) -> None:
        self.pieces = MemoryPieces()
        self.now = 1_000_000
        self.origin = Origin()

    def open(
        self,
        operator: Operator,
        output: StreamType | None = None,
        *,
        subtask: int = 0,
        parallelism: int = 1,
        restored: list[OperatorState] | None = None,
        rescaled: bool = False,
        incremental: bool = False,
        key_groups: int = 128,
        portion_seconds: float = math.inf,
    ) -> Collected:
        collected = Collected(output)
        operator.output = collected
        operator.open(
            OperatorContext(
                uid="op-1",
                name="the operator",
                subtask=subtask,
                parallelism=parallelism,
                key_groups=key_groups,
                attempt=(1, 1),
                restored=restored or [],
                rescaled=rescaled,
                reader=self.pieces,
                clock=lambda: self.now,
                incremental=incremental,
                origin=self.origin,
                portion_seconds=portion_seconds,
            )
        )
        return collected

    def snapshot(self, operator: Operator, checkpoint: int = 1) -> OperatorState:
        snapshot = operator.snapshot(checkpoint)
        assert snapshot is not None
        written = snapshot.write(self.pieces)
        return OperatorState.from_json(written.to_json())


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture(scope="session")
def new_bench() -> type[Bench]:
    """For tests that need one for every example they try."""
    return Bench
