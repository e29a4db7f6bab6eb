"""How a job ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby

from snapshot_engine.protocol.restarts import Failure
from snapshot_engine.wire.status import ExitCode


class Outcome(Enum):
    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    FENCED = "fenced"


@dataclass
class JobResult:
    outcome: Outcome
    message: str = ""
    savepoint: str | None = None
    history: Sequence[str] = ()
    cut_short: bool = False
    """It was stopped without a last checkpoint: it goes on from the one before."""
    unreadable_state: bool = False
    """It failed since what it was to be restored from is damaged or does not fit: the same driver again cannot help."""

    @property
    def sentence(self) -> str:
        word = self.outcome.value
        return self.message if self.message.startswith(word) else f"{word}: {self.message}"

    @property
    def exit_code(self) -> ExitCode:
        return ExitCode.UNREADABLE_STATE if self.unreadable_state else _EXIT_CODES[self.outcome]


_EXIT_CODES = {
    Outcome.FINISHED: ExitCode.FINISHED,
    Outcome.STOPPED: ExitCode.FINISHED,
    Outcome.FAILED: ExitCode.RESTARTS_EXHAUSTED,
    Outcome.FENCED: ExitCode.FENCED,
}


CAUSED_BY = "  caused by "
"""How a line of a failure's message begins that says more of why than the line before it."""


def told(failures: Iterable[Failure]) -> list[str]:
    """What happened before, a line for each, those that repeat themselves in one."""
    lines = [_line(failure) for failure in failures]
    runs = [(line, len(list(run))) for line, run in groupby(lines)]
    return [line if times == 1 else f"{line} ({times} times)" for line, times in runs]


def _line(failure: Failure) -> str:
    who = "the job" if failure.region is None else f"region {failure.region}"
    first, *others = failure.cause.splitlines() or [""]
    return " ".join([f"{who}: {first}", *(line.strip() for line in others if line.startswith(CAUSED_BY))])
