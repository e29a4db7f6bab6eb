"""A failure as the person who must act wants to read it: which operator, and the user's own frames."""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path

import snapshot_engine
from snapshot_engine.graph.job_graph import OperatorNode
from snapshot_engine.operators.user_errors import UserFunctionError
from snapshot_engine.runtime.chain import OperatorFailed
from snapshot_engine.runtime.job_result import CAUSED_BY
from snapshot_engine.state.changed_state import UnfitState
from snapshot_engine.storage.errors import CorruptCheckpoint, UnknownVersion

_ENGINE = str(Path(snapshot_engine.__file__).parent)
_NOT_THE_USERS = (
    _ENGINE,
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    "<frozen",
)
SHOWN_FRAMES = 4


def summary(error: BaseException) -> str:
    """One line per exception of the chain of causes, the first cause last."""
    lines = []
    for each in _chain(error):
        text = str(each)
        ours = type(each).__module__.startswith(snapshot_engine.__name__)  # written to be read without a class's name
        lines.append(text if text and ours else f"{type(each).__name__}: {text}" if text else type(each).__name__)
        if isinstance(each, UserFunctionError):
            break  # it has told its cause
    return f"\n{CAUSED_BY}".join(lines)


def user_traceback(error: BaseException) -> str:
    """The traceback from the user's first frame on; if there is none, the last frames of ours.

    Nothing if the summary says it all.
    """
    chain = list(_chain(error))
    root = chain[-1]
    if any(isinstance(each, UserFunctionError) for each in chain):
        return ""
    frames = [frame for frame in traceback.extract_tb(root.__traceback__) if not frame.filename.startswith(_ENGINE)]
    while frames and frames[0].filename.startswith(_NOT_THE_USERS):
        del frames[0]
    if not frames and type(root).__module__.startswith(snapshot_engine.__name__):
        return ""
    shown = traceback.StackSummary.from_list(frames or traceback.extract_tb(root.__traceback__)[-SHOWN_FRAMES:])
    return "".join(["Traceback (most recent call last):\n", *shown.format(), *traceback.format_exception_only(root)])


def failing_operator(error: BaseException, nodes: Mapping[int, OperatorNode]) -> BaseException:
    """The error with the operator that was at work and its line, if it does not lead to a line of the user's itself.

    `nodes` are by the identity of their operators: whose method the innermost frame of an operator is.
    """
    if isinstance(error, OperatorFailed) or (isinstance(error, UserFunctionError) and error.frames):
        return error
    found = None
    step = error.__traceback__
    while step is not None:
        found = nodes.get(id(step.tb_frame.f_locals.get("self")), found)
        step = step.tb_next
    if found is None:
        return error
    named = OperatorFailed(found)
    named.__cause__ = error
    return named


def state_is_unreadable(error: BaseException) -> bool:
    """Whether trying again cannot help: what there is in storage does not fit the pipeline, or is damaged."""
    return any(isinstance(each, UnfitState | CorruptCheckpoint | UnknownVersion) for each in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__
