"""Bugs on purpose, one per name: a test plants each and shows that the simulator finds it.

Each is a small subclass of a protocol part, or a rule of the shell switched off; the protocols themselves
know nothing of this.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, cast

from snapshot_engine.protocol.alignment import Alignment
from snapshot_engine.protocol.checkpoints import CoordinatorAction
from snapshot_engine.protocol.committables import Lineage
from snapshot_engine.protocol.coordinator import Coordinator
from snapshot_engine.protocol.critical_path import Timings
from snapshot_engine.protocol.elements import Attempt, ChannelId, SubtaskId
from snapshot_engine.protocol.exchange_log import (
    ChannelLog,
    LogEntry,
    LoggedControl,
    LogReader,
    SendControl,
    SendRecords,
)
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.loop_end import LoopEnd, LoopEndAction
from snapshot_engine.protocol.loop_log import AcknowledgeLoop, LoopAction, LoopContents, LoopEntry, LoopLog
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.protocol.source_drift import GroupTime, SourceDrift
from snapshot_engine.protocol.watermarks import WatermarkMerge, WatermarkState
from snapshot_engine.simulator.parts import Parts
from snapshot_engine.simulator.schedule import ANY, REAL, Jobs


class NeverBlocks(Alignment):
    def _block(self) -> None:
        self.blocked = set()


class TakesNumbersForNews(Alignment):
    """Does not know what was over before its attempt."""

    def __init__(self, channels: Any, mode: Any, feedback: Any = (), *, ended: Any = (), restored: int = 0) -> None:
        super().__init__(channels, mode, feedback, ended=ended, restored=0)


class TakesStaleAcknowledgements(Coordinator):
    def acknowledge(
        self, checkpoint: int, subtask: SubtaskId, attempt: Attempt, state: object, timings: Timings, now: float
    ) -> list[CoordinatorAction]:
        known = self._attempts.get(subtask, attempt)
        return super().acknowledge(checkpoint, subtask, known, state, timings, now)


class TakesFinalStatesForOlderBarriers(Coordinator):
    def finished(
        self, subtask: SubtaskId, attempt: Attempt, state: object, snapshotted: int, now: float
    ) -> list[CoordinatorAction]:
        return super().finished(subtask, attempt, state, 0, now)


class DropsOnAbort(Lineage[Any]):
    def aborted(self, checkpoint: int) -> None:
        self._prepared = [(number, each) for number, each in self._prepared if number != checkpoint]


class HandlesEveryReport(RegionRun):
    def failed(self, attempt: Attempt, cause: str, now: float) -> bool:
        return super().failed(self.attempt, cause, now)


class ForgetsWatermarks(WatermarkMerge):
    def __init__(self, channels: Collection[ChannelId], restored: WatermarkState | None = None) -> None:
        super().__init__(channels)


class _OtherReader(ChannelLog):
    """A log whose connections read in another way."""

    reader_class: type[LogReader] = LogReader

    def attach(self, position: int, pending: Collection[int]) -> LogReader:
        good = ChannelLog.attach(self, position, pending)
        self.reader = self.reader_class(good.log, good.index, good.skip_before, good.pending, good.replay_until)
        return self.reader


class ReplaysOneTooFew(ChannelLog):
    def attach(self, position: int, pending: Collection[int]) -> LogReader:
        reader = ChannelLog.attach(self, position, pending)
        if position < self.next_number:
            reader.skip_before += 1
        return reader


class _ByBatch(LogReader):
    def _as_send(self, entry: LogEntry, replayed: bool) -> SendRecords | SendControl | None:
        send = LogReader._as_send(self, entry, replayed)
        return None if isinstance(send, SendRecords) and send.skip else send


class DedupesByBatch(_OtherReader):
    reader_class = _ByBatch


class _AllBarriers(LogReader):
    def _lets_through(self, entry: LoggedControl, replayed: bool) -> bool:
        return entry.position >= self.skip_before


class ReplaysEveryBarrier(_OtherReader):
    reader_class = _AllBarriers


class BeginsBehindAnyBarrier(ChannelLog):
    """Takes a barrier that lies where the consumer begins for the one that it was restored from."""

    def _index_of(self, position: int, pending: Collection[int]) -> int:
        return ChannelLog._index_of(self, position, ())


class _EvenBehind(LogReader):
    def _lets_through(self, entry: LoggedControl, replayed: bool) -> bool:
        return True if entry.position < self.skip_before else LogReader._lets_through(self, entry, replayed)


class SendsBarriersDuringCatchUp(_OtherReader):
    reader_class = _EvenBehind


class CleansWhatWasRead(ChannelLog):
    def completed(self, checkpoint: int) -> None:
        ChannelLog.completed(self, checkpoint)
        held_from = self._held_from
        while self.reader is not None and self._first_index < self.reader.index:
            self._forget_first()
        self._held_from = held_from


class AlwaysWhole(ChannelLog):
    """Says so, and gives what is left."""

    def is_whole_for(self, checkpoint: int) -> bool:
        return True

    def attach(self, position: int, pending: Collection[int]) -> LogReader:
        self._held_from = min(self._held_from, position)
        return ChannelLog.attach(self, position, pending)


class LogsArrivalsOnly(LoopLog):
    def snapshot_taken(self, checkpoint: int) -> list[LoopAction]:
        return _without(LoopLog.snapshot_taken(self, checkpoint), self._logs.get(checkpoint), lambda _: True)


class StopsAllAtOnce(LoopLog):
    """Takes the first barrier that comes back for the end of every channel's log."""

    def returned(self, channel: ChannelId, checkpoint: int) -> list[LoopAction]:
        if checkpoint in self._logs:
            self._logs[checkpoint].open.clear()
        return LoopLog.returned(self, channel, checkpoint)


class DropsWhatItReplays(LoopLog):
    """Does not log again what a restored log put into the queues."""

    def __init__(self, channels: Any, restored: LoopContents | None = None, *, rounds: bool = False) -> None:
        super().__init__(channels, restored, rounds=rounds)
        self._replayed = {id(entry) for queue in self._queues.values() for entry in queue}

    def snapshot_taken(self, checkpoint: int) -> list[LoopAction]:
        taken = LoopLog.snapshot_taken(self, checkpoint)
        return _without(taken, self._logs.get(checkpoint), lambda entry: id(entry) in self._replayed)


class LetsEarlyBarriersPass(LoopLog):
    """Processes what lies behind the barrier of another head before it has taken its own snapshot."""

    def __init__(self, channels: Any, restored: LoopContents | None = None, *, rounds: bool = False) -> None:
        super().__init__(channels, restored, rounds=rounds)
        self._early: dict[int, list[ChannelId]] = defaultdict(list)

    def returned(self, channel: ChannelId, checkpoint: int) -> list[LoopAction]:
        if checkpoint > self._settled:
            self._early[checkpoint].append(channel)
            return []
        return LoopLog.returned(self, channel, checkpoint)

    def snapshot_taken(self, checkpoint: int) -> list[LoopAction]:
        actions = LoopLog.snapshot_taken(self, checkpoint)
        for channel in self._early[checkpoint]:
            actions += LoopLog.returned(self, channel, checkpoint)
        return actions


def _without(taken: list[LoopAction], log: Any, dropped: Callable[[LoopEntry], bool]) -> list[LoopAction]:
    """The log that has just begun, or is whole already, without what lay in the queues and is `dropped`."""
    logs = [log.entries] if log else [a.contents.entries for a in taken if isinstance(a, AcknowledgeLoop)]
    for entries in cast(list[dict[ChannelId, list[LoopEntry]]], logs):
        for channel, kept in entries.items():
            entries[channel] = [entry for entry in kept if not dropped(entry)]
    return taken


class OneWaveIsEnough(LoopEnd):
    def _judge(self, now: float) -> list[LoopEndAction]:
        answers = self._answers.values()
        self._candidate = (sum(each.sent for each in answers), sum(each.received for each in answers))
        return LoopEnd._judge(self, now)


class BeginsUnopenedRounds(LoopEnd):
    """What a head that began sends round may come to one that has not heard of the round."""

    def _at_rest(self, round: int, now: float) -> list[LoopEndAction]:
        self._answers = {subtask: counts._replace(arriving=None) for subtask, counts in self._answers.items()}
        return LoopEnd._at_rest(self, round, now)


class CountsWhoHasEnded(GroupTime):
    def ended(self, subtask: SubtaskId) -> None:
        pass


class SaysItOnce(SourceDrift):
    @property
    def has_news(self) -> bool:
        return self._said is None and super().has_news


APART = Jobs(drifts=0.0)
"""Only bugs of sources that keep together need such sources to be found."""


@dataclass(frozen=True)
class Bug:
    parts: Parts
    jobs: Jobs = APART
    """Where it can show: looking for it in other jobs would take longer."""


REPLAYING = replace(
    APART, exchanges=(Exchange.PIPELINED, Exchange.MEMORY, Exchange.DURABLE), loops=0.0, fewest_faults=3
)
SIDE_SINKS = replace(REPLAYING, side_sinks=1.0)
MEMORY = replace(REPLAYING, exchanges=(Exchange.PIPELINED, Exchange.MEMORY))
PIPELINED = replace(REPLAYING, exchanges=(Exchange.PIPELINED,))
BAD_STORAGE = replace(PIPELINED, fewest_faults=6, bad_swaps=0.6)
FAULTS = replace(APART, loops=0.0, fewest_faults=4)
LOOPS = replace(APART, exchanges=(Exchange.PIPELINED, Exchange.DURABLE), loops=1.0)
PARALLEL_LOOPS = replace(LOOPS, fewest_subtasks=2)
LONG_LOOPS = replace(PARALLEL_LOOPS, exchanges=(Exchange.PIPELINED,), long_loops=True)
TOGETHER = Jobs(drifts=1.0, fewest_faults=2)

NO_BUG = Bug(REAL, ANY)

BUGS: dict[str, Bug] = {
    "alignment off": Bug(Parts(alignment=NeverBlocks)),
    "barrier overtakes a record": Bug(Parts(barriers_keep_their_place=False)),
    "stale acknowledgement accepted": Bug(Parts(coordinator=TakesStaleAcknowledgements), FAULTS),
    "final state for a barrier that was sent before": Bug(Parts(coordinator=TakesFinalStatesForOlderBarriers)),
    "prepared transaction dropped on abort": Bug(Parts(lineage=DropsOnAbort), PIPELINED),
    "commit before complete": Bug(Parts(commits_wait_for_the_manifest=False)),
    "manifest landing after its abort": Bug(Parts(unknown_outcomes_are_resolved=False), PIPELINED),
    "refusal after an unknown outcome taken as final": Bug(
        Parts(refusals_after_unknown_are_checked=False), BAD_STORAGE
    ),
    "attempt number reused by the next driver": Bug(Parts(generations_are_new=False), PIPELINED),
    "replaced driver swaps against what it reads": Bug(Parts(drivers_swap_against_their_own_version=False), PIPELINED),
    "savepoint that commits": Bug(Parts(savepoints_do_not_commit=False), PIPELINED),
    "zombie not fenced": Bug(Parts(connections_are_fenced=False), PIPELINED),
    "watermark not restored": Bug(Parts(watermarks=ForgetsWatermarks)),
    "one failure restarted twice": Bug(Parts(region_run=HandlesEveryReport)),
    "replay off by one": Bug(Parts(log=ReplaysOneTooFew), REPLAYING),
    "dedupe by batch instead of record": Bug(Parts(log=DedupesByBatch), REPLAYING),
    "an aborted barrier aligned on replay": Bug(
        Parts(log=ReplaysEveryBarrier, alignment=TakesNumbersForNews), REPLAYING
    ),
    "a pending barrier skipped where a consumer begins": Bug(Parts(log=BeginsBehindAnyBarrier), REPLAYING),
    "a barrier let through during a producer's catch-up": Bug(
        Parts(log=SendsBarriersDuringCatchUp, catch_up_holds_checkpoints=False), REPLAYING
    ),
    "a slot without logs waited for to catch up": Bug(Parts(slots_without_logs_are_not_held=False), SIDE_SINKS),
    "log cleaned too early": Bug(Parts(log=CleansWhatWasRead), REPLAYING),
    "memory log called whole too early": Bug(Parts(log=AlwaysWhole), MEMORY),
    "loop log from arrival only": Bug(Parts(loop_log=LogsArrivalsOnly), LOOPS),
    "one stop for all feedback channels": Bug(Parts(loop_log=StopsAllAtOnce), LOOPS),
    "loop log dropped when a barrier comes during replay": Bug(Parts(loop_log=DropsWhatItReplays), LOOPS),
    "early barrier of another head not held": Bug(Parts(loop_log=LetsEarlyBarriersPass), PARALLEL_LOOPS),
    "termination by a single wave of counts": Bug(Parts(loop_end=OneWaveIsEnough), LONG_LOOPS),
    "round begun before every head has opened it": Bug(Parts(loop_end=BeginsUnopenedRounds), LONG_LOOPS),
    "a source waits for one that has ended": Bug(Parts(group_time=CountsWhoHasEnded), TOGETHER),
    "a source says only once how far it has come": Bug(Parts(source_drift=SaysItOnce), TOGETHER),
}
