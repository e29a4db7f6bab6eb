"""The asynchronous part of snapshots: one background thread per slot that writes what the barrier has frozen."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from snapshot_engine.operators.operator import Snapshot, StateWriter
from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.watermarks import WatermarkState
from snapshot_engine.runtime.exchanges.segment_parts import Part
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.errors import StorageError
from snapshot_engine.storage.pieces import PieceWriter


@dataclass
class SnapshotJob:
    """What one subtask froze for one checkpoint. `checkpoint` is None for the final state of a finished subtask."""

    subtask: SubtaskId
    checkpoint: int | None
    snapshots: Sequence[Snapshot]
    channels: WatermarkState
    start_delay: float
    alignment: float
    sync: float
    submitted_at: float = field(default_factory=time.monotonic)
    finished: bool = False
    snapshotted: int = 0
    """The newest checkpoint for which the subtask has emitted a barrier; told with the final state."""
    exchanges: Sequence[Snapshot] = ()
    """What cut edges add. What they have sealed outlives the checkpoint's abort, and its failure."""


@dataclass
class SnapshotResult:
    job: SnapshotJob
    states: Sequence[OperatorState]
    async_seconds: float
    size: int
    error: str | None = None


class SnapshotWriter:
    """Writes in the order of submission. Results are put on `results`, and `wake` is called for each."""

    def __init__(
        self, blobs: BlobStore, open_writer: Callable[[SubtaskId, int], PieceWriter], wake: Callable[[], None]
    ) -> None:
        self._blobs = blobs
        self._open_writer = open_writer
        self._wake = wake
        self._jobs: queue.SimpleQueue[SnapshotJob | tuple[SubtaskId, Part] | None] = queue.SimpleQueue()
        self._aborted: set[int] = set()
        self.results: queue.SimpleQueue[SnapshotResult] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="snapshot-writer", daemon=True)
        self._thread.start()

    def submit(self, job: SnapshotJob) -> None:
        self._jobs.put(job)

    def store_early(self, subtask: SubtaskId, part: Part) -> None:
        """Store a part of a segment before the snapshot that will name it; if that fails, it is tried again then."""
        self._jobs.put((subtask, part))

    def abort(self, checkpoint: int) -> None:
        """Do not begin to write anything for `checkpoint` any more."""
        self._aborted.add(checkpoint)

    def close(self) -> None:
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if isinstance(job, tuple):
                self._store_part(*job)
                continue
            if job.checkpoint in self._aborted:
                continue
            self.results.put(self._write(job))
            self._wake()

    def _store_part(self, subtask: SubtaskId, part: Part) -> None:
        """Whatever it raises, the snapshot that names the part will find out: this thread has to go on."""
        with contextlib.suppress(Exception):
            part.store(self._open_writer(subtask, 0))
            self._wake()

    def _write(self, job: SnapshotJob) -> SnapshotResult:
        pieces = self._open_writer(job.subtask, job.checkpoint or 0)
        kept = self._open_writer(job.subtask, job.checkpoint or 0)
        writer: StateWriter = pieces if job.checkpoint is not None else _AlwaysShared(pieces)
        try:
            states = [snapshot.write(kept) for snapshot in job.exchanges]
            states += [snapshot.write(writer) for snapshot in job.snapshots]
        except Exception as error:
            self._discard(pieces)
            return SnapshotResult(job, (), time.monotonic() - job.submitted_at, 0, f"{type(error).__name__}: {error}")
        return SnapshotResult(job, states, time.monotonic() - job.submitted_at, pieces.size + kept.size)

    def _discard(self, pieces: PieceWriter) -> None:
        """What cannot be deleted now is an orphan, and swept later."""
        with contextlib.suppress(OSError, StorageError):
            self._blobs.delete(pieces.paths())


class _AlwaysShared:
    """A finished subtask's final state is named by many checkpoints: none of them may take it along when it goes."""

    def __init__(self, writer: PieceWriter) -> None:
        self._writer = writer

    def write_table(self, name: str, table: pa.Table, *, shared: bool = True) -> PieceHandle:
        return self._writer.write_table(name, table, shared=True)

    def write_bytes(self, name: str, data: bytes, *, shared: bool = True) -> PieceHandle:
        return self._writer.write_bytes(name, data, shared=True)
