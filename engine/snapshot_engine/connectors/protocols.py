"""What a connector has to provide: four or five methods each, and the obligations that come with them.

Source and Sink objects are made in the user's pipeline, shipped to the slots by Spark, and must therefore
pickle. Readers and writers live in one slot and are used by one thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

Position = Any
"""Where a reader stands in its split, as a JSON value. None is where a job without a checkpoint begins."""

Committable = Mapping[str, Any]
"""A prepared transaction as a JSON object:

all that `Sink.commit` needs, in any process, at any later time.
"""


class EndOfSplit(Exception):
    """Raised by `Reader.read` when the split has ended for good."""


class Reader(Protocol):
    def read(self, max_rows: int) -> pa.RecordBatch | None:
        """The next rows, at most `max_rows`; None if there are none right now (never wait for more than a few
        ms).

        Raises EndOfSplit when there will never be any more. The schema is that of the source, always.
        """
        ...

    def position(self) -> Position:
        """Where to go on:

        a reader opened at this position returns exactly what this one would return next.
        """
        ...

    def lag(self) -> int | None:
        """How many rows are waiting behind the position, if that is known; for the metrics."""
        ...

    def close(self) -> None: ...


class Source(Protocol):
    """Something that can be read again from any position it has named: exactly-once begins here.

    A source may have an attribute `sequential` = True: then a subtask reads its splits one after the other, opening
    each when the one before it has ended, instead of in turn.

    A source may have an attribute `batch_rows`: how many rows its readers are asked for at a time. Each batch has a
    price, whatever its size; but it is also what a barrier waits for, so it should be worked off within milliseconds.

    A source may have an attribute `grows` = True: then `splits` is called at every start, also from a checkpoint, and
    names that have come since are read from their beginning. New names must sort behind all older ones. Where None is
    not the beginning of a split (a job without a checkpoint may begin with what is still to come), such a source has a
    method `beginning(split)`, which returns the position that is; the source must not be `sequential` then.
    """

    bounded: bool
    schema: pa.Schema

    def splits(self, parallelism: int) -> Sequence[str]:
        """The names of the parts that can be read independently; stable, since positions are kept by these
        names.

        Called once, when the job starts without a checkpoint; later the names come from the checkpoint.
        """
        ...

    def open(self, split: str, position: Position) -> Reader:
        """A reader of `split` that stands at `position` (None: where a job without a checkpoint begins).

        `split` may be a name that this source has never listed, if the user has changed it under the same uid: raise
        `UnfitState` for one that it cannot go on with, and say what to do.
        """
        ...


@runtime_checkable
class MaterialisedSource(Protocol):
    """A source whose rows must first be put where the slots can read them."""

    def materialise(self, folder: str, restored: bool) -> None:
        """Called in the driver before the source is shipped to the slots, with a folder that is this source's alone.

        `restored`: the job goes on from a checkpoint, so what an earlier call left in `folder` must be used again.
        """
        ...


@dataclass(frozen=True, slots=True)
class WriterContext:
    """Who writes: every name that a writer gives to something outside must contain all of this."""

    job: str
    vertex: str
    subtask: int
    generation: int
    attempt: int
    lineage: str = ""
    """In what the generations are counted: two jobs of the same name have different ones."""

    @property
    def unique(self) -> str:
        return f"{self.vertex}-{self.subtask}-{self.generation}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class SweptJob:
    """Whose leftovers a sink may remove: another job of the same name may be at work in the same place."""

    name: str
    lineage: str
    """As in the context of this job's writers."""
    lineage_since: int = 1
    """Writers of earlier generations have named no lineage."""


class SinkWriter(Protocol):
    def write(self, batch: pa.RecordBatch) -> None:
        """Take the rows. Nothing of it may be visible to readers before its transaction is committed."""
        ...

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        """Make durable all that was written since the last call, and name it. It must survive this process.

        Called at every barrier, in the subtask's thread: it should be quick.
        """
        ...

    def close(self) -> None:
        """Give up what is open and not prepared. What was prepared stays."""
        ...


class Sink(Protocol):
    """A two-phase-commit sink:

    written, prepared at the barrier, committed when the checkpoint is complete.
    """

    exactly_once: bool
    """False for sinks that show rows at once (console):

    such a job is at-least-once from end to end, and is told so.
    """

    # A sink may also have `check(schema)`: called while the job is planned, it raises ValueError or TypeError
    # for rows that it could not write.

    def open(self, context: WriterContext) -> SinkWriter: ...

    def commit(self, committables: Sequence[Committable]) -> None:
        """Make them visible. Idempotent: any of them may have been committed before, by anyone, in any order.

        Called by the JobMaster after the checkpoint that names them is complete, and again after any restore.
        Raise to have it called again; an error that will never go away should say so and what to do.
        """
        ...

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None:
        """Remove what this job's drivers of older generations left open or prepared, except what is in `keep`.

        A driver calls it at its start, and when the job has ended in good order for its own generation too. What lies
        under another lineage is another job's, which may be running and may commit it yet.
        """
        ...


class DirectSink:
    """Base for sinks without transactions."""

    exactly_once = False

    def commit(self, committables: Sequence[Committable]) -> None:
        """Nothing is ever prepared."""

    def sweep(self, job: SweptJob, vertex: str, before_generation: int, keep: Sequence[Committable]) -> None:
        """Nothing is ever left behind."""
