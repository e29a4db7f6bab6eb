"""What a person reads when something in a slot has failed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import snapshot_engine
from snapshot_engine.graph.job_graph import OperatorNode, SourceLocation
from snapshot_engine.operators import user_errors
from snapshot_engine.operators.operator import Operator
from snapshot_engine.operators.user_errors import RecordMismatchError, UserFunctionError
from snapshot_engine.protocol.restarts import Failure
from snapshot_engine.runtime.chain import OperatorFailed
from snapshot_engine.runtime.failure_report import (
    SHOWN_FRAMES,
    failing_operator,
    state_is_unreadable,
    summary,
    user_traceback,
)
from snapshot_engine.runtime.job_result import told
from snapshot_engine.state.restored_tables import StateSchemaChanged
from snapshot_engine.storage.errors import CorruptCheckpoint


def raised(call) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def wrong_price() -> None:
    raise ValueError("no price")


class Sink(Operator):
    def process(self, port: int, data: object) -> None:
        Path("/proc/self/stat/out").mkdir()


class Head(Operator):
    def __init__(self, following: Operator) -> None:
        self.following = following

    def process(self, port: int, data: object) -> None:
        self.following.process(port, data)


def in_a_function() -> None:
    try:
        wrong_price()
    except ValueError as error:
        raise UserFunctionError("map", "the map function", error, has_record=False) from error


def test_the_users_own_frames_are_shown_once() -> None:
    error = raised(in_a_function)
    assert summary(error).count("no price") == 2  # what was raised, and the line that did
    assert "caused by" not in summary(error) and "UserFunctionError" not in summary(error)
    assert user_traceback(error) == ""


def test_an_error_without_a_wrapper_shows_the_users_frames() -> None:
    shown = user_traceback(raised(wrong_price))
    assert "in wrong_price" in shown and "ValueError: no price" in shown


def test_our_own_message_stands_for_itself() -> None:
    def refuse() -> None:
        raise CorruptCheckpoint("a.arrow", "10 bytes", "5 bytes")

    error = raised(refuse)
    assert summary(error).startswith("a.arrow is corrupt")


def test_the_operator_that_was_at_work_is_named() -> None:
    sink = Sink()
    head = Head(sink)
    nodes = {
        id(operator): OperatorNode(uid, uid, object, location="job.py:3")
        for uid, operator in (("rows", head), ("out", sink))
    }
    error = raised(lambda: head.process(0, None))
    named = failing_operator(error, nodes)
    assert isinstance(named, OperatorFailed)
    assert "operator 'out' (uid out, job.py:3) failed" in summary(named)
    assert "NotADirectoryError" in summary(named)
    assert "test_failure_report.py" in user_traceback(named)


def test_an_error_far_from_the_users_code_shows_its_last_frames_only() -> None:
    scope: dict[str, Any] = {}
    source = "def deep(levels):\n    return deep(levels - 1) if levels else 1 / 0\n"
    exec(compile(source, f"{Path(snapshot_engine.__file__).parent}/some_file.py", "exec"), scope)
    error = raised(lambda: scope["deep"](9))
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next.tb_next  # without the test's own frames
    shown = user_traceback(error)
    assert "ZeroDivisionError" in shown and "some_file.py" in shown
    assert 0 < shown.count("File ") <= SHOWN_FRAMES


def test_what_names_its_operator_itself_is_left_alone() -> None:
    error = raised(in_a_function)
    assert failing_operator(error, {}) is error


@pytest.mark.parametrize(
    ("error", "expected"),
    [(StateSchemaChanged("x"), True), (CorruptCheckpoint("a", "b", "c"), True), (OSError("gone"), False)],
)
def test_state_that_cannot_be_read_will_not_be_by_trying_again(error: Exception, expected: bool) -> None:
    def wrap() -> None:
        raise RuntimeError("while opening") from error

    assert state_is_unreadable(raised(wrap)) is expected


def test_the_history_says_why_and_not_only_where() -> None:
    wrapped = RuntimeError("window 3")
    wrapped.__cause__ = KeyError("price")
    cause = f"UserError: {summary(wrapped)}\nwith more lines\n  at: somewhere"
    assert told([Failure(1.0, 0, cause), Failure(2.0, 0, cause), Failure(3.0, None, "")]) == [
        "region 0: UserError: RuntimeError: window 3 caused by KeyError: 'price' (2 times)",
        "the job: ",
    ]


class Mapper(Operator):
    def __init__(self, fails: Callable[[], None]) -> None:
        self.fails = fails

    def process(self, port: int, data: object) -> None:
        self.fails()


def does_not_fit() -> None:
    raise RecordMismatchError("map", "too short", (1,), pa.schema({"n": pa.int64()}))


@pytest.mark.parametrize(
    ("fails", "has_frames"), [(in_a_function, True), (in_a_function, False), (does_not_fit, False)]
)
def test_an_error_without_a_line_of_the_users_names_that_of_the_operator(
    monkeypatch: pytest.MonkeyPatch, fails: Callable[[], None], has_frames: bool
) -> None:
    if not has_frames:  # as where the function is a builtin
        monkeypatch.setattr(user_errors, "_ENGINE", str(Path(__file__).parent))
    mapper = Mapper(fails)
    node = OperatorNode("m", "map", Operator, SourceLocation("jobs.py", 12))
    error = failing_operator(raised(lambda: mapper.process(0, None)), {id(mapper): node})
    assert ("jobs.py:12" in summary(error)) is not has_frames
