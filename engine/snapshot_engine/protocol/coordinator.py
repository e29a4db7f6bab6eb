"""The checkpoint coordinator: when checkpoints are triggered, and when they are complete.

It takes events and the time and returns actions, in the order in which they must be carried out. It begins
suspended: nothing is triggered before the first `resume`. At most one checkpoint is Completing at a time, so
manifests are written one after the other, in the order of their numbers.

A message counts only if its attempt is the one the coordinator knows for that subtask. Anything else is
ignored and counted in `ignored`, so lost, late and doubled messages do no harm.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Hashable, Mapping
from typing import NamedTuple

from snapshot_engine.protocol.checkpoints import (
    Abort,
    Checkpoint,
    CheckpointConfig,
    CheckpointState,
    Completed,
    CoordinatorAction,
    Discard,
    FailOver,
    Finished,
    Trigger,
    WriteManifest,
)
from snapshot_engine.protocol.critical_path import Timings
from snapshot_engine.protocol.elements import Attempt, Barrier, SubtaskId

REMEMBERED_ABORTS = 256  # how long the files of a late acknowledgement can still be named and deleted


class _SavepointRequest(NamedTuple):
    name: str
    stop: bool


class _Final(NamedTuple):
    """A finished subtask's last word."""

    attempt: Attempt
    state: object
    snapshotted: int


class Coordinator:
    """One per driver. `next_id` must be greater than any checkpoint number that was ever used for the job."""

    def __init__(
        self,
        config: CheckpointConfig,
        subtasks: Collection[SubtaskId],
        sources: Collection[SubtaskId],
        next_id: int = 1,
    ) -> None:
        self._config = config
        self._subtasks = frozenset(subtasks)
        self._sources = frozenset(sources)
        self._next_id = next_id
        self._attempts: dict[SubtaskId, Attempt] = {}
        self._active: dict[int, Checkpoint] = {}  # Pending and Completing, in ascending order
        self._aborted: deque[int] = deque(maxlen=REMEMBERED_ABORTS)
        self._finals: dict[SubtaskId, _Final] = {}  # also of attempts that are not known yet, or no more
        self._finished: set[SubtaskId] = set()  # those of them that count
        self._without_inputs: dict[SubtaskId, Attempt] = {}
        self._requests: deque[_SavepointRequest] = deque()
        self._holds: set[Hashable] = set()
        self._suspended = True
        self._over = False  # stopped with a savepoint, or finished: nothing is triggered any more
        self._wanted_at_once = False
        self._last_trigger = 0.0
        self._last_end = float("-inf")
        self._failures_in_a_row = 0
        self.latest_completed: int | None = None
        """The newest checkpoint that completed under this coordinator and that a restart would use."""
        self.ignored: Counter[str] = Counter()
        """Messages that were not acted on, by reason; for the metrics."""

    # What the shell looks at.

    @property
    def next_id(self) -> int:
        return self._next_id

    @property
    def suspended(self) -> bool:
        return self._suspended

    @property
    def completing(self) -> int | None:
        """The checkpoint whose manifest is being written. A failover waits until there is none."""
        return next((n for n, c in self._active.items() if c.state is CheckpointState.COMPLETING), None)

    @property
    def pending(self) -> tuple[int, ...]:
        """Checkpoints whose barriers may still be aligned: what a replaying consumer is given."""
        return tuple(n for n, c in self._active.items() if c.state is CheckpointState.PENDING)

    @property
    def holds(self) -> frozenset[Hashable]:
        """Who is waited for before anything is triggered."""
        return frozenset(self._holds)

    @property
    def finished_subtasks(self) -> frozenset[SubtaskId]:
        return frozenset(self._finished)

    @property
    def oldest_active(self) -> int | None:
        """The oldest checkpoint that is not over. It may be older than the latest completed one: a savepoint
        is not subsumed, and needs what its subtasks referred to when they took it.
        """
        return min(self._active, default=None)

    def final_state(self, subtask: SubtaskId) -> object:
        """What a finished subtask has left; None if it has not finished."""
        final = self._finals.get(subtask)
        return final.state if final is not None else None

    def waiting_for(self, checkpoint: int) -> frozenset[SubtaskId]:
        """Who has not acknowledged `checkpoint` yet."""
        return frozenset(self._active[checkpoint].waiting) if checkpoint in self._active else frozenset()

    def acknowledged_states(self) -> list[object]:
        """What has been acknowledged for checkpoints that are not over, and by finished subtasks.

        What these states refer to must not be deleted.
        """
        pending = [state for checkpoint in self._active.values() for state in checkpoint.states.values()]
        return pending + [final.state for final in self._finals.values()]

    def next_wakeup(self) -> float | None:
        """When `tick` has to be called next, if nothing else happens before."""
        times = [self._deadline(c) for c in self._active.values() if self._may_time_out(c)]
        if self._may_trigger():
            times.append(self._next_trigger())
        return min(times, default=None)

    # Events: the job as a whole.

    def resume(self, attempts: Mapping[SubtaskId, Attempt], now: float) -> list[CoordinatorAction]:
        """Everything runs (again), with these attempts. A subtask with a new attempt has not finished.

        Raises ValueError while a checkpoint is Completing: the regions would have been restored from an older
        one than the latest.
        """
        if (completing := self.completing) is not None:
            raise ValueError(
                f"resume while checkpoint {completing} is Completing: wait for its outcome before choosing "
                "the checkpoint to restore from"
            )
        if missing := self._subtasks - attempts.keys():
            raise ValueError(f"resume without the attempt of {', '.join(map(str, sorted(missing)))}")
        self._attempts = dict(attempts)
        self._finished = {s for s, final in self._finals.items() if self._is_current(s, final.attempt)}
        self._suspended = False
        self._failures_in_a_row = 0
        self._last_trigger = now
        return self._advance(now)

    def suspend(self, reason: str, now: float) -> list[CoordinatorAction]:
        """A failover begins: what is Pending is aborted, what is Completing goes on. Counts as no failure."""
        self._suspended = True
        return self._abort_all(reason, now)

    def hold(self, key: Hashable) -> None:
        """Trigger nothing until `release(key)`: a producer that restarted alone is catching up.

        Hold before `resume`. With the region as the key, release what an older attempt of it may have held
        whenever the region is started again.
        """
        self._holds.add(key)

    def release(self, key: Hashable, now: float) -> list[CoordinatorAction]:
        self._holds.discard(key)
        return self._advance(now)

    def tick(self, now: float) -> list[CoordinatorAction]:
        """Time has passed: abort what took too long, trigger what is due."""
        actions: list[CoordinatorAction] = []
        late = [c for c in self._active.values() if self._may_time_out(c) and now >= self._deadline(c)]
        for checkpoint in late:
            if checkpoint.number in self._active:
                waiting = ", ".join(map(str, sorted(checkpoint.waiting)))
                reason = f"not complete after {self._config.timeout:g} s; still waiting for {waiting}"
                actions += self._fail(checkpoint, reason, now)
        return actions + self._advance(now)

    def request_savepoint(self, name: str, now: float, stop: bool = False) -> list[CoordinatorAction]:
        """Take a savepoint as soon as possible: at once, or when the job runs again. Interval and pause do
        not apply. It ends in `Completed` or `Abort` with this name.
        """
        self._requests.append(_SavepointRequest(name, stop))
        return self._advance(now)

    def request_checkpoint(self, now: float) -> list[CoordinatorAction]:
        """Trigger a checkpoint before its time, since a log is under pressure or the job is to end
        cleanly.
        """
        self._wanted_at_once = True
        return self._advance(now)

    def not_triggered(self, checkpoint: int, reason: str, now: float) -> list[CoordinatorAction]:
        """`checkpoint` was to be triggered, but that could not be done: it is aborted, and the next one is tried."""
        known = self._active.get(checkpoint)
        if known is None or known.state is not CheckpointState.PENDING:
            return []
        return self._fail(known, reason, now) + self._advance(now)

    # Events: one subtask.

    def acknowledge(
        self,
        checkpoint: int,
        subtask: SubtaskId,
        attempt: Attempt,
        state: object,
        timings: Timings,
        now: float,
    ) -> list[CoordinatorAction]:
        """`subtask` has written its snapshot; `state` is what the manifest will say of it."""
        known = self._active.get(checkpoint)
        if known is None:
            return self._ignore_late(checkpoint, subtask, state)
        if not self._is_current(subtask, attempt):
            self._ignore("acknowledgement of another attempt")
            return [Discard(checkpoint, subtask, state)]
        if subtask not in known.waiting:
            self._ignore("acknowledgement a second time")
            return []
        known.acknowledge(subtask, state, timings)
        return self._advance(now)

    def decline(
        self, checkpoint: int, subtask: SubtaskId, attempt: Attempt, reason: str, now: float
    ) -> list[CoordinatorAction]:
        """`subtask` could not take or write its snapshot: the checkpoint is aborted, the job goes on."""
        known = self._active.get(checkpoint)
        if known is None or known.state is not CheckpointState.PENDING:
            self._ignore("decline of a checkpoint that is not pending")
            return []
        if not self._is_current(subtask, attempt) or subtask not in known.waiting:
            self._ignore("decline of another attempt")
            return []
        return self._fail(known, f"declined by {subtask}: {reason}", now) + self._advance(now)

    def inputs_ended(self, subtask: SubtaskId, attempt: Attempt, now: float) -> list[CoordinatorAction]:
        """All regular inputs of `subtask` have ended, but it goes on (it heads a loop): from now on it is
        triggered like a source, for what is pending as well.
        """
        if self._is_outdated(subtask, attempt, self._without_inputs.get(subtask)):
            self._ignore("end of inputs of another attempt")
            return []
        self._without_inputs[subtask] = attempt
        pending = [c for c in self._active.values() if subtask in c.waiting]
        return [Trigger(c.barrier, (subtask,), c.savepoint, c.stop) for c in pending] + self._advance(now)

    def finished(
        self, subtask: SubtaskId, attempt: Attempt, state: object, snapshotted: int, now: float
    ) -> list[CoordinatorAction]:
        """`subtask` has handled its last element; `state` is what it leaves, prepared transactions included.

        `snapshotted` is the newest checkpoint for which it has emitted a barrier (`Alignment.settled`). For
        any newer one its final state counts as its acknowledgement; older ones still need the one it sent, or
        its consumers' snapshots would lie before its own. An attempt newer than the known one is remembered
        until `resume`, since a subtask may finish before the others run.
        """
        said = self._finals.get(subtask)
        if self._is_outdated(subtask, attempt, said.attempt if said else None):
            self._ignore("finish of another attempt")
            return []
        self._finals[subtask] = _Final(attempt, state, snapshotted)
        if not self._is_current(subtask, attempt):
            return []
        self._finished.add(subtask)
        for checkpoint in self._active.values():
            if subtask in checkpoint.waiting and checkpoint.number > snapshotted:
                checkpoint.take_final(subtask, state)
        return self._advance(now)

    # Events: the manifest.

    def manifest_written(self, checkpoint: int, now: float) -> list[CoordinatorAction]:
        """The manifest of `checkpoint` has landed, for certain."""
        known = self._completing(checkpoint)
        known.machine.go(CheckpointState.COMPLETED, now, "its manifest has landed")
        del self._active[checkpoint]
        self._last_end = now
        subsumed = self._subsumed_by(known)
        actions: list[CoordinatorAction] = [
            Completed(
                checkpoint,
                known.commits,
                known.barrier.triggered_at,
                now,
                known.timings,
                known.savepoint,
                known.stop,
                tuple(c.number for c in subsumed),
            )
        ]
        for older in subsumed:
            actions += self._abort(older, f"checkpoint {checkpoint} completed first", now)
        return actions + self._after_completion(known) + self._advance(now)

    def manifest_failed(self, checkpoint: int, reason: str, now: float) -> list[CoordinatorAction]:
        """The manifest of `checkpoint` is known not to have landed, now and for ever."""
        return self._fail(self._completing(checkpoint), reason, now) + self._advance(now)

    def _completing(self, checkpoint: int) -> Checkpoint:
        known = self._active.get(checkpoint)
        if known is None or known.state is not CheckpointState.COMPLETING:
            story = "; ".join(known.machine.history) if known else "it is not active"
            raise ValueError(f"an outcome for checkpoint {checkpoint}, which is not Completing ({story})")
        return known

    def _subsumed_by(self, completed: Checkpoint) -> list[Checkpoint]:
        """A newer checkpoint makes older ones pointless, and an older stop would take back what it committed. The
        savepoint of a running job is never pointless and subsumes nothing.
        """
        if not completed.commits:
            return []
        return [c for c in self._active.values() if c.number < completed.number and c.commits]

    def _after_completion(self, completed: Checkpoint) -> list[CoordinatorAction]:
        if not completed.commits:
            return []
        self.latest_completed = completed.number
        self._failures_in_a_row = 0
        if completed.stop:
            self._over = True
        elif completed.finished == self._subtasks and self._finished == self._subtasks:
            self._over = True
            return [Finished()]
        return []

    # Deciding what comes next; every event ends here.

    def _advance(self, now: float) -> list[CoordinatorAction]:
        actions = self._complete_next(now)
        if self._suspended or self._over:
            return actions
        if self._requests and not self._holds:
            requests, self._requests = self._requests, deque()
            for request in requests:
                actions += self._trigger(now, request)
        elif self._finished == self._subtasks:
            actions += self._begin_last_one(now)
        elif self._may_trigger() and now >= self._next_trigger():
            actions += self._trigger(now, None)
        return actions

    def _complete_next(self, now: float) -> list[CoordinatorAction]:
        if self.completing is not None:
            return []
        ready = next((c for c in self._active.values() if not c.waiting), None)
        if ready is None:
            return []
        ready.machine.go(CheckpointState.COMPLETING, now, "every subtask has acknowledged")
        return [
            WriteManifest(
                ready.number,
                ready.states,
                frozenset(ready.finished),
                ready.barrier.triggered_at,
                ready.savepoint,
                ready.stop,
            )
        ]

    def _begin_last_one(self, now: float) -> list[CoordinatorAction]:
        """All have finished: one checkpoint of nothing but final states commits what is left."""
        under_way = any(c.finished == self._subtasks and c.commits for c in self._active.values())
        if under_way or (self._failures_in_a_row and now < self._next_trigger()):
            return []
        return self._trigger(now, None)

    def _may_trigger(self) -> bool:
        if self._suspended or self._over or self._holds:
            return False
        if any(c.stop for c in self._active.values()):
            return False
        if self._finished == self._subtasks:
            return self._failures_in_a_row > 0
        periodic = sum(c.savepoint is None for c in self._active.values())
        asked_for = self._config.interval is not None or self._wanted_at_once
        return asked_for and periodic < self._config.max_concurrent and bool(self._triggerable())

    def _next_trigger(self) -> float:
        if self._wanted_at_once:
            return self._last_trigger
        interval = self._config.interval if self._config.interval is not None else 1.0
        return max(self._last_trigger + interval, self._last_end + self._config.min_pause)

    def _triggerable(self) -> list[SubtaskId]:
        """Sources, and heads of loops without open inputs, that have not finished."""
        heads = {s for s, attempt in self._without_inputs.items() if attempt == self._attempts.get(s)}
        return sorted(s for s in self._sources | heads if s not in self._finished)

    def _trigger(self, now: float, request: _SavepointRequest | None) -> list[CoordinatorAction]:
        barrier = Barrier(self._next_id, now)
        self._next_id += 1
        if request is None:
            self._last_trigger = now
            self._wanted_at_once = False
        checkpoint = Checkpoint(barrier, set(self._subtasks))
        if request is not None:
            checkpoint.savepoint, checkpoint.stop = request
        for subtask in self._finished:
            checkpoint.take_final(subtask, self._finals[subtask].state)
        self._active[barrier.checkpoint] = checkpoint
        trigger = Trigger(barrier, tuple(self._triggerable()), checkpoint.savepoint, checkpoint.stop)
        return [trigger, *self._complete_next(now)] if trigger.subtasks else self._complete_next(now)

    # Ending what will not complete.

    def _fail(self, checkpoint: Checkpoint, reason: str, now: float) -> list[CoordinatorAction]:
        """Abort, and count it: too many in a row and the job fails over. Savepoints are not counted."""
        actions = self._abort(checkpoint, reason, now, failed=not self._suspended)
        if checkpoint.savepoint is not None or self._suspended:
            return actions
        self._failures_in_a_row += 1
        if self._failures_in_a_row <= self._config.tolerable_failures:
            return actions
        why = f"{self._failures_in_a_row} checkpoints in a row have failed, the last one because: {reason}"
        return [*actions, *self.suspend(why, now), FailOver(why)]

    def _abort_all(self, reason: str, now: float) -> list[CoordinatorAction]:
        actions: list[CoordinatorAction] = []
        for checkpoint in list(self._active.values()):
            if checkpoint.state is CheckpointState.PENDING:
                actions += self._abort(checkpoint, reason, now)
        return actions

    def _abort(self, checkpoint: Checkpoint, reason: str, now: float, failed: bool = False) -> list[CoordinatorAction]:
        checkpoint.machine.go(CheckpointState.ABORTED, now, reason)
        del self._active[checkpoint.number]
        self._aborted.append(checkpoint.number)
        self._last_end = now
        acknowledged = {s: state for s, state in checkpoint.states.items() if s not in checkpoint.finished}
        triggered = checkpoint.barrier.triggered_at
        return [
            Abort(checkpoint.number, reason, acknowledged, checkpoint.savepoint, checkpoint.stop, triggered, failed)
        ]

    # Small questions.

    def _is_current(self, subtask: SubtaskId, attempt: Attempt) -> bool:
        return self._attempts.get(subtask) == attempt

    def _is_outdated(self, subtask: SubtaskId, attempt: Attempt, said_before: Attempt | None) -> bool:
        """Whether `attempt` is older than what is known or was said; a newer one may speak before
        `resume`.
        """
        if subtask not in self._subtasks:
            return True
        known = self._attempts.get(subtask, attempt)
        return attempt < max(known, said_before or known)

    def _may_time_out(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.state is CheckpointState.PENDING and bool(checkpoint.waiting)

    def _deadline(self, checkpoint: Checkpoint) -> float:
        return checkpoint.barrier.triggered_at + self._config.timeout

    def _ignore_late(self, checkpoint: int, subtask: SubtaskId, state: object) -> list[CoordinatorAction]:
        if checkpoint in self._aborted:
            self._ignore("acknowledgement of an aborted checkpoint")
            return [Discard(checkpoint, subtask, state)]
        self._ignore("acknowledgement of an unknown checkpoint")
        return []

    def _ignore(self, reason: str) -> None:
        self.ignored[reason] += 1
