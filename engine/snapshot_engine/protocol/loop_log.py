"""The head of a loop: queues of what came back, and the logs that make a snapshot of the loop whole.

A feedback channel is always received into its queue, so the loop can never block itself. The head aligns its regular
inputs only; at barrier n it takes its snapshot and forwards the barrier at once. What is in the loop at that moment is
then the *log* of n, kept per feedback channel: what lies in its queue (arrived, not yet processed), plus what arrives
on it until its own barrier n comes back. The head acknowledges n when that barrier has returned on every feedback
channel. Every pending checkpoint has its own log. On restore the logs enter the queues first; for the next barrier they
are queue contents like anything else.

Where a loop has several heads, the barrier that another head has sent may come back before this one has taken its own
snapshot. What arrives behind such an *early* barrier was sent after n: it waits in the queue until the snapshot is
taken or n is given up, and it is not in the log of n.

A head that was told to end emits the end once its regular inputs have ended, and then takes part in no newer
checkpoint: no barrier follows the end. It has finished when its feedback channels have ended too.

Rounds: in an iteration that needs them, what round k sends back is not processed before round k + 1 begins. So each
entry has the round it is for. When nothing moves any more, but before any head begins round k + 1, all of them are told
that it is *open*: what arrives from then on is for round k + 2, whichever head began first. The end of a round
(`RoundEnd`) goes round like a barrier; what it makes the body emit is for round k + 1 however long it takes. Without
rounds all entries are for round 0.

Payloads are whatever the caller wants back, a batch or a place in a file: queues and logs refer to the same ones, so a
log costs no copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from snapshot_engine.protocol.alignment import DeclineCheckpoint
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.round_ends import NO_ROUND


class LoopEntry(NamedTuple):
    """Records on their way round. `round`: the one in which they are to be processed."""

    round: int
    payload: object


@dataclass(frozen=True, slots=True)
class _EarlyBarrier:
    """Came back before the head has taken the snapshot."""

    checkpoint: int


@dataclass(frozen=True, slots=True)
class LoopContents:
    """What is in the loop at a barrier: part of the head's snapshot."""

    entries: Mapping[ChannelId, Sequence[LoopEntry]] = field(default_factory=dict)
    round: int = 0
    arriving: int = 0
    """The round that what comes next is for."""


@dataclass(frozen=True, slots=True)
class AcknowledgeLoop:
    """The log of `checkpoint` is whole: write it with the snapshot that was taken at the barrier, and acknowledge."""

    checkpoint: int
    contents: LoopContents


LoopAction = AcknowledgeLoop | DeclineCheckpoint


@dataclass(slots=True)
class _Log:
    entries: dict[ChannelId, list[LoopEntry]]
    round: int
    arriving: int
    open: set[ChannelId]
    """Feedback channels that have not brought the barrier back."""


class LoopLog:
    """The feedback side of one head subtask's run. Use a new one for every attempt."""

    def __init__(
        self, channels: Collection[ChannelId], restored: LoopContents | None = None, *, rounds: bool = False
    ) -> None:
        """`channels` are the feedback channels; `restored` is the log of the restored checkpoint."""
        contents = restored or LoopContents()
        self.rounds = rounds
        self.round = contents.round
        self.arriving = max(contents.arriving, contents.round + 1) if rounds else 0
        self._queues: dict[ChannelId, deque[LoopEntry | _EarlyBarrier]] = {
            channel: deque(contents.entries.get(channel, ())) for channel in channels
        }
        self._round_over = dict.fromkeys(channels, NO_ROUND)
        self._open = set(channels)
        self._logs: dict[int, _Log] = {}
        self._settled = 0  # no snapshot up to this one will be taken any more
        self._aborted: set[int] = set()  # only those above `_settled`
        self._turn = 0

    # What lies in the queues.

    @property
    def has_work(self) -> bool:
        """Whether `take` would give something: only what belongs to the current round."""
        return any(queue and self._may_be_taken(queue[0]) for queue in self._queues.values())

    @property
    def quiet(self) -> bool:
        """Whether nothing is left to be done in this round, not even behind an early barrier."""
        entries = (entry for queue in self._queues.values() for entry in queue)
        return not any(isinstance(entry, _EarlyBarrier) or entry.round <= self.round for entry in entries)

    @property
    def waiting(self) -> int:
        """Entries that have arrived and are not processed, of this round or a later one."""
        return sum(len(_entries(queue)) for queue in self._queues.values())

    def arrived(self, channel: ChannelId, payload: object) -> None:
        """Records came back on `channel`. Take them whatever else is going on."""
        entry = LoopEntry(self.arriving, payload)
        self._queues[channel].append(entry)
        for log in self._logs.values():
            if channel in log.open:
                log.entries[channel].append(entry)

    def take(self) -> tuple[ChannelId, object] | None:
        """The next records to process, the channels in turn; None if there are none for now.

        What is taken is processed whole before the next barrier is looked at: it is in no queue any more.
        """
        channels = list(self._queues)
        for offset in range(len(channels)):
            channel = channels[(self._turn + offset) % len(channels)]
            queue = self._queues[channel]
            if queue and isinstance(entry := queue[0], LoopEntry) and self._may_be_taken(entry):
                self._turn = (self._turn + offset + 1) % len(channels)
                queue.popleft()
                return channel, entry.payload
        return None

    def _may_be_taken(self, entry: LoopEntry | _EarlyBarrier) -> bool:
        return isinstance(entry, LoopEntry) and entry.round <= self.round

    # Rounds.

    def open_round(self, round: int) -> None:
        """The driver says that nothing moves and all that is for `round` is here: what arrives now is for the next."""
        self.arriving = max(self.arriving, round + 1)

    def next_round(self, round: int) -> None:
        """The driver says that round `round` begins: all records of the one before are done, everywhere."""
        self.round = max(self.round, round)
        self.open_round(self.round)

    def round_ended(self, channel: ChannelId, round: int) -> None:
        """The end of `round` came back on `channel`."""
        self._round_over[channel] = max(self._round_over[channel], round)

    @property
    def round_over(self) -> int | None:
        """The newest round whose end has come back on every feedback channel, in this attempt; None without rounds."""
        return min(self._round_over.values(), default=NO_ROUND) if self.rounds else None

    # Checkpoints.

    @property
    def pending(self) -> tuple[int, ...]:
        """Checkpoints whose barrier is on its way round."""
        return tuple(self._logs)

    def logged(self) -> Iterable[LoopEntry]:
        """What the logs of pending checkpoints hold; an entry comes once for each of them."""
        return (entry for log in self._logs.values() for entries in log.entries.values() for entry in entries)

    def snapshot_taken(self, checkpoint: int) -> list[LoopAction]:
        """The head has taken its snapshot for `checkpoint` and forwarded the barrier: its log begins."""
        log = _Log({}, self.round, self.arriving, set(self._open))
        for channel, queue in self._queues.items():
            early = next((e for e in queue if isinstance(e, _EarlyBarrier) and e.checkpoint >= checkpoint), None)
            if early is not None and early.checkpoint > checkpoint:
                self._settle(checkpoint)
                return [_decline(checkpoint, channel, early.checkpoint)]
            in_front = queue if early is None else list(queue)[: queue.index(early)]
            log.entries[channel] = _entries(in_front)
            if early is not None:
                log.open.discard(channel)
        self._logs[checkpoint] = log
        self._settle(checkpoint)
        return self._whole()

    def returned(self, channel: ChannelId, checkpoint: int) -> list[LoopAction]:
        """The barrier of `checkpoint` came back on `channel`. That of an older one never will on this channel."""
        actions: list[LoopAction] = []
        for number in [n for n, log in self._logs.items() if n < checkpoint and channel in log.open]:
            del self._logs[number]
            actions.append(_decline(number, channel, checkpoint))
        if checkpoint in self._logs:
            self._logs[checkpoint].open.discard(channel)
        elif checkpoint > self._settled and checkpoint not in self._aborted:
            self._queues[channel].append(_EarlyBarrier(checkpoint))
        return actions + self._whole()

    def ended(self, channel: ChannelId) -> list[LoopAction]:
        """`channel` has ended: nothing more will come on it for any log."""
        self._open.discard(channel)
        for log in self._logs.values():
            log.open.discard(channel)
        return self._whole()

    @property
    def all_ended(self) -> bool:
        return not self._open

    def abort(self, checkpoint: int) -> None:
        """`checkpoint` will not complete: its log is dropped, and nothing waits for it. The records stay."""
        self._logs.pop(checkpoint, None)
        if checkpoint > self._settled:
            self._aborted.add(checkpoint)
            self._forget_early_barriers()

    def _settle(self, checkpoint: int) -> None:
        self._settled = max(self._settled, checkpoint)
        self._aborted = {number for number in self._aborted if number > self._settled}
        self._forget_early_barriers()

    def _forget_early_barriers(self) -> None:
        for channel, queue in self._queues.items():
            over = [e for e in queue if isinstance(e, _EarlyBarrier) and self._is_over(e.checkpoint)]
            if over:
                self._queues[channel] = deque(entry for entry in queue if entry not in over)

    def _is_over(self, checkpoint: int) -> bool:
        return checkpoint <= self._settled or checkpoint in self._aborted

    def _whole(self) -> list[LoopAction]:
        done = [(number, self._logs.pop(number)) for number in list(self._logs) if not self._logs[number].open]
        return [AcknowledgeLoop(number, LoopContents(log.entries, log.round, log.arriving)) for number, log in done]


def _entries(queue: Iterable[LoopEntry | _EarlyBarrier]) -> list[LoopEntry]:
    return [entry for entry in queue if isinstance(entry, LoopEntry)]


def _decline(checkpoint: int, channel: ChannelId, newer: int) -> DeclineCheckpoint:
    return DeclineCheckpoint(checkpoint, f"its barrier did not come back on {channel} before that of {newer}")
