"""Alignment: when a subtask takes its snapshot, and which channels it must not read until then.

Theory of operation. Every channel carries barriers in ascending order of their checkpoints. A checkpoint is
*settled* for this subtask once its snapshot was taken, or once it has become impossible here: it was aborted,
or the barrier of a newer one came first on some channel. Settled checkpoints are never looked at again, so a
barrier that comes late, or comes again in a replay, does nothing.

- Exactly-once: one checkpoint is aligned at a time; a channel that has brought its barrier is `blocked`, that
  is, it must not be read until the others have brought theirs.
- At-least-once: nothing is ever blocked; the barriers of several checkpoints are counted side by side.
- A channel that has ended counts as aligned for every checkpoint still to come.
- Feedback channels are neither aligned nor blocked: their barriers belong to the loop's log (`loop_log`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from snapshot_engine.protocol.elements import Barrier, ChannelId, Mode


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Take the synchronous part of the snapshot now, then emit `barrier` to every output before any other
    element.
    """

    barrier: Barrier
    start_delay: float
    """Seconds from the trigger to the first barrier that arrived here."""
    alignment: float
    """Seconds from the first barrier to the last."""


@dataclass(frozen=True, slots=True)
class DeclineCheckpoint:
    """This subtask will never take a snapshot for `checkpoint`: tell the coordinator, so that it need not
    time out.
    """

    checkpoint: int
    reason: str


AlignmentAction = TakeSnapshot | DeclineCheckpoint


@dataclass(slots=True)
class _Arrivals:
    """The barriers of one checkpoint that have come so far."""

    barrier: Barrier
    first_at: float
    channels: set[ChannelId]


class Alignment:
    """The alignment of one subtask's run. Use a new one for every attempt.

    `now` is the wall clock in seconds, the one that `Barrier.triggered_at` is on. After every event the
    caller looks at `blocked` and reads none of these channels until the next event.
    """

    def __init__(
        self,
        channels: Iterable[ChannelId],
        mode: Mode,
        feedback: Collection[ChannelId] = (),
        *,
        ended: Collection[ChannelId] = (),
        restored: int = 0,
    ) -> None:
        """`channels` are all input channels, feedback included; `ended` those that had ended in the restored
        snapshot.

        `restored` is the newest checkpoint that was over when this attempt began, at least the one it was
        restored from (0: none): barriers up to it are ignored. While regions restart nothing is pending, so
        the driver gives the newest number it has used; a barrier of an aborted checkpoint that is still on
        its way, or that a log sends again, is then never aligned.
        """
        self._mode = mode
        self._open = set(channels) - set(feedback) - set(ended)
        self._ended = set(ended)
        self._feedback = frozenset(feedback)
        self._settled = restored
        self._aborted: set[int] = set()  # only those above `_settled`
        self._arrivals: dict[int, _Arrivals] = {}
        self.blocked: set[ChannelId] = set()
        """Channels that must not be read now. Replaced by every event, never changed in place by
        anyone else.
        """

    @property
    def settled(self) -> int:
        """The newest checkpoint that was taken here or has become impossible here."""
        return self._settled

    @property
    def ended(self) -> frozenset[ChannelId]:
        """The regular channels that have ended: part of the subtask's snapshot."""
        return frozenset(self._ended)

    @property
    def all_ended(self) -> bool:
        return not self._open

    def barrier(self, channel: ChannelId, barrier: Barrier, now: float) -> list[AlignmentAction]:
        """A barrier came on `channel`."""
        number = barrier.checkpoint
        if channel in self._feedback or channel in self._ended or self._is_settled(number):
            return []
        actions = self._give_up_older_than(number) if self._mode is Mode.EXACTLY_ONCE else []
        arrivals = self._arrivals.setdefault(number, _Arrivals(barrier, now, set()))
        arrivals.channels.add(channel)
        return actions + self._take_what_is_aligned(now)

    def trigger(self, barrier: Barrier, now: float) -> list[AlignmentAction]:
        """The coordinator's trigger, for a source or a subtask whose regular inputs have all ended.

        A trigger that comes twice, late or after its abort does nothing; one that comes while a regular input
        is still open does nothing either, since that input will bring the barrier or its end.
        """
        if self._open or self._is_settled(barrier.checkpoint):
            return []
        self._settle(barrier.checkpoint)
        return [TakeSnapshot(barrier, max(0.0, now - barrier.triggered_at), 0.0)]

    def end(self, channel: ChannelId, now: float) -> list[AlignmentAction]:
        """`channel` has ended. It may be the last one that some checkpoint was waiting for."""
        if channel not in self._open:
            return []
        self._open.discard(channel)
        self._ended.add(channel)
        return self._take_what_is_aligned(now)

    def abort(self, checkpoint: int, now: float) -> list[AlignmentAction]:
        """The coordinator has given `checkpoint` up: it will never be aligned here, whatever barriers still
        come.
        """
        if not self._is_settled(checkpoint):
            self._aborted.add(checkpoint)
            self._arrivals.pop(checkpoint, None)
            self._block()
        return []

    def _is_settled(self, checkpoint: int) -> bool:
        return checkpoint <= self._settled or checkpoint in self._aborted

    def _give_up_older_than(self, checkpoint: int) -> list[AlignmentAction]:
        """A newer barrier ends an older alignment: the channel that brought it will never bring the older
        one.
        """
        given_up = [number for number in sorted(self._arrivals) if number < checkpoint]
        if given_up or checkpoint - 1 > self._settled:
            self._settle(checkpoint - 1)
        return [
            DeclineCheckpoint(number, f"the barrier of checkpoint {checkpoint} came before that of {number}")
            for number in given_up
        ]

    def _take_what_is_aligned(self, now: float) -> list[AlignmentAction]:
        actions: list[AlignmentAction] = []
        for number in sorted(self._arrivals):
            arrivals = self._arrivals.get(number)
            if arrivals is not None and self._open <= arrivals.channels:
                actions += self._give_up_older_than(number)
                self._settle(number)
                delay = max(0.0, arrivals.first_at - arrivals.barrier.triggered_at)
                actions.append(TakeSnapshot(arrivals.barrier, delay, max(0.0, now - arrivals.first_at)))
        self._block()
        return actions

    def _settle(self, checkpoint: int) -> None:
        self._settled = max(self._settled, checkpoint)
        self._aborted = {number for number in self._aborted if number > self._settled}
        for number in [number for number in self._arrivals if number <= self._settled]:
            del self._arrivals[number]

    def _block(self) -> None:
        if self._mode is Mode.EXACTLY_ONCE:
            self.blocked = {channel for arrivals in self._arrivals.values() for channel in arrivals.channels}
