"""The shell around the checkpoint coordinator: sends what it asks for, writes manifests, has sinks commit.

Manifests are written and committed one after the other: the next checkpoint completes only when all that the one before
has prepared is visible, so that no manifest is ever the only one to name something uncommitted and then forgotten.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.checkpoints import (
    Abort,
    Completed,
    CoordinatorAction,
    Discard,
    FailOver,
    Finished,
    Trigger,
    WriteManifest,
)
from snapshot_engine.protocol.committed_exchange import Segment
from snapshot_engine.protocol.coordinator import Coordinator
from snapshot_engine.protocol.critical_path import CriticalPath, Timings, critical_path
from snapshot_engine.protocol.elements import Attempt, ChannelId, SubtaskId
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.commits import CommitFailed, Committer
from snapshot_engine.runtime.exchanges.manifest_segments import place_segments
from snapshot_engine.runtime.exchanges.stored_segments import WRITTEN, publication
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.errors import NoIdsLeft, OwnershipLost, StorageError, StorageUnavailable
from snapshot_engine.storage.manifest import Manifest, PathStep, SubtaskSnapshot, VertexSnapshot
from snapshot_engine.storage.manifest import Timings as StoredTimings

log = logging.getLogger(__name__)

CLOSING_SECONDS = 10.0


class CheckpointListener(Protocol):
    """The JobMaster, as checkpointing sees it."""

    def send_to_subtasks(self, subtasks: Sequence[SubtaskId], make: Callable[[list[str]], m.Message]) -> None: ...
    def send_to_all(self, message: m.Message) -> None: ...
    def checkpoint_triggered(self, checkpoint: int) -> None: ...
    def checkpoint_committed(self, checkpoint: int, published: Mapping[ChannelId, list[Any]]) -> None: ...
    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None: ...
    def checkpoint_aborted(self, action: Abort) -> None: ...
    def checkpoints_keep_failing(self, reason: str) -> None: ...
    def last_commit_failed(self, reason: str) -> None: ...
    def job_finished(self) -> None: ...
    def lost_ownership(self, error: Exception) -> None: ...
    def broke_down(self, what: str, error: Exception) -> None: ...


class Checkpointing:
    def __init__(
        self,
        settings: JobSettings,
        graph: ExecutionGraph,
        store: CheckpointStore,
        committer: Committer,
        listener: CheckpointListener,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._graph = graph
        self._store = store
        self._committer = committer
        self._listener = listener
        self._clock = clock
        self._upstream = {subtask: graph.barriers_from(subtask) for subtask in graph.subtasks}
        self._issued = first = store.next_checkpoint_id()
        """The highest id that the store has given out to this driver."""
        self.coordinator = Coordinator(settings.checkpoint, graph.subtasks, graph.triggered(), first)
        self.latest: Manifest | None = None
        """The newest completed checkpoint: what a restart is restored from."""
        self._uncommitted: Manifest | None = None
        self._to_write: asyncio.Queue[WriteManifest | None] = asyncio.Queue()
        self._written: asyncio.Event = asyncio.Event()
        self._cleaning: set[asyncio.Task[None]] = set()
        self._reserving: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._worker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._worker = asyncio.create_task(self._write_manifests(), name="manifests")

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._worker is not None:
            # What is being completed is completed: a manifest without its commit would surprise whoever looks next.
            self._to_write.put_nowait(None)
            await asyncio.wait({self._worker}, timeout=CLOSING_SECONDS)
            self._worker.cancel()
        if self._cleaning:
            await asyncio.wait(self._cleaning, timeout=5.0)

    # What the JobMaster tells.

    def resume(self, attempts: dict[SubtaskId, Attempt]) -> None:
        self._perform(self.coordinator.resume(attempts, self._clock()))

    def suspend(self, reason: str) -> None:
        self._perform(self.coordinator.suspend(reason, self._clock()))

    async def until_none_is_completing(self) -> None:
        """A failover waits for the checkpoint whose manifest is being written, and for its commit."""
        while self.coordinator.completing is not None:
            self._written.clear()
            await self._written.wait()

    def acknowledged(self, attempt: Attempt, subtask: SubtaskId, message: m.Acknowledged) -> None:
        now = self._clock()
        snapshot = _timed(snapshot_of(attempt, message.state, finished=False), message.timings)
        if gone := self._store.deleted_among(snapshot.handles()):
            reason = f"it refers to pieces that are deleted: {', '.join(gone)}"
            self._perform(self.coordinator.decline(message.checkpoint, subtask, attempt, reason, now))
            return
        timings = _from_stored(snapshot.timings)
        self._perform(self.coordinator.acknowledge(message.checkpoint, subtask, attempt, snapshot, timings, now))

    def declined(self, attempt: Attempt, subtask: SubtaskId, message: m.Declined) -> None:
        self._perform(self.coordinator.decline(message.checkpoint, subtask, attempt, message.reason, self._clock()))

    def finished(self, attempt: Attempt, subtask: SubtaskId, state: SubtaskSnapshot, snapshotted: int) -> None:
        self._perform(self.coordinator.finished(subtask, attempt, state, snapshotted, self._clock()))

    def inputs_ended(self, attempt: Attempt, subtask: SubtaskId) -> None:
        self._perform(self.coordinator.inputs_ended(subtask, attempt, self._clock()))

    def hold(self, key: Hashable) -> None:
        """Trigger nothing until `release`: a producer that restarted alone is catching up."""
        self.coordinator.hold(key)

    def release(self, key: Hashable) -> None:
        self._perform(self.coordinator.release(key, self._clock()))

    def request_checkpoint(self) -> None:
        self._perform(self.coordinator.request_checkpoint(self._clock()))

    def request_savepoint(self, name: str, stop: bool) -> None:
        self._perform(self.coordinator.request_savepoint(name, self._clock(), stop))

    # What the coordinator asks for.

    def _perform(self, actions: Iterable[CoordinatorAction]) -> None:
        for action in actions:
            match action:
                case Trigger():
                    self._trigger(action)
                case WriteManifest():
                    self._begin_to_write(action)
                case Abort():
                    self._abort(action)
                case Discard():
                    self._discard(action.checkpoint, [action.state], whole=False)
                case FailOver():
                    self._listener.checkpoints_keep_failing(action.reason)
                case Completed() | Finished():
                    raise AssertionError("only a written manifest leads to these")
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wakeup = self.coordinator.next_wakeup()
        if wakeup is not None:
            delay = max(0.0, wakeup - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        try:
            self._perform(self.coordinator.tick(self._clock()))
        except Exception as error:
            self._listener.broke_down("checkpointing", error)

    def _trigger(self, action: Trigger) -> None:
        try:
            self._reserve(action.barrier.checkpoint)
        except NoIdsLeft as error:
            self._perform(self.coordinator.not_triggered(action.barrier.checkpoint, str(error), self._clock()))
            return
        self._listener.checkpoint_triggered(action.barrier.checkpoint)
        barrier = action.barrier
        self._listener.send_to_subtasks(
            action.subtasks,
            lambda subtasks: m.Trigger(barrier.checkpoint, barrier.triggered_at, subtasks, action.stop),
        )

    def _begin_to_write(self, action: WriteManifest) -> None:
        """One that is made of final states alone was never triggered: it has no id from the store yet."""
        try:
            self._reserve(action.checkpoint)
        except NoIdsLeft as error:
            self._perform(self.coordinator.manifest_failed(action.checkpoint, str(error), self._clock()))
            return
        self._to_write.put_nowait(action)

    def _reserve(self, checkpoint: int) -> None:
        """Ids are given out by the store, so that no later driver uses one again."""
        if self._store.ids_run_out and self._reserving is None:
            self._reserving = asyncio.create_task(self._reserve_more(), name="checkpoint ids")
        while self._issued < checkpoint:
            self._issued = self._store.next_checkpoint_id()

    async def _reserve_more(self) -> None:
        """Not in the way of anything: storage may take long to answer, above all when checkpoints fail in a row."""
        try:
            await asyncio.to_thread(self._store.reserve_ids)
        except (OwnershipLost, StorageUnavailable) as error:
            self._listener.lost_ownership(error)
        except (OSError, StorageError) as error:
            log.warning("storage gives out no new checkpoint ids: %s", error)
        finally:
            self._reserving = None

    def _abort(self, action: Abort) -> None:
        log.info("checkpoint %d aborted: %s", action.checkpoint, action.reason)
        self._listener.send_to_all(m.Aborted(action.checkpoint))
        self._store.note_aborted(
            {
                "id": action.checkpoint,
                "outcome": "Aborted",
                "triggeredAt": action.triggered_at,
                "completedAt": self._clock(),
                "reason": action.reason,
            }
        )
        self._discard(action.checkpoint, action.discard.values(), whole=True)
        self._listener.checkpoint_aborted(action)

    def _discard(self, checkpoint: int, states: Iterable[object], whole: bool) -> None:
        handles = _handles(states, sealed=False)
        references = self._pending_references()
        folder = checkpoint if whole else None
        self._in_background(lambda: self._store.discard(handles, checkpoint=folder, references=references))

    def _pending_references(self) -> set[str]:
        states = self.coordinator.acknowledged_states()
        return {handle.path for handle in _handles(states) if handle.shared}

    def sweep(self) -> None:
        """Delete what crashes and earlier drivers left behind in storage."""
        # Looked up here: the coordinator belongs to this thread. What is begun later is too young to be swept.
        pending, references = self.coordinator.pending, self._pending_references()
        self._in_background(lambda: self._store.sweep(pending=pending, references=references))

    def _in_background(self, work: Callable[[], Any]) -> None:
        """Cleaning: what fails is an orphan, and swept later."""

        async def run() -> None:
            try:
                await asyncio.to_thread(work)
            except Exception as error:
                log.warning("cleaning up checkpoint files failed: %s", error)

        task = asyncio.create_task(run())
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    # Completing.

    async def _write_manifests(self) -> None:
        while (action := await self._to_write.get()) is not None:
            try:
                await self._complete(action)
            except (OwnershipLost, StorageUnavailable) as error:
                self._listener.lost_ownership(error)
                return
            except Exception as error:
                self._listener.broke_down(f"completing of checkpoint {action.checkpoint}", error)
                return
            finally:
                self._written.set()

    async def _complete(self, action: WriteManifest) -> None:
        if self._uncommitted is not None and not await self._commit(self._uncommitted):
            reason = f"checkpoint {self._uncommitted.checkpoint} is still not committed"
            self._perform(self.coordinator.manifest_failed(action.checkpoint, reason, self._clock()))
            return
        path = critical_path(self._timings_of(action), self._upstream)
        placed = place_segments(_snapshots(action), self.latest, self._graph)
        manifest = self._manifest(action, path, placed.snapshots)
        try:
            uri, replaced = await asyncio.to_thread(self._store_manifest, manifest, action)
        except (OwnershipLost, StorageUnavailable):
            raise
        except (OSError, StorageError) as error:
            self._perform(self.coordinator.manifest_failed(action.checkpoint, str(error), self._clock()))
            return
        if action.retained:
            self.latest = manifest
        outcome, others = self._take_outcome(self.coordinator.manifest_written(action.checkpoint, self._clock()))
        self._perform([other for other in others if not isinstance(other, Finished)])
        finished = any(isinstance(other, Finished) for other in others)
        if not outcome.commits:
            self._discard(action.checkpoint, action.states.values(), whole=True)
        elif await self._commit(manifest, last=finished or outcome.stop):
            self._after_commit(outcome, replaced, placed.published)
        self._listener.checkpoint_completed(manifest, outcome, path, uri, self._written_bytes(manifest))
        if finished:
            self._listener.job_finished()

    def _take_outcome(self, actions: Sequence[CoordinatorAction]) -> tuple[Completed, list[CoordinatorAction]]:
        outcome = next(action for action in actions if isinstance(action, Completed))
        return outcome, [action for action in actions if action is not outcome]

    def _store_manifest(self, manifest: Manifest, action: WriteManifest) -> tuple[str, list[Any]]:
        """Runs in a thread. Raises OSError only if the checkpoint is known not to have become complete."""
        uri = ""
        if action.savepoint is not None:
            uri = self._store.complete_savepoint(manifest, action.savepoint)
        replaced = self._store.complete(manifest, self._settings.retained) if action.retained else []
        return uri or self._store.uri_of(manifest), list(replaced)

    def _written_bytes(self, manifest: Manifest) -> int:
        """Without what earlier checkpoints had written already."""
        entries = [entry for entry in self._store.history() if entry["id"] == manifest.checkpoint]
        return int(entries[-1]["sizeBytes"]) if entries else manifest.size()

    @property
    def all_committed(self) -> bool:
        """Whether all that completed checkpoints have prepared is visible."""
        return self._uncommitted is None

    async def _commit(self, manifest: Manifest, last: bool = False) -> bool:
        """Whether all that `manifest` names is visible now. If not, it is tried again before the next one completes,
        or, if it is the last one, by the next driver.
        """
        try:
            await self._committer.commit(manifest)
        except CommitFailed as error:
            self._uncommitted = manifest
            if last:
                self._listener.last_commit_failed(str(error))
            else:
                self._listener.checkpoints_keep_failing(str(error))
            return False
        self._uncommitted = None
        return True

    def _after_commit(
        self, outcome: Completed, replaced: list[Any], published: Mapping[ChannelId, Sequence[Segment]]
    ) -> None:
        """Only now may subtasks forget what they had prepared, and the checkpoints that this one replaces go.

        What writers of stored exchanges had sealed is visible now.
        """
        self._listener.checkpoint_committed(
            outcome.checkpoint, {channel: publication(segments) for channel, segments in published.items()}
        )
        pending, references = self.coordinator.pending, self._pending_references()
        for entry in replaced:
            self._in_background(partial(self._store.delete_checkpoint, entry, pending, references))

    def _timings_of(self, action: WriteManifest) -> dict[SubtaskId, Timings]:
        return {
            subtask: _from_stored(state.timings)
            for subtask, state in action.states.items()
            if isinstance(state, SubtaskSnapshot) and subtask not in action.finished
        }

    def _manifest(
        self, action: WriteManifest, path: CriticalPath, snapshots: Mapping[SubtaskId, SubtaskSnapshot]
    ) -> Manifest:
        by_vertex: dict[str, dict[int, SubtaskSnapshot]] = defaultdict(dict)
        for subtask, state in snapshots.items():
            by_vertex[subtask.vertex][subtask.index] = state
        vertices = {
            uid: VertexSnapshot(self._graph.graph.vertices[uid].parallelism, subtasks)
            for uid, subtasks in by_vertex.items()
        }
        steps = tuple(PathStep(str(step.subtask), StoredTimings(*step[1:])) for step in path.steps)
        return Manifest(
            checkpoint=action.checkpoint,
            generation=self._store.generation,
            job=self._settings.name,
            job_uid=self._settings.uid,
            triggered_at=action.triggered_at,
            completed_at=self._clock(),
            key_groups=self._graph.graph.key_groups,
            vertices=vertices,
            critical_path=steps,
        )


def snapshot_of(attempt: Attempt, state: dict[str, Any], finished: bool) -> SubtaskSnapshot:
    """A subtask's word on its state, as the manifest keeps it."""
    operators = tuple(OperatorState.from_json(doc) for doc in state["operators"])
    return SubtaskSnapshot(attempt, operators, finished, state["channels"])


def _timed(snapshot: SubtaskSnapshot, doc: dict[str, float]) -> SubtaskSnapshot:
    return replace(snapshot, timings=StoredTimings(doc["start_delay"], doc["alignment"], doc["sync"], doc["async"]))


def _from_stored(timings: StoredTimings) -> Timings:
    return Timings(timings.start_delay, timings.alignment, timings.sync, timings.async_)


def _snapshots(action: WriteManifest) -> dict[SubtaskId, SubtaskSnapshot]:
    return {subtask: state for subtask, state in action.states.items() if isinstance(state, SubtaskSnapshot)}


def _handles(states: Iterable[object], sealed: bool = True) -> list[PieceHandle]:
    """`sealed`: also what stored exchanges have sealed, which is not discarded with a checkpoint."""
    return [
        handle
        for state in states
        if isinstance(state, SubtaskSnapshot)
        for operator in state.operators
        if sealed or operator.kind != WRITTEN
        for handle in operator.pieces
    ]
