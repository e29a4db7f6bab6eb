"""The log of a memory or durable exchange: what one producer subtask keeps for one consumer subtask.

Records are numbered per channel, from 0 at the job's start; control elements lie between records and are not
counted. The log knows nothing of bytes on disk: a payload is whatever the caller wants back, a batch or a
place in a file.

- *Position* of a checkpoint: the number of the first record behind its barrier.
- *Whole* for checkpoint n: everything from n's position on is still here, so a consumer restored from n can
  read again.
- A completed checkpoint cleans what lies before its barrier. What is unread, under a replay or pinned stays.
- Under pressure the log asks for a checkpoint, which will clean it. When it is full the sources of the
  producer's region pause, but still emit barriers; the subtasks between them and the log go on, or the
  barrier of the checkpoint that would empty it could not get through. A memory log gives up being whole
  before that, by forgetting what has been read.
- A slot that keeps a log lives until the job ends, and its region counts as running: once it has told the
  driver that it finished, nobody would notice that what it keeps is lost.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from snapshot_engine.protocol.elements import Barrier, ChannelId, Control, EndOfInput, Watermark


@dataclass(frozen=True, slots=True)
class LoggedRecords:
    """`count` records with numbers from `first` on. `size` is in bytes."""

    first: int
    count: int
    size: int
    payload: object


@dataclass(frozen=True, slots=True)
class LoggedControl:
    """A control element that lies before record `position`."""

    position: int
    element: Control


LogEntry = LoggedRecords | LoggedControl


@dataclass(frozen=True, slots=True)
class SendRecords:
    """Send the records of `payload` but for the first `skip`; the first one sent has number `first`."""

    first: int
    count: int
    payload: object
    skip: int = 0


@dataclass(frozen=True, slots=True)
class SendControl:
    element: Control


class LogOverflowError(Exception):
    """The log has outgrown its limit although its producer was to pause. The producer's region must fail."""


class NotWholeError(Exception):
    """A replay was asked for that the log can no longer give. Failover should have restarted the producer."""


@dataclass(slots=True)
class LogReader:
    """Where one connection stands. `next_send` gives each entry once, first those of a replay, then live
    ones.
    """

    log: ChannelLog
    index: int
    skip_before: int
    pending: frozenset[int]
    replay_until: int
    """Entries before this index are old: of their barriers only those in `pending` are sent."""
    _passed_over: Watermark | None = None
    """The newest one before what is news to the consumer. Batches are cut differently each time: it may lie before
    records that the consumer has seen without it, and be the last one for long.
    """

    @property
    def replaying(self) -> bool:
        return self.index < self.replay_until

    def next_send(self) -> SendRecords | SendControl | None:
        """The next thing to send; None if there is nothing (yet)."""
        while (entry := self.log.entry(self.index)) is not None:
            if self._passed_over is not None and _is_behind(self.skip_before, entry):
                return self._say_what_was_passed_over()
            replayed = self.replaying
            self.index += 1
            send = self._as_send(entry, replayed)
            if send is not None:
                return send
        if self._passed_over is not None and self.log.next_number == self.skip_before:
            return self._say_what_was_passed_over()
        return None

    def _say_what_was_passed_over(self) -> SendControl:
        assert self._passed_over is not None
        element, self._passed_over = self._passed_over, None
        return SendControl(element)

    def _as_send(self, entry: LogEntry, replayed: bool) -> SendRecords | SendControl | None:
        if isinstance(entry, LoggedControl):
            return SendControl(entry.element) if self._lets_through(entry, replayed) else None
        skip = max(0, self.skip_before - entry.first)
        if skip >= entry.count:
            return None
        return SendRecords(entry.first + skip, entry.count - skip, entry.payload, skip)

    def _lets_through(self, entry: LoggedControl, replayed: bool) -> bool:
        if entry.position < self.skip_before:  # the producer is catching up: this lies behind the consumer's state
            if isinstance(entry.element, Watermark):
                self._passed_over = entry.element
            return False
        if replayed and isinstance(entry.element, Barrier):
            return entry.element.checkpoint in self.pending  # any other must not be aligned again
        return True


def _is_behind(number: int, entry: LogEntry) -> bool:
    """Whether `entry` is, or has, something that comes behind the records before `number`."""
    if isinstance(entry, LoggedControl):
        return entry.position >= number
    return entry.first + entry.count > number


@dataclass(slots=True)
class ChannelLog:
    """One channel's log. `start` is the producer's restored position on this channel, `restored` its
    checkpoint.

    `budget` and `limit` are in bytes. `durable` logs never forget what a checkpoint may need.
    """

    channel: ChannelId
    durable: bool
    budget: int
    limit: int
    start: int = 0
    restored: int = 0
    size: int = field(init=False, default=0)
    next_number: int = field(init=False)
    reader: LogReader | None = field(init=False, default=None)
    _entries: dict[int, LogEntry] = field(init=False, default_factory=dict)
    _first_index: int = field(init=False, default=0)
    _next_index: int = field(init=False, default=0)
    _barriers: dict[int, tuple[int, int]] = field(init=False)  # checkpoint -> (position, index of the barrier)
    _pins: set[int] = field(init=False, default_factory=set)
    _held_from: int = field(init=False)
    _ended: bool = field(init=False, default=False)
    _discarding: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        self.next_number = self.start
        self._held_from = self.start
        self._barriers = {self.restored: (self.start, -1)}

    # What the producer does.

    def append_records(self, count: int, size: int, payload: object) -> None:
        """Raises LogOverflowError beyond the limit, which leaves room for what lies between the paused
        sources and the log.
        """
        self.size += size
        self.next_number += count
        self._append(LoggedRecords(self.next_number - count, count, size, payload))
        self._forget_what_was_read()
        if self.size > self.limit:
            raise LogOverflowError(
                f"the log of channel {self.channel} holds {self.size} bytes, more than its limit of {self.limit}; "
                "no checkpoint has completed for too long, or the exchange's budget is too small for the rate"
            )

    def append_control(self, element: Control) -> None:
        """Always taken, also when the log is full."""
        if isinstance(element, Barrier):
            self._barriers[element.checkpoint] = (self.next_number, self._next_index)
        self._ended = self._ended or isinstance(element, EndOfInput)
        self._append(LoggedControl(self.next_number, element))

    @property
    def full(self) -> bool:
        """The sources of the producer's region have to pause: what is kept cannot be forgotten."""
        return self.size >= self.budget and not self._forgettable()

    @property
    def unread(self) -> bool:
        """Whether the consumer, here or away, has not been sent all that is kept for it."""
        read = self.reader.index if self.reader else self._first_index
        return read < self._next_index

    @property
    def under_pressure(self) -> bool:
        """Ask for a checkpoint: it will make room."""
        return 2 * self.size >= self.budget

    # What failover and the coordinator ask.

    def position_of(self, checkpoint: int) -> int | None:
        """The number of the first record behind its barrier; None if that barrier never passed here.

        A channel that ended without it has nothing behind it: its end counted as the barrier.
        """
        if self._ended_before(checkpoint):
            return self.next_number
        known = self._barriers.get(checkpoint)
        return known[0] if known else None

    def _ended_before(self, checkpoint: int) -> bool:
        """Whoever has taken part in `checkpoint` has read this channel's end, and needs nothing of it."""
        return self._ended and checkpoint > max(self._barriers)

    def barriers_after(self, checkpoint: int) -> frozenset[int]:
        """The checkpoints behind `checkpoint` whose barriers lie here."""
        return frozenset(number for number in self._barriers if number > checkpoint)

    @property
    def caught_up(self) -> bool:
        """Whether all that the consumer had seen before has been produced again: checkpoints may go on."""
        if self._discarding:
            return self._ended  # that is how much a consumer has seen that needs no more
        return self.reader is not None and self.next_number >= self.reader.skip_before

    def is_whole_for(self, checkpoint: int) -> bool:
        """Whether a consumer restored from `checkpoint` can read all it needs."""
        if self._ended_before(checkpoint):
            return True
        position = self.position_of(checkpoint)
        return position is not None and self._held_from <= position and not self._discarding

    def pin(self, checkpoint: int) -> None:
        """Keep everything from `checkpoint` on until `unpin`: a failover has chosen it."""
        self._pins.add(checkpoint)

    def unpin(self, checkpoint: int) -> None:
        self._pins.discard(checkpoint)

    def completed(self, checkpoint: int) -> None:
        """Forget what lies before the barrier of a completed checkpoint (a savepoint does not count)."""
        if self._ended_before(checkpoint):
            self._forget_before(self._next_index)
            return
        if checkpoint not in self._barriers:
            return
        self._forget_before(self._barriers[checkpoint][1] + 1)
        for older in [number for number in self._barriers if number < checkpoint and number not in self._pins]:
            del self._barriers[older]

    # What the connection does.

    def attach(self, position: int, pending: Collection[int]) -> LogReader:
        """A consumer connects; `position` is the number of the next record it wants. Ends any earlier reader.

        A restored consumer wants its checkpoint's position, one that went on without a break wants the next
        it has not seen (the producer may not have got there again: it is sent nothing until then). `pending`
        are the checkpoints that are still to be aligned.
        """
        if self._discarding:
            raise NotWholeError(f"channel {self.channel} was asked for record {position}, but its log is given up")
        if position < self._held_from:
            raise NotWholeError(
                f"channel {self.channel} was asked for record {position}, but its log begins at {self._held_from}"
            )
        index = self._index_of(position, pending)
        self.reader = LogReader(self, index, position, frozenset(pending), self._next_index)
        return self.reader

    def consumer_finished(self) -> None:
        """The consumer has read this channel's end, or has finished: nothing is kept for it any more.

        Told when a producer that restarted connects to a consumer that did not. Should that consumer ever
        restart from a checkpoint that it had not read the end at, the log is not whole for it, and the producer
        restarts again with it.
        """
        self._discarding = True
        while self._first_index < self._next_index:
            self._forget_first()

    def detach(self) -> None:
        """The consumer is away. What it has not read yet is kept, whatever it takes."""
        self.reader = None

    def entry(self, index: int) -> LogEntry | None:
        return self._entries.get(index)

    # Keeping and forgetting.

    def _append(self, entry: LogEntry) -> None:
        self._entries[self._next_index] = entry
        self._next_index += 1
        if self._discarding:
            self._forget_first()

    def _index_of(self, position: int, pending: Collection[int]) -> int:
        """Behind a barrier that the consumer has seen at `position`, else at the first entry that may be news to it.

        A pending barrier is news wherever it lies, also right where the consumer begins. Were it skipped, the
        channel's end would be taken for it.
        """
        seen = [
            index + 1
            for checkpoint, (at, index) in self._barriers.items()
            if at == position and index + 1 >= max(1, self._first_index) and checkpoint not in pending
        ]
        if seen:
            return min(seen)
        for index in range(self._first_index, self._next_index):
            entry = self._entries[index]
            end = entry.first + entry.count if isinstance(entry, LoggedRecords) else entry.position
            if end > position or (end == position and isinstance(entry, LoggedControl)):
                return index
        return self._next_index

    def _kept_indexes(self) -> list[int]:
        pinned = [self._barriers[checkpoint][1] + 1 for checkpoint in self._pins if checkpoint in self._barriers]
        unread = [self.reader.index] if self.reader else [self._first_index]
        return pinned + unread

    def _forgettable(self) -> bool:
        return not self.durable and self._first_index < min(self._kept_indexes())

    def _forget_before(self, index: int) -> None:
        keep = min([index, *self._kept_indexes()])
        while self._first_index < keep:
            self._forget_first()

    def _forget_what_was_read(self) -> None:
        """Only a memory log over its budget: from here on it may not be whole."""
        while self.size > self.budget and self._forgettable():
            self._forget_first()

    def _forget_first(self) -> None:
        entry = self._entries.pop(self._first_index)
        self._first_index += 1
        if isinstance(entry, LoggedRecords):
            self.size -= entry.size
            self._held_from = entry.first + entry.count
