"""Sources that keep together in event time: none runs further ahead of the slowest than was allowed.

Theory of operation. A window stays open until the slowest source has passed its end, so what lies between the slowest
and the fastest is state. Sources whose rows may meet form a *group* with one drift. Each subtask says how far the
slowest of its splits has come (`SourceDrift`), the driver tells all of them the least (`GroupTime`), and a split that
is ahead of it by more than the drift is not read. It only waits: it still takes part in checkpoints, and is not idle.

Nobody waits for ever. Only those count that can go on by themselves: no split that is idle, has ended or has given no
row yet, and no subtask of a region that is away. What a subtask was told is behind what is true by a quarter of the
drift on the way to the driver and another on the way back at most, once all messages have arrived. So the slowest split
of all is never more than half the drift ahead of what its subtask was told: it is read, until another is the slowest.

Nobody runs away before the first word. A subtask that has begun to count and has heard of nobody who does goes no
further than the drift beyond where it began: the driver answers whoever begins to count when nobody did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from snapshot_engine.protocol.elements import MAX_WATERMARK, SubtaskId

NOBODY_AHEAD = MAX_WATERMARK
"""What a subtask is told that has to wait for nobody."""


class SourceDrift:
    """One source subtask: which of its splits wait, and what the driver has to hear. One for every attempt.

    Whenever `has_news` is true, the caller sends what `say` returns, at once or a little later.
    """

    def __init__(self, drift_ms: int) -> None:
        self._drift = drift_ms
        self._times: Mapping[str, int] = {}
        self._told: int | None = None
        self._said: int | None = None
        self._began: int | None = None
        self.held: frozenset[str] = frozenset()
        """Splits that must not be read now."""

    def stands_at(self, times: Mapping[str, int]) -> None:
        """How far each split has come that has given rows, and is neither idle nor at its end."""
        self._times = times
        self._hold()

    def told(self, least: int | None) -> None:
        """What the driver said last: the least of the group; None if nobody counted then."""
        self._told = least
        self._hold()

    @property
    def has_news(self) -> bool:
        return _is_news(self._least(), self._said, self._drift)

    def say(self) -> int | None:
        """How far this subtask has come; None if it does not count."""
        self._said = self._least()
        return self._said

    def _least(self) -> int | None:
        return min(self._times.values(), default=None)

    def _hold(self) -> None:
        least = self._least()
        if least is None or self._told is not None:
            self._began = None
        if least is None:
            self.held = frozenset()
            return
        if self._told is None and self._began is None:
            self._began = least
        slowest = self._began if self._told is None else self._told
        limit = (least if slowest is None else min(least, slowest)) + self._drift
        self.held = frozenset(split for split, time in self._times.items() if time > limit)


class GroupTime:
    """The driver's part: how far the slowest subtask of a group has come.

    Whenever `has_news` is true, the caller sends what `tell` returns to all of the group; to a subtask that is there
    only since then, `told`.
    """

    def __init__(self, drift_ms: int) -> None:
        self._drift = drift_ms
        self._times: dict[SubtaskId, int] = {}
        self._ended: set[SubtaskId] = set()
        self.told: int | None = None

    def stands_at(self, subtask: SubtaskId, time: int | None) -> None:
        """What `subtask` has said; None: it does not count for now."""
        if time is None or subtask in self._ended:
            self._times.pop(subtask, None)
        else:
            self._times[subtask] = time

    def ended(self, subtask: SubtaskId) -> None:
        """It has nothing more to read; what it said before may come only now."""
        self._ended.add(subtask)
        self._times.pop(subtask, None)

    def away(self, subtasks: Iterable[SubtaskId]) -> None:
        """Their region does not run: the others go on without them. They may come again, from before their end."""
        for subtask in subtasks:
            self._ended.discard(subtask)
            self._times.pop(subtask, None)

    @property
    def has_news(self) -> bool:
        return _is_news(self._least(), self.told, self._drift)

    def tell(self) -> int | None:
        self.told = self._least()
        return self.told

    def _least(self) -> int | None:
        return min(self._times.values(), default=None)


def _is_news(time: int | None, said: int | None, drift: int) -> bool:
    if time is None or said is None:
        return time is not said
    return abs(time - said) > drift // 4
