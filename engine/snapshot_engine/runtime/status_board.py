"""What the status API and the terminal show: the job's status, kept up to date by its events."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobVertex
from snapshot_engine.graph.slots_at_once import slots_at_once
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import PARTS, CriticalPath
from snapshot_engine.protocol.elements import Attempt, SubtaskId
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import ExecutorInfo
from snapshot_engine.runtime.vertex_figures import Totals, VertexFigures
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.status import (
    MAX_HISTORY_ENTRIES,
    MAX_REPORTED_SAVEPOINTS,
    CheckpointEntry,
    CheckpointOutcome,
    CheckpointProgress,
    ExecutorStatus,
    JobStatus,
    PathStep,
    Phase,
    RegionFailure,
    RegionState,
    RegionStatus,
    RestartEntry,
    SavepointState,
    SavepointStatus,
    SlotPlace,
    SlotStatus,
    SlowestStep,
    VertexStatus,
)

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_result import JobResult

LONGEST_MESSAGE = 2000
HEARTBEATS_SHOWN_SECONDS = 0.5
_ENDED = {"finished": Phase.FINISHED, "stopped": Phase.STOPPED, "failed": Phase.FAILED, "fenced": Phase.FAILED}


def now() -> datetime:
    return datetime.now(UTC)


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


class StatusBoard(JobEvents):
    """`revision` grows with every change; `transition` only with those that somebody should hear of at once."""

    def __init__(
        self,
        settings: JobSettings,
        graph: ExecutionGraph,
        figures: VertexFigures,
        generation: int,
        application: str | None,
    ) -> None:
        self.revision = 1
        self.transition = 1
        self.changed = asyncio.Condition()
        self._waking: set[asyncio.Future[None]] = set()
        self._figures = figures
        self._figures_shown_at = 0.0
        self._subtasks = len(graph.subtasks)
        self._executors: dict[tuple[int, int], SlotConnection] = {}
        self._places: dict[tuple[int, int], SlotPlace] = {}
        self._usable: Sequence[ExecutorInfo] = ()
        self._history: deque[CheckpointEntry] = deque(maxlen=MAX_HISTORY_ENTRIES)
        self._restarts: deque[RestartEntry] = deque(maxlen=MAX_HISTORY_ENTRIES)
        self._under_way: dict[int, CheckpointProgress] = {}
        needed = slots_at_once(graph)
        self.status = JobStatus(
            name=settings.name,
            namespace=settings.namespace,
            uid=settings.uid,
            generation=generation,
            application_id=application,
            phase=Phase.STARTING,
            started_at=now(),
            regions=[
                RegionStatus(id=str(region.id), vertices=region.vertices(), state=RegionState.WAITING)
                for region in graph.regions
            ],
            slots=SlotStatus(total=needed, needed=needed),
        )

    def recall(self, history: Iterable[Mapping[str, Any]], restarts: Iterable[RestartEntry]) -> None:
        """Checkpoints and restarts under earlier drivers, as storage remembers them."""
        for entry in history:
            self._history.append(_entry_of(entry))
        self._restarts.extend(restarts)
        self._show_history()
        self._show_restarts()

    def snapshot(self) -> JobStatus:
        """The status as it is now; later changes do not show in it."""
        return self.status.model_copy(deep=True)

    # Regions.

    def restoring(self, manifest: Manifest) -> None:
        self._describe_last(manifest, None)

    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None:
        for number, attempt in attempts.items():
            region = self.status.regions[number]
            region.state = RegionState.SCHEDULING
            region.attempt = attempt.number
            region.restarts = attempt.number - 1
            region.last_restored_checkpoint = checkpoint
            region.running_since = None
            self._forget_places(number)
        self.status.restarts = sum(region.restarts for region in self.status.regions)
        self._note(transition=True)

    def region_running(self, run: RegionRun) -> None:
        region = self.status.regions[run.region]
        region.state = RegionState.RUNNING
        region.running_since = now()
        self._note(transition=True)

    def region_finished(self, run: RegionRun) -> None:
        self.status.regions[run.region].state = RegionState.FINISHED
        self._forget_places(run.region)
        self._executors = {key: slot for key, slot in self._executors.items() if key[0] != run.region}
        self._describe_executors()

    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        region = self.status.regions[run.region]
        region.state = RegionState.STOPPING
        text = f"{message}\n{traceback}" if traceback else message
        region.last_failure = RegionFailure(at=now(), cause=cause, message=text[:LONGEST_MESSAGE])
        self.status.phase = Phase.RECOVERING
        self._note(transition=True)

    def region_stopping(self, run: RegionRun) -> None:
        self.status.regions[run.region].state = RegionState.STOPPING
        self._note(transition=True)

    def restart_begun(self, entry: RestartEntry) -> None:
        """It is filled in while it goes on."""
        self._restarts.append(entry)
        self._show_restarts()
        self._note()

    def _show_restarts(self) -> None:
        self.status.restart_history = list(reversed(self._restarts))

    def all_running(self) -> None:
        self.status.phase = Phase.RUNNING
        self._note(transition=True)

    def ended(self, result: JobResult) -> None:
        self.status.phase = _ENDED[result.outcome.value]
        self.status.slot_places = []
        if self.status.phase is Phase.FAILED:
            self.status.error = "\n".join([result.message, *result.history])[:LONGEST_MESSAGE]
        self._note(transition=True)

    def heartbeat(self, connection: SlotConnection, subtasks: dict[str, dict[str, Any]]) -> None:
        self._show_vertices()
        known = self._executors.get((connection.region, connection.slot))
        self._executors[(connection.region, connection.slot)] = connection
        if known is not connection:
            self._show_place(connection)
        if known is None or known.hello.executor != connection.hello.executor:
            self._describe_executors()

    def _show_place(self, connection: SlotConnection) -> None:
        hello = connection.hello
        self._places[connection.region, connection.slot] = SlotPlace(
            region=str(connection.region),
            slot=connection.slot,
            attempt=connection.attempt.number,
            executor_id=hello.executor,
            pod_name=hello.pod,
            host=hello.host,
            pid=hello.pid,
        )
        self.status.slot_places = list(self._places.values())
        self._note()

    def _forget_places(self, region: int) -> None:
        """Its processes are gone, or about to go."""
        self._places = {key: place for key, place in self._places.items() if key[0] != region}
        self.status.slot_places = list(self._places.values())

    def executors_changed(self, executors: Sequence[ExecutorInfo]) -> None:
        self._usable = executors
        self.status.slots.total = sum(executor.slots for executor in executors)
        self._describe_executors()

    def _show_vertices(self) -> None:
        if time.monotonic() - self._figures_shown_at < HEARTBEATS_SHOWN_SECONDS:
            return
        self._figures_shown_at = time.monotonic()
        totals = self._figures.totals()
        rates = self._figures.rates(totals)
        vertices = self._figures.graph.vertices
        self.status.vertices = [
            _vertex_status(vertices[uid], known, rates.get(uid, {})) for uid, known in totals.items()
        ]

    def _describe_executors(self) -> None:
        """Those with slots, and those that are kept free: whoever watches their pods may say that one is lost."""
        found = {
            executor.id: ExecutorStatus(executor_id=executor.id, host=executor.host, standby=True)
            for executor in self._usable
            if executor.standby
        }
        for connection in self._executors.values():
            hello = connection.hello
            executor = found.setdefault(hello.executor, ExecutorStatus(executor_id=hello.executor))
            executor.host, executor.pod_name, executor.standby = hello.host, hello.pod, False
            executor.slots += 1
            if str(connection.region) not in executor.regions:
                executor.regions.append(str(connection.region))
        self.status.executors = list(found.values())
        self.status.slots.used = len(self._executors)
        self._note(transition=True)

    # Checkpoints.

    def checkpoint_triggered(self, checkpoint: int) -> None:
        if checkpoint not in self._under_way:  # a head of a loop is triggered when its inputs have ended
            progress = CheckpointProgress(id=checkpoint, triggered_at=now(), subtasks=self._subtasks)
            self._under_way[checkpoint] = progress
        self._show_history()
        self._note()

    def acknowledged(self, checkpoint: int, subtask: SubtaskId) -> None:
        if checkpoint in self._under_way:
            self._under_way[checkpoint].acknowledged += 1

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        self._under_way.pop(outcome.checkpoint, None)
        duration = outcome.completed_at - outcome.triggered_at
        entry = CheckpointEntry(
            id=outcome.checkpoint,
            outcome=CheckpointOutcome.COMPLETED,
            triggered_at=at(outcome.triggered_at),
            completed_at=at(outcome.completed_at),
            duration_seconds=duration,
            size_bytes=written,
            full_size_bytes=manifest.size(),
            path=uri,
            critical_path=[PathStep(subtask=str(step.subtask), **step.parts) for step in path.steps],
        )
        entry.slowest = _slowest(entry.critical_path)
        self._history.append(entry)
        self._show_history()
        checkpoint = self.status.checkpoint
        is_first = checkpoint.last_completed_id is None  # somebody waits for that one, and not for the next
        checkpoint.completed += 1
        if outcome.savepoint is not None:
            self._savepoint_done(outcome.savepoint, outcome.checkpoint, uri)
        if outcome.commits:
            checkpoint.consecutive_failures = 0
            self._describe_last(manifest, uri)
            checkpoint.size_bytes = written
            checkpoint.duration_seconds = duration
        self._note(transition=outcome.savepoint is not None or is_first)

    def checkpoint_aborted(self, action: Abort) -> None:
        reason = action.reason[:LONGEST_MESSAGE]
        self._under_way.pop(action.checkpoint, None)
        self._history.append(
            CheckpointEntry(
                id=action.checkpoint,
                outcome=CheckpointOutcome.ABORTED,
                triggered_at=at(action.triggered_at),
                completed_at=now(),
                reason=reason,
            )
        )
        self._show_history()
        checkpoint = self.status.checkpoint
        checkpoint.failed += 1
        checkpoint.consecutive_failures += action.failed
        checkpoint.last_failure = reason
        if action.savepoint is not None:
            known = self.savepoint(action.savepoint)
            if known is not None:
                known.state = SavepointState.FAILED
                known.error = reason
        self._note(transition=action.savepoint is not None)

    def _describe_last(self, manifest: Manifest, uri: str | None) -> None:
        checkpoint = self.status.checkpoint
        checkpoint.last_completed_id = manifest.checkpoint
        checkpoint.path = uri
        checkpoint.full_size_bytes = manifest.size()
        checkpoint.completed_at = at(manifest.completed_at)

    def _show_history(self) -> None:
        self.status.checkpoint.history = list(reversed(self._history))
        self.status.checkpoint.in_progress = sorted(self._under_way)
        self.status.checkpoint.under_way = list(self._under_way.values())

    # Savepoints.

    def savepoint(self, name: str) -> SavepointStatus | None:
        return next((known for known in self.status.savepoints if known.name == name), None)

    def savepoint_requested(self, name: str) -> SavepointStatus:
        """In place of an earlier one of that name: what became of that is no answer to this request."""
        known = SavepointStatus(name=name, state=SavepointState.PENDING, requested_at=now())
        others = [each for each in self.status.savepoints if each.name != name]
        self.status.savepoints = [*others, known][-MAX_REPORTED_SAVEPOINTS:]
        self._note(transition=True)
        return known

    def _savepoint_done(self, name: str, checkpoint: int, uri: str) -> None:
        known = self.savepoint(name) or self.savepoint_requested(name)
        known.state = SavepointState.COMPLETED
        known.path = uri
        known.checkpoint_id = checkpoint
        known.completed_at = now()

    def _note(self, transition: bool = False) -> None:
        self.revision += 1
        if transition:
            self.transition = self.revision
        task = asyncio.ensure_future(self._wake())
        self._waking.add(task)
        task.add_done_callback(self._waking.discard)

    async def _wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()


def _vertex_status(vertex: JobVertex, known: Totals, rates: Mapping[str, float]) -> VertexStatus:
    def share(name: str) -> float:
        return min(1.0, rates.get(name, 0.0) / vertex.parallelism)

    return VertexStatus(
        name=vertex.uid,
        parallelism=vertex.parallelism,
        records_in=int(known.counted["rows_in"]),
        records_out=int(known.counted["rows_out"]),
        records_in_per_second=rates.get("rows_in", 0.0),
        records_out_per_second=rates.get("rows_out", 0.0),
        busy=share("busy"),
        backpressured=share("blocked"),
        idle=share("idle"),
        state_keys=int(known.summed.get("state_keys", 0)),
        state_bytes=int(known.summed.get("state_bytes", 0)),
        watermark=at(known.watermark / 1000) if known.watermark is not None else None,
        source_lag=int(known.summed["lag"]) if "lag" in known.summed else None,
        late_rows=int(known.counted["late_rows"]),
    )


def _slowest(path: Sequence[PathStep]) -> SlowestStep | None:
    if not path:
        return None
    parts = [{part: float(getattr(step, part.replace("async", "async_"))) for part in PARTS} for step in path]
    worst = max(range(len(path)), key=lambda number: sum(parts[number].values()))
    return SlowestStep(
        subtask=path[worst].subtask,
        vertex=path[worst].subtask.rpartition("[")[0],
        part=max(PARTS, key=parts[worst].__getitem__),
        seconds=sum(parts[worst].values()),
    )


def _entry_of(doc: Mapping[str, Any]) -> CheckpointEntry:
    completed = doc.get("completedAt", 0.0)
    triggered = doc.get("triggeredAt", completed)
    path = [PathStep.model_validate(step) for step in doc.get("criticalPath", ())]
    return CheckpointEntry(
        id=doc["id"],
        outcome=CheckpointOutcome(doc["outcome"]),
        triggered_at=at(triggered),
        completed_at=at(completed),
        duration_seconds=completed - triggered if doc["outcome"] == "Completed" else None,
        size_bytes=doc.get("sizeBytes"),
        full_size_bytes=doc.get("fullSizeBytes"),
        path=doc.get("path"),
        reason=doc.get("reason"),
        critical_path=path,
        slowest=_slowest(path),
    )
