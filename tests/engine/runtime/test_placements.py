"""Room for regions while executors come, die and are fenced. Where a region goes is in test_placement.py."""

from __future__ import annotations

import threading

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.launcher import ExecutorInfo
from snapshot_engine.runtime.placements import Placements

FIRST, SECOND = Attempt(1, 1), Attempt(1, 2)


class Cluster:
    """Executors that come and go."""

    def __init__(self, *ids: str, slots: int = 1) -> None:
        self.slots = slots
        self.ids = list(ids)

    def __call__(self) -> list[ExecutorInfo]:
        return [ExecutorInfo(name, "host", self.slots) for name in self.ids]


def test_the_first_regions_wait_until_all_executors_are_there() -> None:
    cluster = Cluster("1")
    placements = Placements(cluster, instances=2)
    chosen: list[object] = []
    waiting = threading.Thread(target=lambda: chosen.append(placements.choose(0, FIRST, [0])))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive(), "one executor has room, but the second one is to be used as well"
    cluster.ids.append("2")
    waiting.join(10)
    assert chosen == [{0: "1"}]


def test_a_region_that_is_given_up_while_it_waits_is_not_placed() -> None:
    placements = Placements(Cluster(), instances=1)
    chosen: list[object] = []
    waiting = threading.Thread(target=lambda: chosen.append(placements.choose(0, FIRST, [0])))
    waiting.start()
    while not placements.all_arrived(0, FIRST, [0]):
        placements.give_up(0, FIRST)
    waiting.join(10)
    assert chosen == [None]


def test_an_executor_that_lost_a_slot_without_a_word_is_avoided_while_others_have_room() -> None:
    placements = Placements(Cluster("1", "2"), instances=1)
    assert placements.choose(0, FIRST, [0]) == {0: "1"}
    placements.slot_started(0, FIRST, 0, "1")
    placements.slot_ended(0, FIRST, 0, lost=True)
    assert placements.choose(0, SECOND, [0]) == {0: "2"}


def test_without_another_executor_the_suspect_one_is_used_again() -> None:
    placements = Placements(Cluster("1"), instances=1)
    placements.choose(0, FIRST, [0])
    placements.slot_started(0, FIRST, 0, "1")
    placements.slot_ended(0, FIRST, 0, lost=True)
    assert placements.choose(0, SECOND, [0]) == {0: "1"}


def test_a_slot_that_ended_as_it_was_told_leaves_its_place_to_the_next_attempt() -> None:
    placements = Placements(Cluster("1", "2"), instances=1)
    placements.choose(0, FIRST, [0])
    placements.slot_started(0, FIRST, 0, "1")
    placements.slot_ended(0, FIRST, 0, lost=False)
    placements.attempt_ended(0, FIRST)
    assert placements.choose(0, SECOND, [0]) == {0: "1"}


def test_nothing_is_placed_on_a_fenced_executor() -> None:
    placements = Placements(Cluster("1", "2"), instances=1)
    assert placements.fence("1") == []
    assert placements.fence("1") is None, "that was known"
    assert placements.choose(0, FIRST, [0]) == {0: "2"}
    assert [executor.id for executor in placements.usable()] == ["2"]


def test_slots_count_where_they_are_and_not_where_they_were_meant_to_be() -> None:
    placements = Placements(Cluster("1", "2"), instances=2)
    placements.choose(0, FIRST, [0])
    placements.slot_started(0, FIRST, 0, "2")
    assert placements.in_use() == {"2"}
    assert placements.choose(1, FIRST, [0]) == {0: "1"}


def test_all_is_settled_when_every_slot_has_arrived() -> None:
    placements = Placements(Cluster("1"), instances=1)
    assert not placements.settled(), "nothing was placed yet"
    placements.choose(0, FIRST, [0])
    assert not placements.settled()
    placements.slot_started(0, FIRST, 0, "1")
    assert placements.settled()


def test_an_attempt_that_waits_for_a_slot_of_a_fenced_executor_waits_in_vain() -> None:
    placements = Placements(Cluster("1", "2"), instances=2)
    placements.choose(0, FIRST, [0])
    placements.choose(1, FIRST, [0])
    placements.slot_started(0, FIRST, 0, "1")
    assert placements.fence("1") == [], "its slot has come; its end is seen by its connection"
    assert placements.fence("2") == [(1, FIRST)]
