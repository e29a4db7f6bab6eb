"""A small job's checkpoints, without a job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pytest

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot, VertexSnapshot
from snapshot_engine.storage.memory import MemoryBlobs
from snapshot_engine.storage.ownership import Ownership
from snapshot_engine.storage.pieces import PieceOptions, PieceWriter

WHERE = Layout("ns", "job")
UID = "uid-1"


class FakeTime:
    """Sleeping only moves the clock."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Job:
    """Takes checkpoints of one subtask whose state is one table."""

    time: FakeTime

    def store(self, blobs: BlobStore, patience: float = 60.0) -> CheckpointStore:
        ownership = Ownership(blobs, WHERE, patience=patience, sleep=self.time.sleep, clock=self.time)
        return CheckpointStore(blobs, "ns", "job", ownership=ownership, clock=self.time)

    def acquired(self, blobs: BlobStore) -> CheckpointStore:
        store = self.store(blobs)
        store.acquire(UID)
        return store

    def writer(self, store: CheckpointStore, checkpoint: int, **options: object) -> PieceWriter:
        return PieceWriter(
            store.blobs,
            WHERE,
            checkpoint=checkpoint,
            vertex="count",
            subtask=0,
            attempt=Attempt(store.generation, 1),
            options=PieceOptions(inline_below=1, **options),  # type: ignore[arg-type]
        )

    def manifest(self, store: CheckpointStore, checkpoint: int, *pieces: PieceHandle) -> Manifest:
        states = (OperatorState("count", "counts", meta={"checkpoint": checkpoint}, pieces=pieces),)
        subtask = SubtaskSnapshot(Attempt(store.generation, 1), states)
        return Manifest(
            checkpoint=checkpoint,
            generation=store.generation,
            job="job",
            job_uid=UID,
            triggered_at=self.time() - 1,
            completed_at=self.time(),
            key_groups=128,
            vertices={"count": VertexSnapshot(1, {0: subtask})},
        )

    def checkpoint(self, store: CheckpointStore, retained: int = 2, shared: bool = False) -> Manifest:
        """Take one and complete it, deleting what it replaces."""
        number = store.next_checkpoint_id()
        piece = self.writer(store, number).write_table("state", pa.table({"n": [number] * 100}), shared=shared)
        manifest = self.manifest(store, number, piece)
        for replaced in store.complete(manifest, retained):
            store.delete_checkpoint(replaced)
        return manifest


@pytest.fixture
def time() -> FakeTime:
    return FakeTime()


@pytest.fixture
def job(time: FakeTime) -> Job:
    return Job(time)


@pytest.fixture
def blobs(time: FakeTime) -> MemoryBlobs:
    return MemoryBlobs(clock=time)


@pytest.fixture
def paths() -> Callable[[BlobStore], list[str]]:
    """All files of the job but for current.json."""

    def list_paths(blobs: BlobStore) -> list[str]:
        found = [WHERE.relative(path) for path, _ in blobs.list(WHERE.job_folder)]
        return [path for path in found if not path.startswith("current")]

    return list_paths
