"""What Spark says when the job of a region's slots fails, as a sentence for the person who must act.

Spark tells it as pages of its own stack, of which a line or two are about the slot. Pure: text in, text out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

_TASK = re.compile(r"barrier task ResultTask\(\d+, (\d+)\)")
_RAISED = "An exception was thrown from the Python worker"
_DIED = "Python worker exited unexpectedly"
_LOST = re.compile(r"ExecutorLostFailure \(executor (\S+) .*?\)(?: Reason: (.*))?$", re.MULTILINE)
_CANCELLED = re.compile(r"Job \d+ cancelled")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$")
_WHERE_TO_LOOK = "the executor's log, and whether its machine or pod ran out of memory"


def told_by_spark(text: str, slots: Sequence[int], placed: Mapping[int, str], arrived: Collection[int] = ()) -> str:
    """`slots` are in the order of the tasks, `placed` says where each is, `arrived` which of them had come up.

    What is not known as one of the usual ways to fail is told in Spark's own words, the first line of them.
    """
    lost = _LOST.search(text)
    if lost is not None:
        reason = (lost[2] or "Spark does not say why").strip().rstrip(".")
        return f"executor {lost[1]} was lost with its slots: {reason}. Look at {_WHERE_TO_LOOK}"
    if _CANCELLED.search(text):
        return "the start of its slots was given up: their executor was lost, or they did not come up in time"
    who = _who(text, slots, placed, arrived)
    if _DIED in text:
        return f"{who}: its process was killed or crashed. Look at {_WHERE_TO_LOOK}"
    if _RAISED in text:
        return f"{who}: {_exception(text)}. The whole of it is in the executor's log"
    return text.strip().splitlines()[0] if text.strip() else "Spark does not say why"


def _who(text: str, slots: Sequence[int], placed: Mapping[int, str], arrived: Collection[int]) -> str:
    task = _TASK.search(text)
    if task is None or int(task[1]) >= len(slots):
        return "a slot failed"
    slot = slots[int(task[1])]
    where = f" on executor {placed[slot]}" if slot in placed else ""
    return f"slot {slot} failed{where}" if slot in arrived else f"slot {slot} failed{where} while it started"


def _exception(text: str) -> str:
    """The last line of the worker's traceback that begins an exception, such as `OSError: no such file`."""
    traceback = text.partition(_RAISED)[2].partition("\n\tat ")[0].splitlines()[1:]
    raised = [line for line in traceback if _EXCEPTION.match(line)]
    return raised[-1].rstrip(".") if raised else "an exception that Spark does not tell"
