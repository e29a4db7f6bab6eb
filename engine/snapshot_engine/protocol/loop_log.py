"""The head of a loop: queues of what came back, and the logs that make a snapshot of the loop whole.

A feedback channel is always received into its queue, so the loop can never block itself. The head aligns its regular
inputs only; at barrier n it takes its snapshot and forwards the barrier at once. What is in the loop at that moment is
then the *log* of n, kept per feedback channel: what lies in its queue (arrived, not yet processed), plus what arrives
on it until its own barrier n comes back. The head acknowledges n when that barrier has returned on every feedback
channel. Every pending checkpoint has its own log. On restore the logs enter the queues first; for the next barrier they
are queue contents like anything else.

Rounds: in an iteration that needs them, what arrives during round k is not processed before round k + 1 begins. Every
entry carries its round; without rounds all of them are 0.

Payloads are whatever the caller wants back, a batch or a place in a file: queues and logs refer to the same ones, so a
log costs no copy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from snapshot_engine.protocol.alignment import DeclineCheckpoint
from snapshot_engine.protocol.elements import ChannelId


class LoopEntry(NamedTuple):
    """Records on their way round. `round`: the one in which they are to be processed."""

    round: int
    payload: object


LoopContents = Mapping[ChannelId, Sequence[LoopEntry]]


@dataclass(frozen=True, slots=True)
class AcknowledgeLoop:
    """The log of `checkpoint` is whole: write it with the snapshot that was taken at the barrier, and acknowledge."""

    checkpoint: int
    log: LoopContents


LoopAction = AcknowledgeLoop | DeclineCheckpoint


@dataclass(slots=True)
class _Log:
    entries: dict[ChannelId, list[LoopEntry]]
    open: set[ChannelId]
    """Feedback channels that have not brought the barrier back."""


class LoopLog:
    """The feedback side of one head subtask's run. Use a new one for every attempt."""

    def __init__(
        self,
        channels: Collection[ChannelId],
        restored: LoopContents | None = None,
        *,
        rounds: bool = False,
        round: int = 0,
    ) -> None:
        """`channels` are the feedback channels; `restored` is the log of the restored checkpoint, `round` the round
        its snapshot was in.
        """
        contents = restored or {}
        self.rounds = rounds
        self.round = round
        self._queues = {channel: deque(contents.get(channel, ())) for channel in channels}
        self._open = set(channels)
        self._logs: dict[int, _Log] = {}
        self._turn = 0

    @property
    def pending(self) -> tuple[int, ...]:
        """Checkpoints whose barrier is on its way round."""
        return tuple(self._logs)

    @property
    def waiting(self) -> int:
        """Entries that have arrived and are not processed, of this round or a later one."""
        return sum(len(queue) for queue in self._queues.values())

    @property
    def has_work(self) -> bool:
        """Whether `take` would give something: only what belongs to the current round."""
        return any(queue and queue[0].round <= self.round for queue in self._queues.values())

    def arrived(self, channel: ChannelId, payload: object) -> None:
        """Records came back on `channel`. Take them whatever else is going on."""
        entry = LoopEntry(self.round + 1 if self.rounds else 0, payload)
        self._queues[channel].append(entry)
        for log in self._logs.values():
            if channel in log.open:
                log.entries[channel].append(entry)

    def take(self) -> tuple[ChannelId, object] | None:
        """The next records to process, the channels in turn; None if there are none for this round.

        What is taken is processed whole before the next barrier is looked at: it is in no queue any more.
        """
        channels = list(self._queues)
        for offset in range(len(channels)):
            channel = channels[(self._turn + offset) % len(channels)]
            queue = self._queues[channel]
            if queue and queue[0].round <= self.round:
                self._turn = (self._turn + offset + 1) % len(channels)
                return channel, queue.popleft().payload
        return None

    def next_round(self, round: int) -> None:
        """The driver says that round `round` begins: all records of the one before are done, everywhere."""
        self.round = max(self.round, round)

    def snapshot_taken(self, checkpoint: int) -> list[LoopAction]:
        """The head has taken its snapshot for `checkpoint` and forwarded the barrier: its log begins."""
        entries = {channel: list(queue) for channel, queue in self._queues.items()}
        self._logs[checkpoint] = _Log(entries, set(self._open))
        return self._whole()

    def returned(self, channel: ChannelId, checkpoint: int) -> list[LoopAction]:
        """The barrier of `checkpoint` came back on `channel`. That of an older one never will on this channel."""
        actions: list[LoopAction] = []
        for number in [n for n, log in self._logs.items() if n < checkpoint and channel in log.open]:
            del self._logs[number]
            reason = f"its barrier did not come back on {channel} before that of {checkpoint}"
            actions.append(DeclineCheckpoint(number, reason))
        if checkpoint in self._logs:
            self._logs[checkpoint].open.discard(channel)
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
        """`checkpoint` will not complete: its log is dropped. The queues are as they are."""
        self._logs.pop(checkpoint, None)

    def contents(self) -> LoopContents:
        """What lies in the queues now."""
        return {channel: tuple(queue) for channel, queue in self._queues.items()}

    def _whole(self) -> list[LoopAction]:
        done = [number for number, log in self._logs.items() if not log.open]
        return [AcknowledgeLoop(number, self._logs.pop(number).entries) for number in done]
