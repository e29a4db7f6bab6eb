"""Window shapes in the user's words; what the operators get has milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_engine.api.durations import DurationLike, milliseconds, positive_milliseconds
from snapshot_engine.operators.windows import SessionWindow, SlidingWindow, TumblingWindow, WindowShape


@dataclass(frozen=True)
class Tumbling:
    """Windows of `size` without gap or overlap. `offset` shifts them from the epoch."""

    size: DurationLike
    offset: DurationLike = "0s"

    def shape(self) -> TumblingWindow:
        return TumblingWindow(positive_milliseconds(self.size, "a window's size"), milliseconds(self.offset))


@dataclass(frozen=True)
class Sliding:
    """Windows of `size` that start every `slide`: a row belongs to size / slide of them."""

    size: DurationLike
    slide: DurationLike
    offset: DurationLike = "0s"

    def shape(self) -> SlidingWindow:
        size = positive_milliseconds(self.size, "a window's size")
        slide = positive_milliseconds(self.slide, "a window's slide")
        if slide > size:
            raise ValueError(
                f"slide {self.slide!r} is longer than size {self.size!r}: rows between windows would be lost"
            )
        return SlidingWindow(size, slide, milliseconds(self.offset))


@dataclass(frozen=True)
class Session:
    """Windows that end when a key was silent for `gap`."""

    gap: DurationLike

    def shape(self) -> SessionWindow:
        return SessionWindow(positive_milliseconds(self.gap, "a session's gap"))


Window = Tumbling | Sliding | Session | WindowShape


def shape_of(window: Window) -> WindowShape:
    if isinstance(window, Tumbling | Sliding | Session):
        return window.shape()
    if isinstance(window, TumblingWindow | SlidingWindow | SessionWindow):
        return window
    raise TypeError(f"{window!r} is not a window: give Tumbling, Sliding or Session")
