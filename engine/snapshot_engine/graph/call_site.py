"""Where in the user's own file something was written: the frames that are not the engine's."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from types import FrameType

from snapshot_engine.graph.job_graph import SourceLocation

_ENGINE = str(Path(__file__).resolve().parent.parent)
_PYTHON = str(Path(traceback.__file__).resolve().parent)


def user_location() -> SourceLocation:
    """The line of the nearest caller outside the engine."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _belongs_to_engine(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None:
        return SourceLocation("<unknown>", 0)
    return SourceLocation(shown_path(frame.f_code.co_filename), frame.f_lineno)


def user_frames(error: BaseException) -> traceback.StackSummary:
    """The frames of `error`'s traceback that belong to the user's code."""
    frames = traceback.extract_tb(error.__traceback__)
    return traceback.StackSummary.from_list([frame for frame in frames if not _is_machinery(frame.filename)])


def told_to_the_user(error: BaseException) -> str:
    """What happened, and where in the user's own code: the engine's frames would only be in the way."""
    what = "".join(traceback.format_exception_only(error)).strip()
    frames = "".join(user_frames(error).format()).rstrip()
    return f"{what}\n{frames}" if frames else what


def shown_path(file: str) -> str:
    """Relative to the current directory where it lies below it, as compilers print it."""
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file


def _belongs_to_engine(file: str) -> bool:
    return file.startswith(_ENGINE)


def _is_machinery(file: str) -> bool:
    """The engine, the import system and Python's own library: nothing a user could change."""
    if _belongs_to_engine(file) or file.startswith("<frozen "):
        return True
    return file.startswith(_PYTHON) and "site-packages" not in file
