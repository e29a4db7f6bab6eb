"""How a job ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from snapshot_engine.protocol.restarts import Failure


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


def told(failures: Iterable[Failure]) -> list[str]:
    return [f"region {failure.region}: {failure.cause}" for failure in failures]
