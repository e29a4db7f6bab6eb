"""Who starts slots. Spark does (`spark.py`); tests also have one without it (`testing.py`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.slot_task import SlotTask

OnEnd = Callable[[int, Attempt, str | None], None]
"""(region, attempt, error): all slots of the attempt have come to their end. Called from any thread."""


@dataclass(frozen=True)
class ExecutorInfo:
    """A process that slots are placed in, as the launcher knows it."""

    id: str
    host: str
    slots: int
    standby: bool = False
    """No slot is placed there."""


class SlotLauncher(Protocol):
    def launch(self, task: SlotTask, on_end: OnEnd) -> None:
        """Start all slots of an attempt together, or none; returns at once."""
        ...

    def cancel(self, region: int, attempt: Attempt) -> None:
        """End the slots of an attempt that did not stop when they were asked to; returns at once."""
        ...

    def slot_started(self, region: int, attempt: Attempt, slot: int, executor: str) -> None:
        """The slot has said where it is."""
        ...

    def slot_ended(self, region: int, attempt: Attempt, slot: int, lost: bool) -> None:
        """The slot's connection is closed; `lost` if nobody had asked for its end."""
        ...

    def executors(self) -> list[ExecutorInfo]:
        """Those that may be used. Waits for Spark's answer: not for the event loop."""
        ...

    def replace_executor(self, executor: str) -> bool:
        """Give up an executor that is lost or must not be trusted any more, and ask for another; returns at once.

        False if it cannot be given up, since it is this process: slots are placed there as before.
        """
        ...

    @property
    def application_id(self) -> str | None: ...

    @property
    def control_host(self) -> str:
        """The address at which slots reach the driver."""
        ...

    def close(self) -> None: ...
