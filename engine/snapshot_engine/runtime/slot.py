"""A slot: the process in which subtask i of every vertex of a region runs.

One loop over non-blocking sockets and bounded queues; the only other thread writes snapshots. No send ever blocks the
loop: a subtask whose output has no room is not run until it has, while the others go on, so two slots can never wait
for each other.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from snapshot_engine.channels.dialing import Greeting, Listener, SlotAddress, dial
from snapshot_engine.channels.poller import Poller
from snapshot_engine.channels.sockets import SocketInbound
from snapshot_engine.graph.job_graph import JobEdge
from snapshot_engine.protocol.alignment import DeclineCheckpoint
from snapshot_engine.protocol.elements import Barrier, ChannelId, SubtaskId
from snapshot_engine.runtime import channel_times
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.clocks import clock_ms
from snapshot_engine.runtime.control_link import ControlLink
from snapshot_engine.runtime.exchanges.segment_reading import UnreadableInput
from snapshot_engine.runtime.exchanges.slot_exchanges import SlotExchanges
from snapshot_engine.runtime.failure_report import (
    failing_operator,
    state_is_unreadable,
    summary,
    user_traceback,
)
from snapshot_engine.runtime.loops.head import HeadSubtask
from snapshot_engine.runtime.loops.obeying import obey
from snapshot_engine.runtime.slot_subtasks import SlotSubtasks
from snapshot_engine.runtime.slot_task import SlotTask, channel_key, parse_channel, subtask_key
from snapshot_engine.runtime.snapshot_writer import SnapshotResult, SnapshotWriter
from snapshot_engine.runtime.subtask import Subtask, Waiting
from snapshot_engine.runtime.told_reader import ToldReader
from snapshot_engine.storage.pieces import PieceWriter

FLUSH_SECONDS = 0.005
"""How long rows may wait for company while the slot is busy with other things."""
GATHER_SECONDS = 0.02
"""The same for rows that are combined meanwhile: what goes out in the end costs the same, be it of few rows or many."""
LONGEST_WAIT_SECONDS = 0.1
SOURCE_TIME_MS = 10
"""Between two words of how far sources have come: event time may run quickly."""
TURN_SECONDS = 0.005
"""A consumer goes on for so long before a source is asked for more: queues stay short, and barriers are quick."""
SWITCH_SECONDS = 0.0005
"""How long the thread that writes snapshots waits for the interpreter; Python's own 5 ms are for each of its steps."""


class Slot:
    """Runs until the JobMaster says stop, until the JobMaster is gone, or until something raises."""

    def __init__(self, task: SlotTask, slot: int, executor: str) -> None:
        self._task = task
        self._slot = slot
        self._executor = executor
        self._stopping = False
        self._deployed: m.Deploy | None = None
        self._until_deployed: list[m.Message] | None = []
        """What came meanwhile; None once the subtasks are there."""
        self._poller = Poller()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poller.register(self._wake_fd, self._woken)
        address = (task.control_host, task.control_port)
        self._control = ControlLink(address, self._poller, self._on_message, self._stop)
        self._channel_key = m.proof_of(task.secret, task.region, *task.attempt, -1)
        self._listener = Listener(self._poller, self._channel_key, self._control.local_host, self._on_consumer)
        self._early: list[tuple[Greeting, socket.socket]] = []
        self._inbounds: list[SocketInbound] = []
        self._blobs = task.settings.storage.open()
        self._writer = SnapshotWriter(self._blobs, self._piece_writer, self._wake)
        self._copies = task.settings.storage.copies(task.settings.local_folder)
        if self._copies is not None:
            self._copies.sweep()
        self._named: dict[int, set[str]] = {}
        """The pieces that this slot's snapshots have named, by checkpoint: what local copies are kept of."""
        reader = task.settings.storage.reader(self._blobs, self._copies)
        self._exchanges = SlotExchanges(
            task,
            self._poller,
            reader,
            self._writer.store_early,
            self._control.send,
            self._wake,
            attrgetter("sent_schema"),
        )
        self._parts = SlotSubtasks(
            task,
            slot,
            self._poller,
            ToldReader(reader, self._beat_while_restoring),
            self._exchanges,
            self._writer.submit,
            self._decline,
            lambda subtask: self._control.send(m.InputsEnded(subtask_key(subtask))),
        )
        self._last_vertices = task.graph.regions[task.region].last_vertices(task.graph.graph)
        self._awaiting_output = True
        self._next_heartbeat = 0.0
        self._flushed_at = self._gathered_since = 0.0
        self._drifting: list[Subtask] = []
        """Sources that keep together with others in event time."""
        self._next_source_time = 0

    def run(self) -> None:
        """Everything, from the first word to the last."""
        sys.setswitchinterval(SWITCH_SECONDS)
        try:
            self._say_hello()
            self._wait_for_deployment()
            if self._deployed is not None:
                self._deploy(self._deployed)
                self._loop()
        except (Exception, SystemExit) as error:  # a function that calls sys.exit() is one that failed
            self._report(error)
        finally:
            self._close()

    def _say_hello(self) -> None:
        task, address = self._task, self._listener.address
        self._control.send(
            m.Hello(
                region=task.region,
                generation=task.attempt.generation,
                attempt=task.attempt.number,
                slot=self._slot,
                executor=self._executor,
                pod=os.environ.get("SPARK_EXECUTOR_POD_NAME"),
                host=self._control.local_host,
                pid=os.getpid(),
                address=[address.namespace, address.unix, address.host, address.port],
                proof=m.proof_of(task.secret, task.region, *task.attempt, self._slot),
            )
        )

    def _wait_for_deployment(self) -> None:
        while self._deployed is None and not self._stopping:
            self._poller.poll(LONGEST_WAIT_SECONDS)
            self._beat()

    def _deploy(self, deploy: m.Deploy) -> None:
        started = time.perf_counter()
        self._parts.build(deploy)
        self._drifting = [subtask for subtask in self._parts.subtasks if subtask.drift is not None]
        for greeting, connection in self._early:
            if not self._admit(greeting, connection):
                connection.close()
        for key, (address, _, attempt) in deploy.producers.items():
            if parse_channel(key) in self._parts.remote_inputs:
                self._dial(parse_channel(key), SlotAddress(*address), tuple(attempt))
        self._exchanges.connect(deploy.producers)
        waiting, self._until_deployed = self._until_deployed or [], None
        for message in waiting:
            self._on_message(message)
        self._control.send(m.Ready(time.perf_counter() - started))

    def _dial(self, channel: ChannelId, address: SlotAddress, producer_attempt: Any) -> None:
        greeting = Greeting(channel, producer_attempt, self._task.attempt)
        schema = self._task.graph.edges[channel.edge].sent_schema
        queue = self._parts.remote_inputs[channel]
        said = greeting.signed(self._channel_key)
        self._inbounds.append(SocketInbound(queue, dial(address), schema, self._poller, self._on_channel_lost, said))

    def _loop(self) -> None:
        while not self._stopping:
            now, processing_time = clock_ms(), self._task.settings.clock()
            progressed = False
            paused = self._exchanges.sources_paused
            for subtask in self._parts.subtasks:
                subtask.sources_paused = paused
                if subtask.run(now, TURN_SECONDS):
                    progressed = True
                deadline = subtask.deadline()
                if deadline is not None and deadline <= processing_time:
                    subtask.on_deadline(processing_time)
            flushed = self._flush(not progressed)
            self._poller.poll(0 if progressed or flushed else self._wait(now, processing_time))
            self._exchanges.turn()
            self._hand_in_snapshots()
            if self._awaiting_output:
                self._tell_first_output()
            self._say_source_times(now)
            self._beat()

    def _tell_first_output(self) -> None:
        """The first rows have come to an end of the region: its recovery is over."""
        if any(subtask.has_worked for subtask in self._parts.subtasks if subtask.id.vertex in self._last_vertices):
            self._awaiting_output = False
            self._control.send(m.FirstOutput())

    def _say_source_times(self, now: int) -> None:
        """For sources that keep together: others may have to wait for them, or may go on."""
        if self._drifting and now >= self._next_source_time:
            for subtask in self._drifting:
                if subtask.drift is not None and subtask.drift.has_news:
                    self._next_source_time = now + SOURCE_TIME_MS
                    self._control.send(m.SourceTime(subtask_key(subtask.id), subtask.drift.say()))

    def _hear_least_time(self, message: m.LeastTime) -> None:
        vertices = self._task.graph.drift_groups[message.group].vertices
        for subtask in self._drifting:
            if subtask.id.vertex in vertices:
                subtask.told_least_time(message.time)

    def _flush(self, idle: bool) -> bool:
        """Send rows that wait for company: when there is nothing to do, and every few milliseconds otherwise."""
        now = time.monotonic()
        if not idle and now - self._flushed_at < FLUSH_SECONDS:
            return False
        self._flushed_at = now
        gathered = idle or now - self._gathered_since >= GATHER_SECONDS
        if gathered:
            self._gathered_since = now
        flushed = False
        for subtask in self._parts.subtasks:
            if subtask.router.dirty:
                subtask.router.flush(gathered=gathered)
                flushed = True
        return flushed

    def _wait(self, now: int, processing_time: int) -> float:
        """How long nothing will happen unless something arrives."""
        subtasks = self._parts.subtasks
        waits = [deadline - processing_time for subtask in subtasks if (deadline := subtask.deadline()) is not None]
        waits += [until - now for subtask in subtasks if (until := subtask.source_wait()) is not None]
        return min(LONGEST_WAIT_SECONDS, max(0.0, min(waits, default=1000) / 1000))

    def _on_message(self, message: m.Message) -> None:
        if self._until_deployed is not None and not isinstance(message, m.Deploy | m.Stop):
            self._until_deployed.append(message)
            return
        match message:
            case m.Deploy():
                self._deployed = message
            case m.Stop():
                self._stop()
            case m.Trigger():
                self._trigger(message)
            case m.Completed():
                for subtask in self._parts.subtasks:
                    subtask.complete(message.checkpoint)
                self._exchanges.publish(message.segments)
                self._keep_copies_from(message.checkpoint)
            case m.Aborted():
                self._writer.abort(message.checkpoint)
                for subtask in self._parts.subtasks:
                    subtask.abort(message.checkpoint)
            case m.Connect():
                self._exchanges.connect(message.producers)
            case m.ConsumersFinished():
                self._exchanges.consumers_finished(message.channels)
            case m.Pin():
                self._control.send(self._exchanges.pin(message))
            case m.Unpin():
                self._exchanges.unpin(message.checkpoint)
            case m.PauseSources():
                self._exchanges.pause_sources(message)
            case m.LeastTime():
                self._hear_least_time(message)
            case m.Ping():
                pass
            case m.SteerLoop():
                counted = obey(message, self._parts.subtasks)
                if counted is not None:
                    self._control.send(counted)
            case _:
                raise m.BadMessage(f"a slot is not sent {type(message).__name__}")

    def _trigger(self, message: m.Trigger) -> None:
        barrier = Barrier(message.checkpoint, message.triggered_at)
        for subtask in self._parts.subtasks:
            if subtask_key(subtask.id) in message.subtasks:
                subtask.trigger(barrier, message.stop)

    def _on_consumer(self, greeting: Greeting, connection: socket.socket) -> bool:
        """Let a consumer in, if it means this attempt. One that comes before the deployment is kept until then."""
        if greeting.producer_attempt != tuple(self._task.attempt):
            return False
        if not self._parts.subtasks:
            self._early.append((greeting, connection))
            return True
        return self._admit(greeting, connection)

    def _admit(self, greeting: Greeting, connection: socket.socket) -> bool:
        if self._exchanges.keeps(greeting.channel):
            return self._exchanges.accept(greeting, connection)
        outbound = self._parts.remote_outputs.get(greeting.channel)
        if outbound is None or outbound.connected:
            return False
        outbound.attach(connection)
        return True

    def _on_channel_lost(self, channel: ChannelId, why: str) -> None:
        self._control.send(m.ChannelLost(channel_key(channel), list(self._task.attempt), why))

    def _decline(self, subtask: SubtaskId, action: DeclineCheckpoint) -> None:
        self._control.send(m.Declined(action.checkpoint, subtask_key(subtask), action.reason))

    def _hand_in_snapshots(self) -> None:
        while not self._writer.results.empty():
            result = self._writer.results.get()
            if self._copies is not None and result.job.checkpoint is not None:
                paths = {piece.path for state in result.states for piece in state.pieces}
                self._named.setdefault(result.job.checkpoint, set()).update(paths)
            self._control.send(_answer(result, self._task.graph.edges))

    def _keep_copies_from(self, checkpoint: int) -> None:
        if self._copies is not None:
            self._named = {number: paths for number, paths in self._named.items() if number >= checkpoint}
            self._copies.keep_only(set().union(*self._named.values()))

    def _beat(self) -> None:
        now = time.monotonic()
        if now >= self._next_heartbeat:
            self._next_heartbeat = now + self._task.settings.heartbeat_seconds
            self._control.send(m.Heartbeat({subtask_key(s.id): _figures(s) for s in self._parts.subtasks}))

    def _beat_while_restoring(self) -> None:
        """A large state takes long to read. Each piece that comes is a sign of life; one that never comes is none."""
        now = time.monotonic()
        if self._until_deployed is not None and now >= self._next_heartbeat:
            self._next_heartbeat = now + self._task.settings.heartbeat_seconds
            self._control.send(m.Heartbeat({}))

    def _piece_writer(self, subtask: SubtaskId, checkpoint: int) -> PieceWriter:
        storage = self._task.settings.storage
        return PieceWriter(
            self._blobs,
            storage.where,
            checkpoint=checkpoint,
            vertex=subtask.vertex,
            subtask=subtask.index,
            attempt=self._task.attempt,
            options=storage.pieces,
            copies=self._copies,
        )

    def _report(self, error: Exception | SystemExit) -> None:
        lost = channel_key(error.channel) if isinstance(error, UnreadableInput) else None
        hopeless = lost is None and state_is_unreadable(error)
        named = failing_operator(error, self._parts.nodes())
        self._control.send(m.Failed(None, None, summary(named), user_traceback(named), lost, hopeless))
        self._control.drain(2.0)

    def _wake(self) -> None:
        os.eventfd_write(self._wake_fd, 1)

    def _woken(self) -> None:
        os.eventfd_read(self._wake_fd)

    def _stop(self) -> None:
        self._stopping = True

    def _close(self) -> None:
        for subtask in self._parts.subtasks:
            subtask.close()
        for inbound in self._inbounds:
            inbound.close()
        self._exchanges.close()
        self._writer.close()
        self._listener.close()
        self._control.drain(1.0)
        self._control.close()
        self._poller.close()
        # The eventfd stays open for the writer's thread, which may still be writing; it goes with the process.


def _answer(result: SnapshotResult, edges: Mapping[int, JobEdge]) -> m.Message:
    job = result.job
    key = subtask_key(job.subtask)
    timings = {
        "start_delay": job.start_delay,
        "alignment": job.alignment,
        "sync": job.sync,
        "async": result.async_seconds,
        "size": float(result.size),
    }
    state = {
        "operators": [state.to_json() for state in result.states],
        "channels": channel_times.to_json(job.channels, edges),
    }
    if job.finished and result.error is None:
        return m.SubtaskFinished(key, state, job.snapshotted)
    if job.finished:
        return m.Failed(key, None, f"the final state could not be written: {result.error}", "")
    assert job.checkpoint is not None
    if result.error is not None:
        return m.Declined(job.checkpoint, key, result.error)
    return m.Acknowledged(job.checkpoint, key, state, timings)


def _figures(subtask: Subtask) -> dict[str, Any]:
    keys, size = subtask.state_size()
    activity = subtask.activity
    kept, budget = subtask.exchanges.kept()
    figures = {
        "rows_in": activity.rows_in,
        "bytes_in": activity.bytes_in,
        "rows_out": subtask.router.rows_out,
        "bytes_out": subtask.router.bytes_out,
        "busy": activity.busy_seconds,
        "blocked": activity.waited(Waiting.FOR_ROOM),
        "idle": activity.waited(Waiting.FOR_INPUT),
        "late_rows": subtask.late_rows(),
        "watermark": activity.watermark if activity.watermark is not None else subtask.router.last_watermark,
        "lag": subtask.source_lag(),
        "state_keys": keys,
        "state_bytes": size,
        "kept_bytes": kept,
        "kept_budget": budget,
    }
    if isinstance(subtask, HeadSubtask):
        figures["loop_queue_bytes"], figures["loop_log_bytes"] = subtask.loop_bytes()
    return figures
