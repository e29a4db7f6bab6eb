"""The life of one region: its attempts, its slots, and which messages about them still count.

A region is scheduled as a whole (gang scheduling), runs as a whole and is cancelled as a whole. Every message
names its attempt; those of an older one are refused, and of several reports of one failure only the first is
handled.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.transitions import Machine


class RegionState(Enum):
    CREATED = "Created"  # never tried
    SCHEDULING = "Scheduling"  # its Spark job is submitted; slots register
    DEPLOYING = "Deploying"  # all slots are there; they connect and restore
    RUNNING = "Running"
    CANCELLING = "Cancelling"  # slots are told to stop; until all are gone or given up
    WAITING = "Waiting"  # down, until its restart is due
    FINISHED = "Finished"  # all its slots have come to their end
    FAILED = "Failed"  # for good: the budget is spent
    CANCELLED = "Cancelled"  # for good: the job was stopped


_S = RegionState
TRANSITIONS: Mapping[RegionState, frozenset[RegionState]] = {
    _S.CREATED: frozenset({_S.SCHEDULING, _S.FAILED, _S.CANCELLED}),
    _S.SCHEDULING: frozenset({_S.DEPLOYING, _S.CANCELLING}),
    _S.DEPLOYING: frozenset({_S.RUNNING, _S.CANCELLING}),
    _S.RUNNING: frozenset({_S.FINISHED, _S.CANCELLING}),
    _S.CANCELLING: frozenset({_S.WAITING}),
    _S.WAITING: frozenset({_S.SCHEDULING, _S.FAILED, _S.CANCELLED}),
    _S.FINISHED: frozenset({_S.WAITING}),  # what it kept is lost, and somebody needs it
    _S.FAILED: frozenset(),
    _S.CANCELLED: frozenset(),
}

ACTIVE = frozenset({_S.SCHEDULING, _S.DEPLOYING, _S.RUNNING})
DEPLOYED = frozenset({_S.DEPLOYING, _S.RUNNING})
"""Their slots have been told what to do, and where their peers are."""


class RegionRun:
    """One region under one driver. Attempts of a driver begin at 1; the generation makes them newer than any
    of an older driver.
    """

    def __init__(self, region: int, slots: Collection[int], generation: int) -> None:
        self.region = region
        self.slots = frozenset(slots)
        self.attempt = Attempt(generation, 0)
        self._machine = Machine(f"region {region}", TRANSITIONS, RegionState.CREATED)
        self._arrived: set[int] = set()  # slots that have taken the step that is under way
        self._finished: set[int] = set()
        self._done: set[int] = set()  # slots whose work is done, whether they go or stay for what they keep
        self._alive: set[int] = set()  # slots of this attempt that may still be there
        self.entered: dict[RegionState, float] = {}
        """When each state was entered, since the region last began to go down; what a recovery's phases are
        read from.
        """

    @property
    def state(self) -> RegionState:
        return self._machine.state

    @property
    def started(self) -> bool:
        """Whether any attempt was made."""
        return self.attempt.number > 0

    @property
    def alive(self) -> frozenset[int]:
        """Slots that may still be running: what a cancellation waits for."""
        return frozenset(self._alive)

    @property
    def done(self) -> bool:
        """Whether all its subtasks have come to their end: its results are whole, though slots may stay for logs."""
        return self.state in (RegionState.RUNNING, RegionState.FINISHED) and self._done == self.slots

    @property
    def history(self) -> tuple[str, ...]:
        return tuple(self._machine.history)

    def accepts(self, attempt: Attempt) -> bool:
        """Whether a message of `attempt` is about this run. All others are refused."""
        return attempt == self.attempt and self.started

    def schedule(self, now: float) -> Attempt:
        """Begin a new attempt; its number was never used by this driver."""
        self._go(RegionState.SCHEDULING, now, f"attempt {self.attempt.number + 1}")
        self.attempt = Attempt(self.attempt.generation, self.attempt.number + 1)
        self._alive = set(self.slots)
        self._finished = set()
        self._done = set()
        return self.attempt

    def slot_registered(self, slot: int, attempt: Attempt, now: float) -> bool:
        """True with the last slot: now all can be told where their peers are."""
        return self._arrives(slot, attempt, RegionState.SCHEDULING, RegionState.DEPLOYING, now)

    def slot_running(self, slot: int, attempt: Attempt, now: float) -> bool:
        """The slot has restored its state and connected. True with the last one: the region runs."""
        return self._arrives(slot, attempt, RegionState.DEPLOYING, RegionState.RUNNING, now)

    def slot_finished(self, slot: int, attempt: Attempt, now: float) -> bool:
        """All the slot's subtasks have come to their end. True with the last one.

        A slot may finish before its peers have said that they run; it counts as running then.
        """
        self.slot_running(slot, attempt, now)
        if not self.accepts(attempt) or slot not in self.slots:
            return False
        self._finished.add(slot)
        self._done.add(slot)
        if self.state is not RegionState.RUNNING or self._finished < self.slots:
            return False
        self._go(RegionState.FINISHED, now, "all slots have finished")
        self._alive.clear()
        return True

    def slot_done(self, slot: int, attempt: Attempt) -> None:
        """All the slot's subtasks have come to their end, but it stays: somebody may read its logs again."""
        if self.accepts(attempt) and slot in self.slots:
            self._done.add(slot)

    def failed(self, attempt: Attempt, cause: str, now: float) -> bool:
        """A slot of `attempt` failed. True if this is news: the first word of it, about the current attempt.

        Of the many reports of one failure (closed connection, Spark's word, peers that lost their channel)
        only the first is handled. Afterwards the region is CANCELLING, or WAITING if no slot is left.
        """
        if not self.accepts(attempt) or self.state not in ACTIVE:
            return False
        self._go_down(cause, now)
        return True

    def cancel(self, why: str, now: float) -> bool:
        """Take the region down for another one's sake. True if there are slots to be stopped."""
        if self.state in ACTIVE:
            self._go_down(why, now)
        elif self.state is RegionState.FINISHED:
            self._go(RegionState.WAITING, now, why)
        return self.state is RegionState.CANCELLING

    def slot_gone(self, slot: int, attempt: Attempt, now: float) -> bool:
        """The slot's process is gone. True when it was the last one of a cancellation: a restart may
        begin.
        """
        if not self.accepts(attempt):
            return False
        self._alive.discard(slot)
        if self._alive or self.state is not RegionState.CANCELLING:
            return False
        self._go(RegionState.WAITING, now, "all slots are gone")
        return True

    def abandon_slots(self, now: float) -> bool:
        """Wait no longer for slots that do not stop: they are fenced by their attempt. True if it was
        waiting.
        """
        if self.state is not RegionState.CANCELLING:
            return False
        self._alive.clear()
        self._go(RegionState.WAITING, now, "the rest of the slots are fenced off")
        return True

    def end(self, state: RegionState, why: str, now: float) -> None:
        """For good: FAILED or CANCELLED, from CREATED or WAITING."""
        self._go(state, now, why)

    def _arrives(self, slot: int, attempt: Attempt, during: RegionState, then: RegionState, now: float) -> bool:
        if not self.accepts(attempt) or self.state is not during or slot not in self.slots:
            return False
        self._arrived.add(slot)
        if self._arrived < self.slots:
            return False
        self._go(then, now, "all slots")
        return True

    def _go_down(self, why: str, now: float) -> None:
        self._go(RegionState.CANCELLING, now, why)
        if not self._alive:
            self._go(RegionState.WAITING, now, "no slot was left")

    def _go(self, state: RegionState, now: float, why: str) -> None:
        if state is RegionState.CANCELLING or self.state is RegionState.FINISHED:
            self.entered = {}
        self._machine.go(state, now, why)
        self.entered[state] = now
        self._arrived.clear()
