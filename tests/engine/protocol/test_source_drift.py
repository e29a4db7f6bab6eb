"""Who waits for whom in event time, and that never all do."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.source_drift import NOBODY_AHEAD, GroupTime, SourceDrift

A, B = SubtaskId("a", 0), SubtaskId("b", 0)


def test_a_split_waits_while_it_is_ahead_of_the_slowest_by_more_than_the_drift():
    drift = SourceDrift(100)
    drift.told(NOBODY_AHEAD)
    drift.stands_at({"x": 0, "y": 100, "z": 101})
    assert drift.held == {"z"}
    drift.stands_at({"x": 1, "y": 100, "z": 101})
    assert not drift.held


def test_a_subtask_waits_for_what_it_is_told_of_the_others():
    drift = SourceDrift(100)
    drift.stands_at({"x": 500})
    assert not drift.held
    drift.told(399)
    assert drift.held == {"x"}
    drift.told(400)
    assert not drift.held
    drift.told(0)
    drift.told(None)
    assert not drift.held


def test_before_the_first_word_a_subtask_goes_no_further_than_the_drift():
    drift = SourceDrift(100)
    for time in (500, 600, 601):
        drift.stands_at({"x": time})
    assert drift.held == {"x"}
    drift.told(502)
    assert not drift.held


def test_one_that_was_idle_begins_anew_where_it_is_heard_of_again():
    drift = SourceDrift(100)
    drift.stands_at({"x": 500})
    drift.stands_at({})
    drift.stands_at({"x": 900})
    assert not drift.held
    drift.stands_at({"x": 1001})
    assert drift.held == {"x"}


def test_one_that_is_told_of_nobody_goes_on():
    drift = SourceDrift(100)
    drift.told(NOBODY_AHEAD)
    for time in (500, 5000):
        drift.stands_at({"x": time})
    assert not drift.held


def test_what_is_told_of_the_others_does_not_let_splits_of_one_subtask_run_apart():
    drift = SourceDrift(100)
    drift.told(1000)
    drift.stands_at({"x": 500, "y": 601})
    assert drift.held == {"y"}


def test_a_subtask_without_splits_that_count_waits_for_nobody():
    drift = SourceDrift(100)
    drift.told(0)
    drift.stands_at({})
    assert not drift.held and drift.say() is None


def test_only_what_changes_something_is_said():
    drift = SourceDrift(100)
    assert not drift.has_news
    drift.stands_at({"x": 0})
    assert drift.has_news and drift.say() == 0 and not drift.has_news
    drift.stands_at({"x": 25})
    assert not drift.has_news
    drift.stands_at({"x": 26})
    assert drift.has_news and drift.say() == 26
    drift.stands_at({"x": 0})
    assert drift.has_news
    drift.stands_at({})
    assert drift.has_news and drift.say() is None and not drift.has_news


def test_the_group_is_told_the_least():
    group = GroupTime(100)
    assert not group.has_news
    group.stands_at(A, 500)
    assert group.has_news and group.tell() == 500
    group.stands_at(B, 200)
    assert group.has_news and group.tell() == 200 == group.told
    group.stands_at(B, 225)
    assert not group.has_news
    group.stands_at(B, None)
    assert group.has_news and group.tell() == 500


def test_one_that_has_ended_holds_nobody_also_if_it_is_heard_of_later():
    group = GroupTime(100)
    group.stands_at(A, 500)
    group.ended(B)
    group.stands_at(B, 7)
    assert group.tell() == 500


def test_one_that_is_away_counts_again_when_it_is_back():
    group = GroupTime(100)
    group.stands_at(A, 500)
    group.ended(B)
    group.away([B])
    assert group.tell() == 500
    group.stands_at(B, 7)
    assert group.tell() == 7


@given(drift=st.integers(1, 40), sources=st.integers(1, 5), seed=st.integers(0, 10_000))
def test_whatever_is_told_late_one_of_those_that_have_not_ended_may_always_go_on(drift: int, sources: int, seed: int):
    """Messages wait as long as they like; when none is left, the slowest is not held, and all come to their end."""
    choose = random.Random(seed)
    group = GroupTime(drift)
    subtasks = [SubtaskId("s", index) for index in range(sources)]
    drifts = {subtask: SourceDrift(drift) for subtask in subtasks}
    times = dict.fromkeys(subtasks, 0)
    last = {subtask: choose.randint(1, 300) for subtask in subtasks}
    to_driver: list[tuple[SubtaskId, int | None]] = []
    to_sources: dict[SubtaskId, list[int | None]] = {subtask: [] for subtask in subtasks}

    def deliver() -> bool:
        waiting = [subtask for subtask in subtasks if to_sources[subtask]]
        if to_driver and (not waiting or choose.random() < 0.5):
            subtask, time = to_driver.pop(0)
            if times[subtask] >= last[subtask]:
                group.ended(subtask)
            group.stands_at(subtask, time)
            if group.has_news:
                least = group.tell()
                for each in subtasks:
                    to_sources[each].append(least)
            return True
        if waiting:
            subtask = choose.choice(waiting)
            drifts[subtask].told(to_sources[subtask].pop(0))
            return True
        return False

    while open_ones := [subtask for subtask in subtasks if times[subtask] < last[subtask]]:
        ready = [subtask for subtask in open_ones if not drifts[subtask].held]
        if ready and choose.random() < 0.6:
            subtask = choose.choice(ready)
            times[subtask] += choose.randint(1, 5)
            idle = choose.random() < 0.1
            ended = times[subtask] >= last[subtask]
            drifts[subtask].stands_at({} if idle or ended else {"split": times[subtask]})
            if drifts[subtask].has_news or ended:
                to_driver.append((subtask, drifts[subtask].say()))
        elif not deliver():
            assert ready, f"all wait: {times}, told {group.told}"
