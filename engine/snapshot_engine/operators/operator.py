"""The contract between a subtask and the operators that are chained inside it.

A subtask runs in one thread: no method of an operator is ever called while another one runs. The only exception is
`Snapshot.write`, which runs in a background thread and therefore must touch nothing but its own immutable view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol, TypeAlias

import pyarrow as pa

from snapshot_engine.operators.portions import UNLIMITED
from snapshot_engine.operators.records import Records
from snapshot_engine.protocol.source_drift import SourceDrift
from snapshot_engine.state.changed_state import UnfitState
from snapshot_engine.state.handles import OperatorState, PieceHandle

Data: TypeAlias = pa.RecordBatch | Records
"""What operators hand on inside a chain: a columnar batch, or Python records that are columnar only on demand."""


class Output(Protocol):
    """Where an operator puts what it produces: the next operator of the chain, or the subtask's outgoing channels."""

    def emit(self, data: Data) -> None: ...
    def emit_side(self, tag: str, data: Data) -> None: ...
    def watermark(self, timestamp: int) -> None: ...
    def idle(self) -> None: ...
    def round_end(self, round: int) -> None: ...


class StateReader(Protocol):
    """Reads pieces of a completed checkpoint; every read verifies the checksum."""

    def read_table(self, handle: PieceHandle) -> pa.Table: ...
    def read_bytes(self, handle: PieceHandle) -> bytes: ...


class StateWriter(Protocol):
    """Writes the pieces of one subtask's snapshot. Small ones travel inside the acknowledgement."""

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle: ...
    def write_bytes(self, name: str, data: bytes, *, shared: bool = False) -> PieceHandle: ...


class Snapshot(Protocol):
    """The asynchronous part: an immutable view of an operator's state at the barrier."""

    def write(self, writer: StateWriter) -> OperatorState:
        """Write the view and describe it. Runs in a background thread, after `Operator.snapshot` returned."""
        ...


@dataclass(slots=True)
class Origin:
    """Which source split the batch being processed comes from; None where no source is in the chain."""

    split: str | None = None
    ended: set[str] = field(default_factory=set)
    """Splits that have ended: their watermark must not hold back the others."""
    more_of_batch: bool = False
    """Whether rows are to follow that would have come in the same batch, were it not cut to save time."""
    reading: set[str] = field(default_factory=set)
    """Splits that are being read, whether rows came yet or not: the watermark waits for the first rows of each."""
    asked: dict[str, int] = field(default_factory=dict)
    """When (processing time) each of them was last asked for rows, whether it had any or not: only one that is asked
    can be silent."""
    drift: SourceDrift | None = None
    """Says which splits must not be read now; None where no source has to wait for others."""


@dataclass
class OperatorContext:
    """What an operator is told when it is opened."""

    uid: str
    name: str
    subtask: int
    parallelism: int
    key_groups: int
    """How many key groups the job has; never changes for a job."""
    attempt: tuple[int, int]
    restored: Sequence[OperatorState]
    """The state of this operator at the restored checkpoint: one per old subtask whose key groups or splits may
    concern this subtask (all of them after a change of parallelism), empty at a fresh start."""
    rescaled: bool
    """Whether `restored` comes from another parallelism, so that it must be filtered by key group or split."""
    reader: StateReader
    clock: Callable[[], int]
    """Processing time in epoch milliseconds. The only clock an operator may use."""
    incremental: bool = False
    """Whether snapshots should refer to pieces of earlier completed checkpoints instead of writing all again."""
    origin: Origin = field(default_factory=Origin)
    """Shared by all operators of the chain: the source says here which split the batch under way comes from."""
    job: str = ""
    lineage: str = ""
    """Tells the job from others of its name in what it writes outside."""
    portion_seconds: float = UNLIMITED
    """How long an operator that can go on later may work on one event at a time."""

    def owned_key_groups(self) -> range:
        from snapshot_engine.state.key_groups import owned_key_groups

        return owned_key_groups(self.subtask, self.parallelism, self.key_groups)


class Operator:
    """One step of a chain. Subclasses override what they need; `output` is set before `open` is called.

    Obligations:
    - `process` handles the whole batch before it returns; what it cannot emit yet belongs to its state.
    - `snapshot` is the synchronous part: it must be cheap (copy what may change, reference what may not) and must
      return a view that later processing cannot alter.
    - Everything a restart needs is in the snapshot: nothing else survives.
    """

    output: Output
    late_rows: int = 0
    """How many rows came too late so far, whether they were dropped or sent to a late output. Not part of the state."""

    def open(self, context: OperatorContext) -> None:
        """Get ready, and take over `context.restored` if there is any."""

    def process(self, port: int, data: Data) -> None:
        """Handle a batch that came in at input `port` (0 but for two-input operators)."""
        raise NotImplementedError

    def on_watermark(self, timestamp: int) -> None:
        """Event time has come to `timestamp`, over all inputs. Emit what is due, then pass the watermark on."""
        self.output.watermark(timestamp)

    @property
    def unfinished(self) -> bool:
        """Whether `on_watermark`, `on_round_end` or `on_deadline` has left something to do.

        Then `go_on` is called until there is nothing left, and nothing else in between, also of the operators before
        this one in its chain. What the event leads to, as passing the watermark on, comes behind all of it.
        """
        return False

    def go_on(self) -> None:
        """Do a further portion of what is left, not longer than `context.portion_seconds`."""

    def on_idle(self) -> None:
        """All inputs are idle."""
        self.output.idle()

    def on_round_end(self, round: int) -> None:
        """In the body of a loop with rounds: all records of `round` are done. Emit what is due, then pass it on."""
        self.output.round_end(round)

    @property
    def has_timers(self) -> bool:
        """Whether a timer by the clock is set: then a loop it belongs to is not at rest."""
        return False

    def next_deadline(self) -> int | None:
        """The processing time (epoch ms) at which `on_deadline` wants to be called, or None."""
        return None

    def on_deadline(self, now: int) -> None:
        """Processing time has come to the deadline asked for."""

    def end_input(self) -> None:
        """All inputs have ended, and the final watermark has passed. Emit what is left."""

    def snapshot(self, checkpoint: int) -> Snapshot | None:
        """The synchronous part of checkpoint `checkpoint`; None if there is no state."""
        return None

    def on_completed(self, checkpoint: int) -> None:
        """Checkpoint `checkpoint` is complete: its pieces may be referred to, its committables are being committed."""

    def on_aborted(self, checkpoint: int) -> None:
        """Checkpoint `checkpoint` will never complete: its pieces are gone, refer to none of them."""

    def state_size(self) -> tuple[int, int]:
        """(number of keys or entries, bytes), for the metrics; a cheap estimate will do."""
        return (0, 0)

    def close(self) -> None:
        """Release what `open` acquired. Called once, also after a failure."""


class SourceOperator(Operator):
    """The head of a chain without inputs. The slot calls `poll` when the outputs have room."""

    rows_read: int = 0
    """So far."""

    def poll(self, most_rows: int) -> SourceStatus:
        """Emit at most one batch of at most so many rows, without blocking for longer than a few milliseconds."""
        raise NotImplementedError

    def lag(self) -> int | None:
        """Rows that wait to be read, if that is known; for the metrics."""
        return None

    def process(self, port: int, data: Data) -> None:
        raise TypeError("a source has no inputs")


class SourceStatus(IntEnum):
    """What a source's poll had."""

    MORE = 0  # a batch was emitted: call again as soon as there is room
    NOTHING = 1  # nothing to read right now: call again at `next_deadline`, or after a few milliseconds
    ENDED = 2  # all splits have ended: no call any more
    HELD = 3  # all that could be read is ahead of other sources: call again after a few milliseconds


def iterate_states(states: Iterable[OperatorState], kind: str) -> list[OperatorState]:
    """The states of `kind` among `states`, refusing any other: a state type that changed must not be ignored."""
    chosen = []
    for state in states:
        if state.kind != kind:
            raise StateTypeChanged(state.kind, kind)
        chosen.append(state)
    return chosen


class StateTypeChanged(UnfitState):
    """The checkpoint holds state of another kind than the operator expects."""

    def __init__(self, found: str, expected: str) -> None:
        super().__init__(
            f"the checkpoint holds state of kind {found!r}, but the operator now keeps {expected!r}; "
            "give the changed operator a new uid and allow the old state to be dropped, or change it back"
        )
