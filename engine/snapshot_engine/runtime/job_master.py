"""The JobMaster: starts a job's regions, watches them, snapshots them, and restarts what has to be restarted.

Everything happens in one event loop, so each decision is taken alone: which checkpoint to restore, which pending ones
to abort and which regions to restart is one step that nothing can come between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from snapshot_engine.connectors.protocols import SweptJob
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt, ChannelId, SubtaskId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.recovery import (
    FailJob,
    Recovery,
    RecoveryAction,
    ResumeCheckpoints,
    StartRegions,
    StopSlots,
    SuspendCheckpoints,
)
from snapshot_engine.protocol.region_run import ACTIVE, DEPLOYED, RegionRun, RegionState
from snapshot_engine.protocol.restarts import RestartBudget
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.checkpointing import Checkpointing, snapshot_of
from snapshot_engine.runtime.commits import Committer
from snapshot_engine.runtime.control_server import ControlServer, SlotConnection
from snapshot_engine.runtime.deployment import Deployment
from snapshot_engine.runtime.exchanges.failover_facts import FailoverFacts, Keeper
from snapshot_engine.runtime.exchanges.lost_results import had_finished, why_not_from_the_beginning
from snapshot_engine.runtime.exchanges.region_cuts import RegionCuts
from snapshot_engine.runtime.exchanges.source_pauses import SourcePauses
from snapshot_engine.runtime.failure_report import summary
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_result import JobResult, Outcome, told
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.runtime.loops.steering import Loops
from snapshot_engine.runtime.region_shell import RegionShell
from snapshot_engine.runtime.restore import Restore
from snapshot_engine.runtime.slot_task import (
    SlotSettings,
    SlotTask,
    channel_key,
    parse_channel,
    parse_subtask,
    subtask_key,
)
from snapshot_engine.runtime.slot_watch import SlotWatch, out_of_reach
from snapshot_engine.runtime.source_drifts import SourceDrifts
from snapshot_engine.runtime.starting_checkpoint import readable_manifests, starting_checkpoint
from snapshot_engine.storage.checkpoint_store import CheckpointStore
from snapshot_engine.storage.manifest import Manifest

log = logging.getLogger(__name__)

CHANNEL_GRACE_SECONDS = 2.0
"""How long a broken channel may be just the first sign of a slot that is gone."""
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 10.0
"""Between attempts at the checkpoint after which a job that was told to stop does so; each is twice the one before."""
LAST_CHECKPOINT = "the last checkpoint"
"""Who holds checkpoints in such a pause."""


class JobMaster:
    """One per driver. `run` returns when the job has ended, whatever the way."""

    def __init__(
        self,
        settings: JobSettings,
        graph: ExecutionGraph,
        store: CheckpointStore,
        launcher: SlotLauncher,
        secret: bytes,
        events: JobEvents | None = None,
    ) -> None:
        self.settings = settings
        self.graph = graph
        self.events = events or JobEvents()
        self._store = store
        self._launcher = launcher
        self._secret = secret
        self._loop = asyncio.get_running_loop()
        self._began = time.time() - time.monotonic()
        self.generation = store.generation
        self._lineage = store.lineage
        swept = SweptJob(settings.name, self._lineage.id, self._lineage.since)
        self._committer = Committer(graph.graph, swept, self.events.committed, self.events.commit_failed)
        self.checkpoints = Checkpointing(settings, graph, store, self._committer, self, self.clock)
        self._server = ControlServer(secret, self, out_of_reach(settings.heartbeat_timeout))
        self._restore = self._from_nothing = Restore(None, graph)
        self.regions = {
            region.id: RegionShell(RegionRun(region.id, region.slots(), self.generation)) for region in graph.regions
        }
        self.cuts = RegionCuts(graph)
        self._deployment = Deployment(graph, self.cuts, self.regions, self.checkpoints.coordinator)
        self._pauses = SourcePauses(self.cuts, self.regions)
        self._drifts = SourceDrifts(graph, self.regions, self._catches_up, self._later)
        self.watch = SlotWatch(self.regions, launcher, settings, self.events, self.clock, self._region_failed)
        self._facts = FailoverFacts(self.cuts, self._keepers, settings.heartbeat_timeout)
        self._recovery = Recovery(
            {number: shell.run for number, shell in self.regions.items()},
            RestartBudget(settings.restarts.for_regions(len(graph.regions))),
            settings.strategy,
            self.cuts.deterministic,
            self.cuts.starts_after,
        )
        self._loops = Loops(graph, self._send_to_region, self.clock)
        self._deciding: asyncio.Task[None] | None = None
        self._recovery_timer: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[JobResult] = self._loop.create_future()
        self._stop_after: int | None = None
        self._last_pause = FIRST_PAUSE
        self.stopping = False

    def clock(self) -> float:
        """Wall clock seconds that never jump while this driver lives."""
        return self._began + time.monotonic()

    # The job as a whole.

    async def run(self) -> JobResult:
        await self._server.start(self._launcher.control_host, self.settings.slot_port)
        self.checkpoints.start()
        watches = [self._task(self.watch.heartbeats(), "heartbeats"), self._task(self.watch.executors(), "executors")]
        try:
            await self._restore_at_start()
            self._perform(self._recovery.start(self.clock()))
            result = await self._ended
        finally:
            for watch in watches:
                watch.cancel()
            await self._take_down()
        self.events.ended(result)
        return result

    def stop(self, savepoint: str | None = None) -> None:
        """End the job with a savepoint of that name, or else with a last checkpoint. Returns at once."""
        self.stopping = True
        if savepoint is not None:
            self.checkpoints.request_savepoint(savepoint, stop=True)
        else:
            self._stop_after = self.checkpoints.coordinator.next_id
            self.checkpoints.request_checkpoint()

    def delete_savepoint(self, name: str) -> None:
        """Blocks while storage is asked."""
        self._store.delete_savepoint(name)

    def cancel(self, why: str = "cancelled") -> None:
        """End the job at once; the latest completed checkpoint stays."""
        self._end(JobResult(Outcome.STOPPED, why, cut_short=True))

    async def _restore_at_start(self) -> None:
        manifest = await asyncio.to_thread(starting_checkpoint, self.settings, self._store)
        self._restore = Restore(manifest, self.graph, self.settings.allow_non_restored_state)
        self.checkpoints.latest = manifest
        if manifest is not None:
            log.info("restoring from checkpoint %d", manifest.checkpoint)
            self.events.restoring(manifest)
            await self._committer.commit(manifest)
        kept = await asyncio.to_thread(readable_manifests, self._store)
        await self._committer.sweep(self.generation, kept)
        self.checkpoints.sweep()

    def _task(self, work: Coroutine[Any, Any, None], what: str) -> asyncio.Task[None]:
        """A task that the job cannot do without."""
        task = asyncio.create_task(work, name=what)
        task.add_done_callback(self._task_is_over)
        return task

    def _task_is_over(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self.broke_down(task.get_name(), error)

    def _later(self, seconds: float, call: Callable[..., None], *args: Any) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, self._now, call, *args)

    def _now(self, call: Callable[..., None], *args: Any) -> None:
        """Nobody but the log would hear what a callback of the loop raises."""
        try:
            call(*args)
        except Exception as error:
            self.broke_down("recovery", error)

    def broke_down(self, what: str, error: Exception) -> None:
        """An error of ours, after which the job would stand still for ever: it fails, and tells its story."""
        log.error("the JobMaster's %s broke down", what, exc_info=error)
        message = f"the JobMaster's {what} broke down: {summary(error)}"
        where = "".join(traceback.format_exception(error))
        self._end(JobResult(Outcome.FAILED, f"{message}\n{where}", history=told(self._recovery.budget.history)))

    def _end(self, result: JobResult) -> None:
        if not self._ended.done():
            self._recovery.end()
            self._ended.set_result(result)

    async def _take_down(self) -> None:
        self._recovery.end()
        if self._recovery_timer is not None:
            self._recovery_timer.cancel()
        for shell in self.regions.values():
            if shell.run.cancel("the job ends", self.clock()):
                self._stop_slots(shell, "the job ends")
        deadline = time.monotonic() + self.settings.stop_grace_seconds
        while self._any_slot_is_left() and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        for shell in self.regions.values():
            if shell.run.abandon_slots(self.clock()):
                self._launcher.cancel(shell.run.region, shell.run.attempt)
        self._loops.close()
        await self.checkpoints.close()
        await self._server.close()

    def _any_slot_is_left(self) -> bool:
        return any(shell.run.state is RegionState.CANCELLING for shell in self.regions.values())

    # What recovery asks for.

    def _perform(self, actions: Sequence[RecoveryAction]) -> None:
        for action in actions:
            match action:
                case SuspendCheckpoints():
                    self.checkpoints.suspend(action.reason)
                case StopSlots():
                    self._stop_region(action)
                case StartRegions():
                    self._start_regions(action)
                case ResumeCheckpoints():
                    self._resume_checkpoints()
                case FailJob():
                    history = told(action.verdict.history)
                    self._end(JobResult(Outcome.FAILED, action.verdict.reason, history=history))
        if self._recovery.undecided and self._deciding is None:
            self._deciding = self._task(self._decide(), "recovery")
        if self._recovery.all_are_back:
            self._facts.unpin()
        self._set_recovery_timer()

    async def _decide(self) -> None:
        """Which regions restart is decided when no checkpoint is Completing: its manifest may have landed."""
        await self.checkpoints.until_none_is_completing()
        facts = await self._facts.gather(self._latest_checkpoint())
        self._deciding = None
        self._make_lost_results_again()
        self._perform(self._recovery.decide(facts, self.clock()))

    def _make_lost_results_again(self) -> None:
        """Producers that had finished at the checkpoint begin anew; where that cannot be, the job ends."""
        manifest = self.checkpoints.latest
        for cut in self._facts.lost_results() if manifest is not None else ():
            assert manifest is not None
            if not had_finished(self.graph.producer_of(cut.id), manifest):
                continue  # it is made again from the checkpoint on
            deterministic = cut.producer in self.cuts.deterministic
            region = self.graph.regions[cut.producer]
            reason = why_not_from_the_beginning(region, manifest, self.graph, deterministic)
            if reason is not None:
                edge = self.graph.edges[cut.id.edge].uid
                self._end_unrestored(f"the blocking result {edge} is gone, and cannot be made again: {reason}")
                return
            log.warning("region %d is run from its beginning: its blocking result is gone", cut.producer)
            self.regions[cut.producer].begins_anew_at = manifest.checkpoint

    def _restore_of(self, shell: RegionShell) -> Restore:
        if shell.begins_anew_at is not None and shell.begins_anew_at == self._restore.checkpoint:
            return self._from_nothing
        return self._restore

    def _latest_checkpoint(self) -> int:
        return self.checkpoints.latest.checkpoint if self.checkpoints.latest is not None else 0

    def _set_recovery_timer(self) -> None:
        if self._recovery_timer is not None:
            self._recovery_timer.cancel()
            self._recovery_timer = None
        wakeup = self._recovery.next_wakeup()
        if wakeup is not None and not self._ended.done():
            delay = max(0.0, wakeup - self.clock())
            self._recovery_timer = self._later(delay, self._recovery_tick)

    def _recovery_tick(self) -> None:
        self._recovery_timer = None
        self._perform(self._recovery.tick(self.clock()))

    def _stop_region(self, action: StopSlots) -> None:
        """Slots stop by themselves when they are told. Those that do not are given up: their attempt fences them."""
        shell = self.regions[action.region]
        self.events.region_stopping(shell.run)
        self._drifts.region_away(action.region)
        self._stop_slots(shell, action.reason)
        self._later(self.settings.stop_grace_seconds, self._give_up_slots, shell, action.attempt)

    def _give_up_slots(self, shell: RegionShell, attempt: Attempt) -> None:
        if shell.run.accepts(attempt) and shell.run.state is RegionState.CANCELLING:
            self._launcher.cancel(shell.run.region, attempt)
            self._perform(self._recovery.abandon_slots(shell.run.region, attempt, self.clock()))

    def _start_regions(self, action: StartRegions) -> None:
        if self.checkpoints.latest is not self._restore.manifest:
            self._restore = Restore(self.checkpoints.latest, self.graph, True)
        self.events.starting(action.attempts, self._restore.checkpoint)
        self._facts.restarted(action.attempts)
        for number, attempt in action.attempts.items():
            self._hold_checkpoints(number)
            self._drifts.region_away(number)  # one that had finished was never stopped
            self._launch(self.regions[number], attempt)

    def _resume_checkpoints(self) -> None:
        attempts = {
            subtask: self.regions[region.id].run.attempt for region in self.graph.regions for subtask in region.subtasks
        }
        self.checkpoints.resume(attempts)
        if self.cuts.committed and any(attempt.number > 1 for attempt in attempts.values()):
            self.checkpoints.request_checkpoint()  # what was written meanwhile has waited long enough
        self.events.all_running()

    def _hold_checkpoints(self, region: int) -> None:
        """Consumers that go on have seen more than the region will have: no barrier until it has caught up.

        Each slot that keeps logs says so for itself; the others have nothing to say.
        """
        shell = self.regions[region]
        shell.catching_up = self.cuts.goes_back_behind_consumers(region, self._went_on())
        keeping = {slot for slot in shell.run.slots if self.cuts.slot_keeps_logs(region, slot)}
        shell.behind = keeping if shell.catching_up else set()
        self._pauses.region_starts(shell)
        for slot in shell.run.slots:
            self.checkpoints.release((region, slot))  # what an older attempt held
            if slot in shell.behind:
                self.checkpoints.hold((region, slot))

    def _catches_up(self, region: int) -> bool:
        slots = self.regions[region].run.slots
        return any((region, slot) in self.checkpoints.coordinator.holds for slot in slots)

    def _went_on(self) -> list[int]:
        """The regions that are not starting, and not about to: what they have seen, they have seen."""
        up = DEPLOYED | {RegionState.FINISHED}
        return [number for number, shell in self.regions.items() if shell.run.state in up]

    # Starting a region.

    def _launch(self, shell: RegionShell, attempt: Attempt) -> None:
        shell.connections = {}
        shell.ready = set()
        shell.finished_subtasks = set()
        shell.output_seen = False
        self._loops.region_starts(shell.run.region, attempt)
        shell.restored_from = self._restore_of(shell).checkpoint
        task = SlotTask(
            job=self.settings.name,
            region=shell.run.region,
            attempt=attempt,
            graph=self.graph,
            control_host=self._launcher.control_host,
            control_port=self._server.port,
            secret=self._secret,
            settings=SlotSettings(
                self.settings.checkpoint.mode,
                self.settings.storage,
                self.settings.incremental,
                self.settings.heartbeat_seconds,
                self.settings.heartbeat_timeout,
                self.settings.exchange_budget,
                clock=self.settings.clock,
            ),
            lineage=self._lineage.id,
        )
        self._launcher.launch(task, self._on_launch_ended)

    def _keepers(self) -> list[Keeper]:
        """The slots that keep logs and are there."""
        return [
            Keeper(connection, None if connection.slot in shell.ready else shell.restored_from or 0)
            for region in self.cuts.keeping_logs
            if (shell := self.regions[region]).run.state in DEPLOYED
            for connection in shell.connections.values()
            if connection.slot in shell.run.alive
        ]

    def _slot_runs(self, shell: RegionShell, connection: SlotConnection) -> None:
        """Subtasks that had finished at the checkpoint are finished now as well, with the state they left there."""
        for subtask in self.graph.regions[shell.run.region].hosted_by(connection.slot):
            final = self._restore_of(shell).finished(subtask)
            if final is not None:
                self.checkpoints.finished(connection.attempt, subtask, final, self._restore.checkpoint or 0)
                shell.finished_subtasks.add(subtask)
        self._perform(self._recovery.slot_running(shell.run.region, connection.slot, connection.attempt, self.clock()))
        if shell.run.state is RegionState.RUNNING:
            self.events.region_running(shell.run)
            if shell.output_seen:
                self.events.region_delivers(shell.run, 0.0)
        self._end_slot_if_finished(shell, connection.slot)

    # What slots say.

    def slot_arrived(self, connection: SlotConnection) -> bool:
        shell = self.regions.get(connection.region)
        if shell is None or not shell.run.accepts(connection.attempt) or shell.run.state not in ACTIVE:
            return False
        if self.watch.is_fenced(connection.hello.executor):
            reason = f"{connection} came up on executor {connection.hello.executor}, which is lost"
            self._region_failed(shell, connection, "SlotLost", reason)
            return False
        shell.connections[connection.slot] = connection
        self._launcher.slot_started(connection.region, connection.attempt, connection.slot, connection.hello.executor)
        if shell.run.slot_registered(connection.slot, connection.attempt, self.clock()):
            self._deployment.deploy(shell, self._restore_of(shell))
            self._pauses.slots_came(shell)
            self._drifts.tell_region(shell)
        return True

    def slot_said(self, connection: SlotConnection, message: m.Message) -> None:
        shell = self.regions[connection.region]
        if not shell.run.accepts(connection.attempt):
            return
        match message:
            case m.Heartbeat():
                self.events.heartbeat(connection, message.subtasks)
            case m.FirstOutput():
                self._first_output(shell)
            case m.Acknowledged():
                self.events.acknowledged(message.checkpoint, parse_subtask(message.subtask))
                self.checkpoints.acknowledged(connection.attempt, parse_subtask(message.subtask), message)
            case m.Declined():
                self.checkpoints.declined(connection.attempt, parse_subtask(message.subtask), message)
            case m.Ready():
                shell.ready.add(connection.slot)
                self.events.slot_restored(connection, message.restore_seconds)
                self._slot_runs(shell, connection)
            case m.SubtaskFinished():
                subtask = parse_subtask(message.subtask)
                final = snapshot_of(connection.attempt, message.state, finished=True)
                self.checkpoints.finished(connection.attempt, subtask, final, message.snapshotted)
                self._drifts.ended(subtask)
                shell.finished_subtasks.add(subtask)
                self._end_slot_if_finished(shell, subtask.index)
            case m.InputsEnded():
                self.checkpoints.inputs_ended(connection.attempt, parse_subtask(message.subtask))
                self._loops.inputs_ended(connection.region)
            case m.LoopCounted():
                self._loops.counted(connection.region, connection.attempt, message)
            case m.Pinned():
                self._facts.answered(connection, message)
            case m.Pressure():
                self.checkpoints.request_checkpoint()
            case m.CaughtUp():
                self._pauses.slot_caught_up(shell, connection.slot)
                self.checkpoints.release((connection.region, connection.slot))
                self._drifts.tell_region(shell)
            case m.LogFull():
                self._pauses.log_full(shell, connection.slot, message.full)
            case m.SourceTime():
                self._drifts.said(shell, parse_subtask(message.subtask), message.time)
            case m.Failed():
                self._slot_failed(shell, connection, message)
            case m.ChannelLost():
                self._later(CHANNEL_GRACE_SECONDS, self._channel_lost, shell, connection, message)
            case _:
                log.warning("%s sent an unexpected %s", connection, type(message).__name__)

    def _slot_failed(self, shell: RegionShell, connection: SlotConnection, message: m.Failed) -> None:
        where = f"{message.subtask}: " if message.subtask else ""
        if message.unreadable_state:
            self._end_unrestored(where + message.error, shell.restored_from)
            return
        if message.lost_input is not None:
            if self._is_committed(message.lost_input):  # sealed before the checkpoint: nobody makes it again
                self._end_unrestored(where + message.error)
                return
            self._facts.unreadable(message.lost_input)
        self._region_failed(shell, connection, "UserError", where + message.error, message.traceback)

    def _is_committed(self, channel: str) -> bool:
        return self.graph.exchange_of(self.graph.edges[parse_channel(channel).edge]) is Exchange.COMMITTED

    def _end_unrestored(self, reason: str, checkpoint: int | None = None) -> None:
        """Neither a restart nor another driver helps, and no other state is taken without the user's word.

        `checkpoint`: the one that was tried, if that is not the latest.
        """
        message = f"checkpoint {checkpoint or self._latest_checkpoint()} cannot be restored: {reason}"
        history = told(self._recovery.budget.history)
        self._end(JobResult(Outcome.FAILED, message, history=history, unreadable_state=True))

    def slot_gone(self, connection: SlotConnection) -> None:
        shell = self.regions.get(connection.region)
        if shell is None or shell.connections.get(connection.slot) is not connection:
            return
        self._facts.gone(connection)
        self.watch.slot_ended(shell, connection)
        self._region_failed(shell, connection, "SlotLost", f"{connection} {connection.end}")
        self._perform(self._recovery.slot_gone(connection.region, connection.slot, connection.attempt, self.clock()))

    def _first_output(self, shell: RegionShell) -> None:
        """It may come before the last of the other slots has said that it runs."""
        if shell.run.state is RegionState.RUNNING and not shell.output_seen:
            self.events.region_delivers(shell.run, self.clock() - shell.run.entered[RegionState.RUNNING])
        shell.output_seen = True

    def _end_slot_if_finished(self, shell: RegionShell, slot: int) -> None:
        hosted = set(self.graph.regions[shell.run.region].hosted_by(slot))
        if not hosted <= shell.finished_subtasks:
            return
        region, attempt = shell.run.region, shell.run.attempt
        if self.cuts.slot_keeps_logs(region, slot):  # it stays until the job ends: somebody may have to read them again
            self._perform(self._recovery.slot_done(region, slot, attempt, self.clock()))
            return
        self._perform(self._recovery.slot_finished(region, slot, attempt, self.clock()))
        if shell.run.state is RegionState.FINISHED:
            self.events.region_finished(shell.run)
            self._deployment.region_finished(shell)
            self._loops.region_finished(shell.run.region)
            self._stop_slots(shell, "the region has finished")

    def _channel_lost(self, shell: RegionShell, connection: SlotConnection, lost: m.ChannelLost) -> None:
        """The producer's own slot would have been noticed by now: the two cannot reach each other."""
        channel = parse_channel(lost.channel)
        run = self.regions[self.graph.region_of[self.graph.producer_of(channel)].id].run
        if list(run.attempt) != lost.producer or run.state not in DEPLOYED:
            return  # it was restarted since, or is about to be
        if not shell.run.accepts(connection.attempt) or shell.run.state not in ACTIVE:
            return  # so was the consumer
        edge = self.graph.edges[channel.edge]
        self._facts.unreadable(lost.channel)
        message = f"cannot read the input {edge.uid}: channel {lost.channel} broke between two living slots"
        self._region_failed(shell, connection, "ChannelLost", f"{message} ({lost.reason})")

    def _on_launch_ended(self, region: int, attempt: Attempt, error: str | None) -> None:
        """Called from a thread of the launcher."""
        with contextlib.suppress(RuntimeError):  # the loop is closed: the driver is ending
            self._loop.call_soon_threadsafe(self._now, self._launch_ended, region, attempt, error)

    def _launch_ended(self, region: int, attempt: Attempt, error: str | None) -> None:
        shell = self.regions[region]
        if not shell.run.accepts(attempt):
            return
        self._region_failed(shell, attempt, "SparkJobEnded", error or "its slots ended without a word")
        for slot in shell.run.alive:
            self._perform(self._recovery.slot_gone(region, slot, attempt, self.clock()))

    # Failure and recovery.

    def _region_failed(
        self, shell: RegionShell, source: SlotConnection | Attempt, cause: str, message: str, traceback: str = ""
    ) -> None:
        """`source`: the slot that failed, or the attempt where it is not known which."""
        attempt, silent = source, 0.0
        if isinstance(source, SlotConnection):
            attempt, silent = source.attempt, time.monotonic() - source.last_heard
        assert isinstance(attempt, Attempt)
        if self._ended.done() or not shell.run.accepts(attempt) or shell.run.state not in ACTIVE:
            return
        self.events.region_failed(shell.run, cause, message, traceback, silent)
        log.warning("region %d, attempt %s failed: %s: %s", shell.run.region, attempt, cause, message)
        said = f"{cause}: {message}"
        self._perform(self._recovery.failed(shell.run.region, attempt, said, random.random(), self.clock()))

    def _stop_slots(self, shell: RegionShell, reason: str) -> None:
        for connection in shell.connections.values():
            connection.send(m.Stop(reason))

    # What checkpointing asks for and tells.

    def send_to_subtasks(self, subtasks: Sequence[SubtaskId], make: Callable[[list[str]], m.Message]) -> None:
        by_slot: dict[tuple[int, int], list[str]] = defaultdict(list)
        for subtask in subtasks:
            by_slot[(self.graph.region_of[subtask].id, subtask.index)].append(subtask_key(subtask))
        for (region, slot), keys in by_slot.items():
            connection = self.regions[region].connections.get(slot)
            if connection is not None:
                connection.send(make(keys))

    def _send_to_region(self, region: int, message: m.Message) -> None:
        for connection in self.regions[region].connections.values():
            connection.send(message)

    def send_to_all(self, message: m.Message) -> None:
        for shell in self.regions.values():
            for connection in shell.connections.values():
                connection.send(message)

    def checkpoint_committed(self, checkpoint: int, published: Mapping[ChannelId, list[Any]]) -> None:
        """Everybody is told, and readers of stored exchanges what they may read now."""
        by_slot: dict[tuple[int, int], dict[str, list[Any]]] = defaultdict(dict)
        for channel, segments in published.items():
            consumer = self.graph.consumer_of(channel)
            by_slot[self.graph.region_of[consumer].id, consumer.index][channel_key(channel)] = segments
        for number, shell in self.regions.items():
            for slot, connection in shell.connections.items():
                connection.send(m.Completed(checkpoint, by_slot[number, slot]))

    def checkpoint_triggered(self, checkpoint: int) -> None:
        self.events.checkpoint_triggered(checkpoint)

    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        self.events.checkpoint_completed(manifest, outcome, path, uri, written)
        if outcome.stop:
            self._end(JobResult(Outcome.STOPPED, "stopped with a savepoint", savepoint=uri))
        elif outcome.commits and self._stop_after is not None and outcome.checkpoint >= self._stop_after:
            if self.checkpoints.all_committed:
                self._end(JobResult(Outcome.STOPPED, f"stopped after checkpoint {outcome.checkpoint}"))
            else:
                self.checkpoints.request_checkpoint()

    def checkpoint_aborted(self, action: Abort) -> None:
        self.events.checkpoint_aborted(action)
        if self._stop_after is not None:
            self._pause_before_the_last()
        elif action.stop:
            self.stopping = False  # the job goes on, and may be told again

    def _pause_before_the_last(self) -> None:
        """What made this one fail (a full disk, for instance) would make the next one fail too, and the restarts that
        come of it be used up in a moment: nothing is triggered meanwhile, whatever the interval."""
        if LAST_CHECKPOINT in self.checkpoints.coordinator.holds:
            return
        self.checkpoints.hold(LAST_CHECKPOINT)
        self._later(self._last_pause, self._ask_again_for_the_last)
        self._last_pause = min(2 * self._last_pause, LONGEST_PAUSE)

    def _ask_again_for_the_last(self) -> None:
        if not self._ended.done():
            self.checkpoints.request_checkpoint()
            self.checkpoints.release(LAST_CHECKPOINT)

    def checkpoints_keep_failing(self, reason: str) -> None:
        """The whole job starts again from the latest completed checkpoint."""
        log.warning("restarting the job: %s", reason)
        self.events.all_failed(reason)
        self._perform(self._recovery.failed_globally(reason, random.random(), self.clock()))

    def last_commit_failed(self, reason: str) -> None:
        """Nothing is lost, but neither is it visible: whoever thinks that the job has ended well must not."""
        advice = "what is prepared stands in the last checkpoint, and is committed when the job is started again"
        self._end(JobResult(Outcome.FAILED, f"{reason}; {advice}"))

    def job_finished(self) -> None:
        self._end(JobResult(Outcome.FINISHED, "all sources have ended and all output is committed"))

    def lost_ownership(self, error: Exception) -> None:
        self._end(JobResult(Outcome.FENCED, str(error)))
