"""One state machine is one enum, one table of allowed transitions, and one place that changes the state."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import Generic, TypeVar

S = TypeVar("S", bound=Enum)


class IllegalTransitionError(Exception):
    """A step that the table does not allow. The message tells how the machine got to where it is."""

    def __init__(self, what: str, start: Enum, finish: Enum, history: Collection[str]) -> None:
        told = "; ".join(history) or "nothing before"
        super().__init__(f"{what} cannot go from {start.name} to {finish.name}. What happened so far: {told}")


class Machine(Generic[S]):
    """The state of one thing. `what` names it in errors, e.g. `checkpoint 7`."""

    HISTORY = 32  # enough to tell the story; the oldest steps are forgotten

    def __init__(self, what: str, table: Mapping[S, Collection[S]], start: S) -> None:
        self.what = what
        self.state = start
        self.history: list[str] = []
        self._table = table

    def go(self, finish: S, now: float, why: str) -> None:
        if finish not in self._table[self.state]:
            raise IllegalTransitionError(self.what, self.state, finish, self.history)
        self.history.append(f"{now:.3f} {self.state.name} -> {finish.name} ({why})")
        del self.history[: -self.HISTORY]
        self.state = finish
