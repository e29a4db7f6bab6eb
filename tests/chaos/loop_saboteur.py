"""Kills the slot it runs in at a named moment of its loop: what happens then is decided inside the slot, so only there
can it be hit on the spot. It sits in the pipeline as a function that changes nothing.

The plan is a list of (moment, how many times it is let pass). Each attempt of the job follows the next entry; a kill is
noted in a folder that outlives the slots, by a file that only one of them can make.

A loop that is empty has nothing to lose, and a job that begins anew proves nothing. So the saboteur is slow while there
are kills to come, which keeps records on their way round; and it strikes only when a checkpoint has completed since the
kill before with records in its log (`Restores` says so).

Two moments are over too soon to be met by chance, so they are made to last, by channels and heads that are slow as they
may be: for two checkpoints in flight the barrier is held up on the longer way round, and for a replay with a checkpoint
pending the head does not get round to what was restored until barriers have come.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from snapshot_engine.api import Function
from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.protocol.elements import Barrier
from snapshot_engine.protocol.loop_log import AcknowledgeLoop
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.loops import obeying, steering
from snapshot_engine.runtime.loops.head import HeadSubtask
from snapshot_engine.runtime.subtask import Subtask

SECONDS_PER_ROW = 0.0002

REPLAY = "during replay with a checkpoint pending"
TWO_IN_FLIGHT = "with two checkpoints in flight"
COUNTING = "while counting for the end"
TOLD = "when told that the loop is over"
BETWEEN = (
    "before the barrier left the head",
    "while the barrier goes round",
    "after the barrier came back",
    "with records arrived but not processed",
    TWO_IN_FLIGHT,
    "with one of two feedback channels back",
)
"""Moments that come again and again."""
MOMENTS = (*BETWEEN, REPLAY, COUNTING, TOLD)
AT_ONCE = (REPLAY, TOLD)
"""Moments that do not wait for a further checkpoint: a replay would be over, and a loop that ends is empty."""


class Saboteur(Function):
    """`open` is called in each slot: it puts its wires round the head's methods there."""

    def __init__(self, plan: list[tuple[str, int]], folder: str) -> None:
        self.plan = plan
        self.folder = folder
        self.in_vain = 0

    def open(self, context) -> None:
        if not hasattr(HeadSubtask, "sabotaged"):
            HeadSubtask.sabotaged = self  # type: ignore[attr-defined]
            wire(self)

    def __call__(self, batch):
        if self.kills_left():
            time.sleep(SECONDS_PER_ROW * batch.num_rows)
        return batch

    def kills_left(self) -> bool:
        return len(list(Path(self.folder).glob("kill-*"))) < len(self.plan)

    def waits_for(self, moment: str) -> bool:
        """Whether this attempt is to die of `moment`, and may."""
        done = len(list(Path(self.folder).glob("kill-*")))
        if done >= len(self.plan) or self.plan[done][0] != moment:
            return False
        return moment in AT_ONCE or armed(Path(self.folder), done).exists()

    def reached(self, moment: str) -> None:
        """The slot is at `moment`: die, if that is what this attempt is to die of."""
        if not self.waits_for(moment):
            return
        done = len(list(Path(self.folder).glob("kill-*")))
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

    def nothing_to_replay(self) -> None:
        """Another attempt, if that is so for long and there is something for it by now."""
        done = len(list(Path(self.folder).glob("kill-*")))
        if self.waits_for(REPLAY) and armed(Path(self.folder), done).exists():
            self.in_vain += 1
            if self.in_vain > 20:
                os.kill(os.getpid(), signal.SIGKILL)


def wire(saboteur: Saboteur) -> None:
    hold_barriers(saboteur)
    hold_replays(saboteur)
    around(HeadSubtask, "_take_snapshot", saboteur, before_snapshot, after_snapshot)
    around(HeadSubtask, "_arrived", saboteur, nothing, after_arrival)
    around(HeadSubtask, "_act_on_loop", saboteur, nothing, after_return)
    count = obeying.obey

    def obey(message, subtasks):
        saboteur.reached(COUNTING if message.what == steering.COUNT else TOLD)
        return count(message, subtasks)

    import snapshot_engine.runtime.slot as slot

    slot.obey = obey


def hold_barriers(saboteur: Saboteur) -> None:
    """Where two checkpoints are to be in flight, the vertex on the longer way round does not get to its barrier."""
    readable = Subtask._next_readable

    def wired(self):
        in_the_body = self._slices is not None and not isinstance(self, HeadSubtask)
        if in_the_body and saboteur.waits_for(TWO_IN_FLIGHT) and any(map(is_at_barrier, self._open_queues)):
            return None
        return readable(self)

    Subtask._next_readable = wired  # type: ignore[method-assign]


def is_at_barrier(queue: InboundQueue) -> bool:
    return bool(queue.elements) and isinstance(queue.elements[0], Barrier)


def hold_replays(saboteur: Saboteur) -> None:
    """Where a replay is to be hit, the head does not get to what was restored before it has taken its snapshots."""
    take = HeadSubtask._take

    def wired(self):
        if saboteur.waits_for(REPLAY) and replays(self):
            return []
        batches = take(self)
        self.taken_back = getattr(self, "taken_back", 0) + sum(batch.nbytes for batch in batches)
        return batches

    HeadSubtask._take = wired  # type: ignore[method-assign]


def replays(head: HeadSubtask) -> bool:
    """Whether some of what was restored lies in its queues."""
    return getattr(head, "taken_back", 0) < head._loop.restored_bytes


Look = Callable[[Saboteur, HeadSubtask, Sequence[Any]], None]
"""Is given the arguments of the method it looks at."""


def around(kind: type, name: str, saboteur: Saboteur, before: Look, after: Look) -> None:
    method = getattr(kind, name)

    def wired(self, *arguments):
        before(saboteur, self, arguments)
        result = method(self, *arguments)
        after(saboteur, self, arguments)
        return result

    setattr(kind, name, wired)


def nothing(saboteur: Saboteur, head: HeadSubtask, arguments: Sequence[Any]) -> None: ...


def before_snapshot(saboteur: Saboteur, head: HeadSubtask, arguments: Sequence[Any]) -> None:
    saboteur.reached("before the barrier left the head")
    if head._loop.log.waiting:
        saboteur.reached("with records arrived but not processed")


def after_snapshot(saboteur: Saboteur, head: HeadSubtask, arguments: Sequence[Any]) -> None:
    log = head._loop.log
    if log.pending:
        saboteur.reached("while the barrier goes round")
    if len(log.pending) > 1:
        saboteur.reached(TWO_IN_FLIGHT)
    if log.pending and replays(head):
        saboteur.reached(REPLAY)
    elif not replays(head):
        saboteur.nothing_to_replay()


def after_arrival(saboteur: Saboteur, head: HeadSubtask, arguments: Sequence[Any]) -> None:
    every, logs = len(head._loop.feedback), head._loop.log._logs.values()
    if any(len(log.open) == every for log in logs):
        saboteur.reached("while the barrier goes round")
    if any(0 < len(log.open) < every for log in logs):
        saboteur.reached("with one of two feedback channels back")


def after_return(saboteur: Saboteur, head: HeadSubtask, arguments: Sequence[Any]) -> None:
    if any(isinstance(action, AcknowledgeLoop) for action in arguments[0]):
        saboteur.reached("after the barrier came back")


def killed_at(folder: Path, plan: list[tuple[str, int]]) -> list[str]:
    return [moment for moment, _ in plan[: len(list(folder.glob("kill-*")))]]


def armed(folder: Path, kill: int) -> Path:
    return folder / f"armed-{kill:03}"


class Restores(JobEvents):
    """What the attempts began with: checkpoints, and whether records were on their way round in them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoints: list[int] = []
        self.in_flight: dict[int, int] = {}

    def checkpoint_completed(self, manifest, *more) -> None:
        self.in_flight[manifest.checkpoint] = logged_bytes(manifest)
        if self.in_flight[manifest.checkpoint]:
            armed(self.folder, len(list(self.folder.glob("kill-*")))).touch()

    def starting(self, attempts, checkpoint) -> None:
        if checkpoint is not None:
            self.checkpoints.append(checkpoint)

    @property
    def with_records(self) -> int:
        """How many attempts had records to bring back into the loop."""
        return sum(1 for checkpoint in self.checkpoints if self.in_flight.get(checkpoint))


def logged_bytes(manifest) -> int:
    """In the logs of all heads."""
    subtasks = [subtask for vertex in manifest.vertices.values() for subtask in vertex.subtasks.values()]
    loops = [state for subtask in subtasks for state in subtask.operators if state.kind == "loop"]
    return sum(piece.size for state in loops for piece in state.pieces)
