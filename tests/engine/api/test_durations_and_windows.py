from __future__ import annotations

from datetime import timedelta

import pytest

from snapshot_engine.api import Session, Sliding, Tumbling
from snapshot_engine.api.durations import milliseconds, size_in_bytes
from snapshot_engine.api.windows import shape_of
from snapshot_engine.operators.windows import SessionWindow, SlidingWindow, TumblingWindow


def test_durations_are_text_or_timedelta():
    assert milliseconds("1m30s") == 90_000 and milliseconds("250ms") == 250
    assert milliseconds(timedelta(seconds=2)) == 2_000


@pytest.mark.parametrize("wrong", [10, "10", "ten", "0.5ms", timedelta(microseconds=1), timedelta(seconds=-1)])
def test_anything_else_is_refused(wrong):
    with pytest.raises(ValueError):
        milliseconds(wrong)


def test_sizes():
    assert size_in_bytes("64Mi") == 64 * 2**20 and size_in_bytes(100) == 100


def test_shapes_have_milliseconds():
    assert shape_of(Tumbling("10s", offset="2s")) == TumblingWindow(10_000, 2_000)
    assert shape_of(Sliding("1m", "10s")) == SlidingWindow(60_000, 10_000, 0)
    assert shape_of(Session(timedelta(seconds=30))) == SessionWindow(30_000)
    assert shape_of(TumblingWindow(5)) == TumblingWindow(5)


@pytest.mark.parametrize(
    ("window", "words"),
    [
        (Tumbling("0s"), "a window's size must be longer than 0"),
        (Session("0s"), "a session's gap must be longer than 0"),
        (Sliding("10s", "20s"), "rows between windows would be lost"),
        (Tumbling("10"), "is not a duration"),
    ],
)
def test_windows_that_cannot_be(window, words):
    with pytest.raises(ValueError, match=words):
        shape_of(window)


def test_something_that_is_no_window():
    with pytest.raises(TypeError, match="give Tumbling, Sliding or Session"):
        shape_of("10s")  # type: ignore[arg-type]
