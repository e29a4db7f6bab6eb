"""A failure as the person who must act wants to read it: the user's own frames first."""

from __future__ import annotations

import traceback
from pathlib import Path

import snapshot_engine

_ENGINE = str(Path(snapshot_engine.__file__).parent)


def summary(error: BaseException) -> str:
    """One line per exception of the chain of causes, the first cause last."""
    lines = []
    current: BaseException | None = error
    while current is not None:
        text = str(current)
        lines.append(f"{type(current).__name__}: {text}" if text else type(current).__name__)
        current = current.__cause__
    return "\n  caused by ".join(lines)


def user_traceback(error: BaseException) -> str:
    """The traceback without the engine's frames; with them if there are no others."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    frames = traceback.extract_tb(root.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(_ENGINE)]
    shown = traceback.StackSummary.from_list(own or frames)
    return "".join(["Traceback (most recent call last):\n", *shown.format(), *traceback.format_exception_only(root)])
