"""When a loop is done: by counting, never by waiting.

All subtasks of the loop's region are asked in *waves* how many records they have sent to and received from each other
since their attempt began, and whether they are quiet: inputs from outside have ended, no timer is pending, nothing lies
in their queues for this round. One wave proves nothing, since a record may have been counted where it was sent and be
received behind the wave's back. Two successive waves, all quiet, that count the same numbers, as many sent as received:
then nothing was on its way in between, and nothing can move any more.

With rounds, that is the end of a round. First the heads let it be known (`RoundEnd`), which may make the body emit for
the next round; when that has come to rest too, records that wait make the next round begin, and only if there are none
is the loop done. A round is opened before it begins: once every head knows that what arrives is no more for this one,
any of them may begin. Without rounds the loop is done at once.

The end goes in two steps. First the heads let event time run out (the final watermark), which may make the body emit
again; when that has come to rest too, they end. But not while a checkpoint is on its way round whose log may hold
records from before the rest: a head that ended without having heard of it would count with its final state, and a job
restored from it would bring those records to a head that has ended. (Only at least once: else the barrier holds up the
records.)
Newer checkpoints find the loop at rest, so it does not matter who takes part in them, and nothing waits for them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from snapshot_engine.protocol.elements import Attempt, SubtaskId


class LoopCounts(NamedTuple):
    """What a subtask answers to a wave."""

    sent: int
    received: int
    """Over all channels between subtasks of the region, since this attempt began. A head counts what arrives."""
    quiet: bool
    waiting: int = 0
    """Entries that a head keeps for the next round."""
    round: int | None = None
    """The round a head is in; None: not a head, or no rounds."""
    round_over: int | None = None
    """The newest round whose end has come here, -1 for none; for a head, has come back on all its feedback channels.
    None: no rounds.
    """
    time_is_over: bool = True
    """Whether the final watermark has come here; a head has it when it has emitted it."""
    arriving: int | None = None
    """The round that what comes to a head next is for; None: not a head, or no rounds."""
    going_round: Collection[int] = ()
    """Checkpoints of which a head has sent the barrier and not got it back."""


@dataclass(frozen=True, slots=True)
class AskWave:
    """Ask every subtask of the region for its counts; answers name this wave."""

    wave: int


@dataclass(frozen=True, slots=True)
class EndRound:
    """Tell every head to emit the end of this round, once in its attempt. It may be told again."""

    round: int


@dataclass(frozen=True, slots=True)
class OpenRound:
    """Tell every head that all that is for this round is there. It may be told again."""

    round: int


@dataclass(frozen=True, slots=True)
class BeginRound:
    """Tell every head that this round begins. It may be told again."""

    round: int


@dataclass(frozen=True, slots=True)
class FinalWatermark:
    """Tell every head to emit the final watermark. It may be told again."""


@dataclass(frozen=True, slots=True)
class EndLoop:
    """Tell every head to end: nothing is in flight. It is told again until the region has finished."""


LoopEndAction = AskWave | EndRound | OpenRound | BeginRound | FinalWatermark | EndLoop


class LoopEnd:
    """One per region with a loop and attempt, at the driver.

    `pause` lies between waves that were not quiet; after `patience` without all answers a wave is asked again.
    """

    def __init__(
        self, subtasks: Collection[SubtaskId], attempt: Attempt, pause: float = 0.1, patience: float = 5.0
    ) -> None:
        self._subtasks = frozenset(subtasks)
        self._attempt = attempt
        self._pause = pause
        self._patience = patience
        self._wave = 0
        self._answers: dict[SubtaskId, LoopCounts] = {}
        self._candidate: tuple[int, int] | None = None
        self._next_at: float | None = None
        self._awaited: frozenset[int] | None = None
        """Checkpoints that were on their way round when the loop was found at rest for good; None: it was not."""
        self.done = False

    def inputs_ended(self, now: float) -> None:
        """A head says that its regular inputs have ended: from now on it is worth while to ask."""
        if self._next_at is None:
            self._next_at = now

    def next_wakeup(self) -> float | None:
        """Until the region has finished: then throw this away."""
        return self._next_at

    def tick(self, now: float) -> list[LoopEndAction]:
        """Ask again: for the first time, after a pause, or because an answer was lost."""
        if self._next_at is None or now < self._next_at:
            return []
        if self.done:
            self._next_at = now + self._pause
            return [EndLoop()]
        return self._ask(now)

    def report(
        self, subtask: SubtaskId, attempt: Attempt, wave: int, counts: LoopCounts, now: float
    ) -> list[LoopEndAction]:
        """An answer. Of another attempt, or to an older wave: ignored."""
        if self.done or attempt != self._attempt or wave != self._wave or subtask not in self._subtasks:
            return []
        self._answers[subtask] = counts
        if self._answers.keys() < self._subtasks:
            return []
        self._next_at = now + self._pause
        return self._judge(now)

    def _ask(self, now: float) -> list[LoopEndAction]:
        self._wave += 1
        self._answers = {}
        self._next_at = now + self._patience
        return [AskWave(self._wave)]

    def _judge(self, now: float) -> list[LoopEndAction]:
        if self._awaited is not None:
            return self._end_if_none_is_awaited()
        answers = self._answers.values()
        rounds = {counts.round for counts in answers if counts.round is not None}
        if len(rounds) > 1:
            # A head has not heard of the round that the others are in, or was restored before it did.
            self._candidate = None
            return [BeginRound(max(rounds))]
        totals = (sum(counts.sent for counts in answers), sum(counts.received for counts in answers))
        if totals[0] != totals[1] or not all(counts.quiet for counts in answers):
            self._candidate = None
            return []
        if totals != self._candidate:
            self._candidate = totals
            return self._ask(now)
        self._candidate = None
        return self._at_rest(max(rounds, default=0), now)

    def _at_rest(self, round: int, now: float) -> list[LoopEndAction]:
        answers = self._answers.values()
        if any(counts.round_over is not None and counts.round_over < round for counts in answers):
            return [EndRound(round)]
        if any(counts.waiting for counts in answers):
            if any(counts.arriving is not None and counts.arriving <= round + 1 for counts in answers):
                return [OpenRound(round + 1), *self._ask(now)]
            return [BeginRound(round + 1)]
        if not all(counts.time_is_over for counts in answers):
            return [FinalWatermark()]
        self._awaited = self._going_round()
        return self._end_if_none_is_awaited()

    def _end_if_none_is_awaited(self) -> list[LoopEndAction]:
        assert self._awaited is not None
        self.done = not self._awaited & self._going_round()
        return [EndLoop()] if self.done else []

    def _going_round(self) -> frozenset[int]:
        return frozenset(checkpoint for counts in self._answers.values() for checkpoint in counts.going_round)
