"""What flows through a channel besides data: the control elements, and the names of things.

A channel carries data batches and control elements in one order. A control element never overtakes a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

MAX_WATERMARK = 2**63 - 1
"""The watermark that says: no event time is left to come. It goes out before the end of input."""

MIN_WATERMARK = -(2**63)


class SubtaskId(NamedTuple):
    """One parallel instance of a vertex. `vertex` is the vertex's uid, stable over restarts and rescaling."""

    vertex: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here

    def __str__(self) -> str:
        return f"{self.vertex}[{self.index}]"


class ChannelId(NamedTuple):
    """One ordered stream of elements between two subtasks, along one edge of the job graph."""

    edge: int
    producer: int
    consumer: int

    def __str__(self) -> str:
        return f"e{self.edge}:{self.producer}->{self.consumer}"


class Attempt(NamedTuple):
    """A region's run. Compared as a pair: a newer driver's first attempt is newer than any of an older
    driver.
    """

    generation: int
    number: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.number}"


class Mode(Enum):
    EXACTLY_ONCE = "ExactlyOnce"
    AT_LEAST_ONCE = "AtLeastOnce"


@dataclass(frozen=True, slots=True)
class Barrier:
    """Separates what belongs to checkpoint `checkpoint` from what does not.

    `triggered_at` is the coordinator's wall clock in seconds, from which the start delay is measured.
    """

    checkpoint: int
    triggered_at: float


@dataclass(frozen=True, slots=True)
class Watermark:
    """No record with an event time at or before `timestamp` (epoch milliseconds) is expected any more."""

    timestamp: int


@dataclass(frozen=True, slots=True)
class Idle:
    """The channel will be silent for a while: do not wait for its watermark. Any later element ends it."""


@dataclass(frozen=True, slots=True)
class RoundEnd:
    """In a loop with rounds: all records of round `round` are done, everywhere. It goes round and ends at the heads."""

    round: int


@dataclass(frozen=True, slots=True)
class EndOfInput:
    """The last element of a channel. It counts as aligned for every checkpoint still to come."""


Control = Barrier | Watermark | Idle | RoundEnd | EndOfInput
