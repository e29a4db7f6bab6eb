"""Where slots go: few executors for a region, regions spread evenly, the reserve left free."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.protocol.placement import Place, place_region


def _place_all(regions: list[list[int]], places: list[Place], instances: int) -> list[dict[int, str]]:
    """One region after the other, as the launcher does."""
    placed = []
    for slots in regions:
        chosen = place_region(slots, places, instances)
        assert chosen is not None
        placed.append(dict(chosen))
        taken = list(chosen.values())
        places = [Place(p.executor, p.slots, p.used + taken.count(p.executor)) for p in places]
    return placed


def test_three_regions_take_an_executor_each_and_leave_the_fourth_free() -> None:
    placed = _place_all([[0], [1], [2]], [Place(str(n), 1) for n in range(1, 5)], instances=3)
    assert placed == [{0: "1"}, {1: "2"}, {2: "3"}]


def test_a_region_stays_on_one_executor_although_others_are_free() -> None:
    assert place_region([0, 1], [Place("1", 2), Place("2", 2)], 2) == {0: "1", 1: "1"}


def test_regions_of_one_slot_are_spread_over_executors_with_room_for_more() -> None:
    placed = _place_all([[0], [1], [2], [3]], [Place("1", 4), Place("2", 4)], instances=2)
    assert placed == [{0: "1"}, {1: "2"}, {2: "1"}, {3: "2"}]


def test_a_region_too_large_for_one_executor_touches_as_few_as_can_be() -> None:
    places = [Place("1", 4, used=3), Place("2", 4, used=1), Place("3", 4)]
    chosen = place_region([0, 1, 2, 3, 4], places, 3)
    assert chosen is not None
    assert sorted(chosen.values()) == ["2", "3", "3", "3", "3"]


def test_after_a_loss_the_region_goes_to_the_reserve_and_not_beside_another_one() -> None:
    left = [Place("1", 1, used=1), Place("3", 1, used=1), Place("4", 1)]
    assert place_region([1], left, 3) == {1: "4"}


def test_the_executor_that_replaces_a_lost_one_becomes_the_reserve() -> None:
    now = [Place("1", 2, used=1), Place("3", 2, used=1), Place("4", 2, used=1), Place("5", 2)]
    assert place_region([3], now, 3) == {3: "1"}


def test_the_reserve_is_used_when_nothing_else_has_room() -> None:
    assert place_region([2], [Place("1", 1, used=1), Place("2", 1)], 1) == {2: "2"}


def test_without_room_for_all_slots_none_is_placed() -> None:
    assert place_region([0, 1, 2], [Place("1", 1), Place("2", 1)], 2) is None


def test_executors_count_by_their_numbers_and_not_by_their_letters() -> None:
    assert place_region([0], [Place("10", 1), Place("9", 1)], 1) == {0: "9"}


_places = st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8)), min_size=1, max_size=8).map(
    lambda sizes: [Place(str(n), slots, min(used, slots)) for n, (slots, used) in enumerate(sizes, 1)]
)


@given(st.integers(1, 12), _places, st.integers(1, 8))
def test_no_executor_is_given_more_than_it_has_room_for(count: int, places: list[Place], instances: int) -> None:
    chosen = place_region(range(count), places, instances)
    room = sum(place.free for place in places)
    assert (chosen is None) == (room < count)
    if chosen is not None:
        taken = list(chosen.values())
        assert all(taken.count(place.executor) <= place.free for place in places)


@given(st.integers(1, 12), _places, st.integers(1, 8))
def test_a_region_is_never_spread_over_more_executors_than_it_needs(
    count: int, places: list[Place], instances: int
) -> None:
    chosen = place_region(range(count), places, instances)
    if chosen is not None and any(place.free >= count for place in places[:instances]) and instances >= len(places):
        assert len(set(chosen.values())) == 1
