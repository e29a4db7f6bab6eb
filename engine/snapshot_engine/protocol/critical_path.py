"""Which subtasks made a checkpoint slow: T(n,i) = max over upstream j of T(n,j), plus t(i).

T(n,i) is when subtask i had emitted its barrier, counted from the trigger; t(i) is what i added to it. The
checkpoint is done when the last subtask has also written its state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from snapshot_engine.protocol.elements import SubtaskId


class Timings(NamedTuple):
    """The four times of one subtask's snapshot, in seconds."""

    start_delay: float = 0.0  # trigger to first barrier
    alignment: float = 0.0  # first barrier to last
    synchronous: float = 0.0  # snapshot taken in the subtask's thread; then the barrier goes out
    asynchronous: float = 0.0  # written and acknowledged in the background

    @property
    def barrier_sent(self) -> float:
        return self.start_delay + self.alignment + self.synchronous

    @property
    def acknowledged(self) -> float:
        return self.barrier_sent + self.asynchronous


PARTS = ("start_delay", "alignment", "sync", "async")


class Step(NamedTuple):
    """One subtask on the critical path and what it added, in seconds."""

    subtask: SubtaskId
    start_delay: float  # from the slowest upstream's barrier to the first barrier here: transit and queues
    alignment: float  # from then on, to the last barrier here
    synchronous: float
    asynchronous: float  # counted only for the last subtask of the path: nobody waits for the others'

    @property
    def waited(self) -> float:
        """From the slowest upstream's barrier to the last barrier here."""
        return self.start_delay + self.alignment

    @property
    def added(self) -> float:
        return self.waited + self.synchronous + self.asynchronous

    @property
    def parts(self) -> dict[str, float]:
        """What was added, by which of the four times it was."""
        return dict(zip(PARTS, self[1:], strict=True))

    @property
    def longest_part(self) -> str:
        return max(PARTS, key=self.parts.__getitem__)


@dataclass(frozen=True, slots=True)
class CriticalPath:
    total: float
    steps: tuple[Step, ...]
    """From a source to the subtask that was last to acknowledge. The added times sum up to the total."""

    @property
    def slowest(self) -> Step | None:
        """The step to look at first."""
        return max(self.steps, key=lambda step: step.added, default=None)


def critical_path(
    timings: Mapping[SubtaskId, Timings], upstream: Mapping[SubtaskId, Collection[SubtaskId]]
) -> CriticalPath:
    """`upstream` names the subtasks that a barrier comes from; a subtask without timings (finished) is left
    out.
    """
    if not timings:
        return CriticalPath(0.0, ())
    last = max(timings, key=lambda subtask: (timings[subtask].acknowledged, subtask))
    steps = [_step(last, timings, upstream, is_last=True)]
    seen = {last}
    while (before := _slowest_upstream(steps[-1].subtask, timings, upstream)) and before not in seen:
        seen.add(before)
        steps.append(_step(before, timings, upstream, is_last=False))
    return CriticalPath(timings[last].acknowledged, tuple(reversed(steps)))


def _step(
    subtask: SubtaskId,
    timings: Mapping[SubtaskId, Timings],
    upstream: Mapping[SubtaskId, Collection[SubtaskId]],
    is_last: bool,
) -> Step:
    own = timings[subtask]
    before = _slowest_upstream(subtask, timings, upstream)
    barrier_came = own.start_delay + own.alignment
    waited = barrier_came - (timings[before].barrier_sent if before else 0.0)
    aligning = min(own.alignment, max(waited, 0.0))  # what of it lies behind the slowest upstream's barrier
    return Step(subtask, waited - aligning, aligning, own.synchronous, own.asynchronous if is_last else 0.0)


def _slowest_upstream(
    subtask: SubtaskId,
    timings: Mapping[SubtaskId, Timings],
    upstream: Mapping[SubtaskId, Collection[SubtaskId]],
) -> SubtaskId | None:
    known = [other for other in upstream.get(subtask, ()) if other in timings and other != subtask]
    return max(known, key=lambda other: (timings[other].barrier_sent, other), default=None)
