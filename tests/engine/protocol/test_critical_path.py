import pytest

from snapshot_engine.protocol.critical_path import Timings, critical_path
from snapshot_engine.protocol.elements import SubtaskId

A, B, C = SubtaskId("a", 0), SubtaskId("b", 0), SubtaskId("c", 0)
UPSTREAM = {B: [A], C: [A, B]}


def test_the_path_follows_the_slowest_upstream_and_sums_up_to_the_total():
    timings = {
        A: Timings(0.1, 0.0, 0.1, 0.5),
        B: Timings(0.3, 0.0, 1.0, 0.1),
        C: Timings(0.25, 1.15, 0.1, 2.0),
    }
    path = critical_path(timings, UPSTREAM)
    assert [step.subtask for step in path.steps] == [A, B, C]
    assert path.total == pytest.approx(3.5)
    assert sum(step.added for step in path.steps) == pytest.approx(path.total)
    assert path.slowest.subtask == C


def test_a_slow_write_upstream_is_on_the_path_only_if_it_ends_last():
    timings = {A: Timings(0.0, 0.0, 0.0, 9.0), C: Timings(0.5, 0.0, 0.0, 0.0)}
    path = critical_path(timings, UPSTREAM)
    assert [step.subtask for step in path.steps] == [A]
    assert path.total == 9.0


def test_finished_subtasks_have_no_times_and_are_left_out():
    path = critical_path({C: Timings(0.5, 0.1, 0.1, 0.1)}, UPSTREAM)
    assert [step.subtask for step in path.steps] == [C]
    assert critical_path({}, UPSTREAM).slowest is None


def test_a_loop_does_not_go_round_for_ever():
    timings = {A: Timings(0.2), B: Timings(0.1)}
    assert len(critical_path(timings, {A: [B], B: [A]}).steps) == 2
