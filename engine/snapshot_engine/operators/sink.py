"""The end of a chain that writes to a Sink in two phases.

At every snapshot the writer prepares what it has written. What was prepared stays listed, in this and in
every later snapshot, until a checkpoint that lists it is complete: an aborted checkpoint takes back its
files, never its prepared transactions, so the next one to complete commits them too. A savepoint prepares
like any snapshot but completes nothing here: the runtime does not call `on_completed` for it.

Restored committables are *not* carried on by the new subtask. What the restored manifest names, the JobMaster
commits before the region runs; carrying it on as well would name it in two lineages after a change of
parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from snapshot_engine.connectors.protocols import Committable, Sink, SinkWriter, WriterContext
from snapshot_engine.operators.operator import Data, Operator, OperatorContext, StateWriter, iterate_states
from snapshot_engine.operators.records import to_arrow
from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME, StreamType
from snapshot_engine.state.handles import OperatorState

KIND = "sink"
_FINAL = 2**63
"""What is prepared in the final snapshot is listed for ever: every later checkpoint names that same state."""


class SinkOperator(Operator):
    def __init__(self, sink: Sink, input: StreamType) -> None:
        self.sink = sink
        self.input = input
        self._uid = ""
        self._writer: SinkWriter | None = None
        self._pending: list[tuple[int, Committable]] = []

    def open(self, context: OperatorContext) -> None:
        iterate_states(context.restored, KIND)
        self._uid = context.uid
        generation, attempt = context.attempt
        self._writer = self.sink.open(
            WriterContext(context.job, context.uid, context.subtask, generation, attempt, context.lineage)
        )

    def process(self, port: int, data: Data) -> None:
        assert self._writer is not None
        self._writer.write(_visible(to_arrow(data, self.input)))

    def on_watermark(self, timestamp: int) -> None:
        """Ends here."""

    def on_idle(self) -> None:
        """Ends here."""

    def snapshot(self, checkpoint: int) -> _Committables | None:
        """A negative `checkpoint` is the final snapshot, after `end_input`."""
        assert self._writer is not None
        number = checkpoint if checkpoint >= 0 else _FINAL
        self._pending += [(number, committable) for committable in self._writer.prepare(checkpoint)]
        if not self.sink.exactly_once:
            return None
        return _Committables(self._uid, tuple(committable for _, committable in self._pending))

    def on_completed(self, checkpoint: int) -> None:
        self._pending = [entry for entry in self._pending if entry[0] > checkpoint]

    def state_size(self) -> tuple[int, int]:
        return len(self._pending), 0

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@dataclass(frozen=True, slots=True)
class _Committables:
    uid: str
    committables: tuple[Mapping[str, Any], ...]

    def write(self, writer: StateWriter) -> OperatorState:
        return OperatorState(self.uid, KIND, committables=self.committables)


def _visible(batch: pa.RecordBatch) -> pa.RecordBatch:
    hidden = [name for name in (HIDDEN_TIME, HIDDEN_KEY) if name in batch.schema.names]
    return batch.drop_columns(hidden) if hidden else batch
