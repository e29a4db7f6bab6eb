"""The head of a chain that reads a Source: which splits a subtask has, and where it stands in each.

The splits are listed once, when a job starts without a checkpoint; from then on their names and positions come from the
snapshots (and of a source that `grows`, new ones are taken up at every start). Sorted by name, split i belongs to
subtask i modulo the parallelism; after a change of parallelism the union of all old subtasks' splits is dealt out again
in the same way. A split that has ended stays in the snapshot, so that it is never read again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from snapshot_engine.connectors.protocols import EndOfSplit, Position, Reader, Source
from snapshot_engine.operators.fitting import decode_batch, decoded_schema
from snapshot_engine.operators.operator import (
    OperatorContext,
    Origin,
    SourceOperator,
    SourceStatus,
    StateWriter,
    iterate_states,
)
from snapshot_engine.state.handles import OperatorState

KIND = "source"
BATCH_ROWS = 16_384
"""How many rows a reader is asked for at a time, unless the source says otherwise."""
MOST_ROWS = 1 << 62


@dataclass(slots=True)
class _Split:
    name: str
    position: Position = None
    """Where to begin; once there is a reader, the reader knows better."""
    ended: bool = False
    reader: Reader | None = None

    def to_json(self) -> dict[str, Any]:
        position = self.reader.position() if self.reader else self.position
        return {"position": position, "ended": self.ended}


class SourceReaderOperator(SourceOperator):
    """Reads its splits in turn, a batch of each; or, where the source is `sequential`, one after the other (but those
    in turn that were begun by several subtasks).

    A batch may be read in several polls, when its rows are slow to process. That changes neither the order of rows nor
    what the watermark behind them is.
    """

    def __init__(self, source: Source, batch_rows: int | None = None) -> None:
        self.source = source
        self._schema = decoded_schema(source.schema)
        self._encoded = self._schema is not source.schema
        wanted: int = getattr(source, "batch_rows", BATCH_ROWS)
        self.batch_rows = batch_rows or wanted
        self._splits: list[_Split] = []
        self._open: deque[_Split] = deque()
        """Those that are read, in turn."""
        self._waiting: deque[_Split] = deque()
        """Those that are begun when all open ones have ended."""
        self._rest_of_batch = 0
        """Rows that are still to be read from the first split before it is the next one's turn."""
        self._sequential = bool(getattr(source, "sequential", False))
        self._origin = Origin()
        self._uid = ""
        self._place = (0, 1)

    def open(self, context: OperatorContext) -> None:
        self._origin = context.origin
        self._clock = context.clock
        self._uid = context.uid
        self._place = (context.subtask, context.parallelism)
        restored = [state.meta for state in iterate_states(context.restored, KIND)]
        self._splits = self._restored_splits(restored) if restored else self._listed_splits()
        self._origin.ended.update(split.name for split in self._splits if split.ended)
        for split in self._splits:
            if not split.ended:
                waits = self._sequential and split.position is None
                (self._waiting if waits else self._open).append(split)
        self._open_next()
        # All at once, so that a watermark waits for every one of them; of splits that are read one after the other it
        # can only know those that are begun. After a change of parallelism these may be several.
        for split in self._open:
            self._start(split)

    def poll(self, most_rows: int = MOST_ROWS) -> SourceStatus:
        held = False
        for _ in range(len(self._open) + len(self._waiting)):
            split = self._open[0]
            if self._must_wait(split):
                held = True
                self._open.rotate(-1)
                continue
            whole = self._rest_of_batch or self.batch_rows
            asked = min(whole, most_rows)
            self._origin.asked[split.name] = self._clock()
            try:
                batch = self._reader(split).read(asked)
            except EndOfSplit:
                self._end(split)
                continue
            except Exception as error:
                error.add_note(f"while reading split {split.name!r} of {self.source!r}")
                raise
            rows = 0 if batch is None else batch.num_rows
            self._count(rows, whole - rows if rows == asked else 0)
            if not self._rest_of_batch:
                self._open.rotate(-1)
            if rows:
                assert batch is not None
                self._refuse_other_schema(batch.schema)
                self._origin.split = split.name
                self.output.emit(decode_batch(batch, self._schema) if self._encoded else batch)
                return SourceStatus.MORE
            if self._sequential:
                break
        if not self._open:
            return SourceStatus.ENDED
        return SourceStatus.HELD if held else SourceStatus.NOTHING

    def _must_wait(self, split: _Split) -> bool:
        """A batch that is begun is read to its end: until then its split is the first, and its watermark is due."""
        drift = self._origin.drift
        return drift is not None and split.name in drift.held and not self._rest_of_batch

    def _count(self, rows: int, rest_of_batch: int) -> None:
        self.rows_read += rows
        self._rest_of_batch = rest_of_batch
        self._origin.more_of_batch = rest_of_batch > 0

    def lag(self) -> int | None:
        """Rows that wait to be read, over all open splits; None if one of them cannot tell."""
        lags = [split.reader.lag() if split.reader else None for split in (*self._open, *self._waiting)]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) else None

    def snapshot(self, checkpoint: int) -> _Positions:
        subtask, parallelism = self._place
        splits = {split.name: split.to_json() for split in self._splits}
        return _Positions(self._uid, {"subtask": subtask, "parallelism": parallelism, "splits": splits})

    def state_size(self) -> tuple[int, int]:
        return len(self._splits), 0

    def close(self) -> None:
        for split in self._splits:
            if split.reader is not None:
                split.reader.close()
                split.reader = None

    def _restored_splits(self, restored: list[Mapping[str, Any]]) -> list[_Split]:
        listed = self._list() if getattr(self.source, "grows", False) else []
        return _take_over(restored, self._beginnings(listed), *self._place)

    def _beginnings(self, names: Sequence[str]) -> dict[str, Position]:
        """Where splits begin that have come since the checkpoint: None is where a job without one begins."""
        beginning = getattr(self.source, "beginning", None)
        return {name: beginning(name) if beginning else None for name in names}

    def _listed_splits(self) -> list[_Split]:
        subtask, parallelism = self._place
        return [_Split(name) for name in self._list()[subtask::parallelism]]

    def _list(self) -> list[str]:
        names = sorted(self.source.splits(self._place[1]))
        if len(set(names)) != len(names):
            raise ValueError(f"{self.source!r} names a split twice: {names}")
        return names

    def _open_next(self) -> None:
        if not self._open and self._waiting:
            self._open.append(self._waiting.popleft())

    def _start(self, split: _Split) -> Reader:
        split.reader = self.source.open(split.name, split.position)
        self._origin.reading.add(split.name)
        return split.reader

    def _reader(self, split: _Split) -> Reader:
        return split.reader or self._start(split)

    def _end(self, split: _Split) -> None:
        assert split.reader is not None
        self._count(0, 0)
        split.position = split.reader.position()
        split.reader.close()
        split.reader = None
        split.ended = True
        self._open.popleft()
        self._open_next()
        self._origin.reading.discard(split.name)
        self._origin.asked.pop(split.name, None)
        self._origin.ended.add(split.name)

    def _refuse_other_schema(self, found: Any) -> None:
        if found is not self.source.schema and not found.equals(self.source.schema):
            raise TypeError(
                f"{self.source!r} gave a batch of another schema than it declares.\n"
                f"declared:\n{self.source.schema}\nfound:\n{found}"
            )


@dataclass(frozen=True, slots=True)
class _Positions:
    uid: str
    meta: Mapping[str, Any]

    def write(self, writer: StateWriter) -> OperatorState:
        return OperatorState(self.uid, KIND, meta=self.meta)


def _take_over(
    restored: list[Mapping[str, Any]], listed: Mapping[str, Position], subtask: int, parallelism: int
) -> list[_Split]:
    """This subtask's share of the restored splits, and of those among `listed` that are new, with their beginnings.

    Without rescaling it knows its own ones only. After rescaling the new ones must be counted among all: subtasks that
    listed them at different moments know some that lie behind others that nobody knows.
    """
    mine = restored
    if all(meta["parallelism"] == parallelism for meta in restored):
        mine = [meta for meta in restored if meta["subtask"] == subtask]
        names = {name for meta in mine for name in meta["splits"]} | set([*listed][subtask::parallelism])
    else:
        every = {name for meta in restored for name in meta["splits"]} | set(listed)
        names = set(sorted(every)[subtask::parallelism])
    known = {name: entry for meta in mine for name, entry in meta["splits"].items()}
    return [
        _Split(name, known[name]["position"], known[name]["ended"]) if name in known else _Split(name, listed[name])
        for name in sorted(names)
    ]
