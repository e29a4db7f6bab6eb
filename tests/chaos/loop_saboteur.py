"""Kills the slot it runs in at a named moment of its loop: what happens then is decided inside the slot, so only there
can it be hit on the spot. It sits in the pipeline as a function that changes nothing.

The plan is a list of (moment, how many times it is let pass). Each attempt of the job follows the next entry; a kill is
noted in a folder that outlives the slots, by a file that only one of them can make.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from snapshot_engine.api import Function
from snapshot_engine.runtime.loops import obeying
from snapshot_engine.runtime.loops.head import HeadSubtask

MOMENTS = (
    "before the barrier left the head",
    "while the barrier goes round",
    "after the barrier came back",
    "with records arrived but not processed",
    "during replay with a checkpoint pending",
    "with two checkpoints in flight",
    "with one of two feedback channels back",
    "while counting for the end",
)


class Saboteur(Function):
    """`open` is called in each slot: it puts its wires round the head's methods there."""

    def __init__(self, plan: list[tuple[str, int]], folder: str) -> None:
        self.plan = plan
        self.folder = folder

    def open(self, context) -> None:
        if not hasattr(HeadSubtask, "sabotaged"):
            HeadSubtask.sabotaged = self  # type: ignore[attr-defined]
            wire(self)

    def __call__(self, batch):
        return batch

    def reached(self, moment: str) -> None:
        """The slot is at `moment`: die, if that is what this attempt is to die of."""
        done = len(list(Path(self.folder).glob("kill-*")))
        if done >= len(self.plan) or self.plan[done][0] != moment:
            return
        passes = Path(self.folder) / f"passed-{done}-{os.getpid()}"
        with passes.open("a") as file:
            file.write("x")
        if passes.stat().st_size <= self.plan[done][1]:
            return
        try:
            os.close(os.open(Path(self.folder) / f"kill-{done:03}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


def wire(saboteur: Saboteur) -> None:
    around(HeadSubtask, "_take_snapshot", saboteur, before_snapshot, after_snapshot)
    around(HeadSubtask, "_arrived", saboteur, nothing, after_arrival)
    around(HeadSubtask, "_act_on_loop", saboteur, nothing, after_return)
    count = obeying.obey

    def obey(message, subtasks):
        if message.what == "count":
            saboteur.reached("while counting for the end")
        return count(message, subtasks)

    import snapshot_engine.runtime.slot as slot

    slot.obey = obey


Look = Callable[[Saboteur, HeadSubtask], None]


def around(kind: type, name: str, saboteur: Saboteur, before: Look, after: Look) -> None:
    method = getattr(kind, name)

    def wired(self, *arguments):
        before(saboteur, self)
        result = method(self, *arguments)
        after(saboteur, self)
        return result

    setattr(kind, name, wired)


def nothing(saboteur: Saboteur, head: HeadSubtask) -> None: ...


def before_snapshot(saboteur: Saboteur, head: HeadSubtask) -> None:
    saboteur.reached("before the barrier left the head")
    if head._loop.log.waiting:
        saboteur.reached("with records arrived but not processed")


def after_snapshot(saboteur: Saboteur, head: HeadSubtask) -> None:
    log = head._loop.log
    if log.pending:
        saboteur.reached("while the barrier goes round")
    if len(log.pending) > 1:
        saboteur.reached("with two checkpoints in flight")
    if head.activity.bytes_in < head._loop.restored_bytes:
        saboteur.reached("during replay with a checkpoint pending")


def after_arrival(saboteur: Saboteur, head: HeadSubtask) -> None:
    logs = head._loop.log._logs.values()
    if any(0 < len(log.open) < len(head._loop.feedback) for log in logs):
        saboteur.reached("with one of two feedback channels back")


def after_return(saboteur: Saboteur, head: HeadSubtask) -> None:
    if not head._loop.snapshots:
        saboteur.reached("after the barrier came back")


def killed_at(folder: Path, plan: list[tuple[str, int]]) -> list[str]:
    return [moment for moment, _ in plan[: len(list(folder.glob("kill-*")))]]
