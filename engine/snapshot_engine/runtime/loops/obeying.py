"""The slot's side of what the driver says about loops."""

from __future__ import annotations

from collections.abc import Sequence

from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.loops import steering
from snapshot_engine.runtime.loops.head import HeadSubtask
from snapshot_engine.runtime.slot_task import subtask_key
from snapshot_engine.runtime.subtask import Subtask


def obey(message: m.SteerLoop, subtasks: Sequence[Subtask]) -> m.LoopCounted | None:
    """Pass the driver's word on to the heads; or count, which all subtasks of the slot do."""
    if message.what == steering.COUNT:
        counts = {subtask_key(subtask.id): list(subtask.loop_counts()) for subtask in subtasks}
        return m.LoopCounted(message.number, counts)
    for subtask in subtasks:
        if isinstance(subtask, HeadSubtask) and not subtask.ended:
            _tell(subtask, message)
    return None


def _tell(head: HeadSubtask, message: m.SteerLoop) -> None:
    match message.what:
        case steering.END_ROUND:
            head.end_round(message.number)
        case steering.OPEN_ROUND:
            head.open_round(message.number)
        case steering.BEGIN_ROUND:
            head.begin_round(message.number)
        case steering.FINAL_WATERMARK:
            head.let_time_run_out()
        case steering.END:
            head.end_loop()
        case _:
            raise m.BadMessage(f"a loop is not told {message.what!r}")
