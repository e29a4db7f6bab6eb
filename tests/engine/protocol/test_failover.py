"""The scenario table: which regions restart when one fails."""

import pytest

from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.failover import (
    RegionChannel,
    RegionFacts,
    Strategy,
    regions_to_restart,
    why_not_individual,
)

BLOCKING, DURABLE, MEMORY, COMMITTED = (
    Exchange.BLOCKING,
    Exchange.DURABLE,
    Exchange.MEMORY,
    Exchange.COMMITTED,
)


def facts(*numbers, **flags):
    return {number: RegionFacts(**flags) for number in numbers}


def blocking(*pairs, lost=()):
    return [RegionChannel(p, c, BLOCKING, available=(p, c) not in lost and p not in lost) for p, c in pairs]


ALL_TO_ALL = [(1, 4), (1, 5), (2, 4), (2, 5), (3, 6)]


@pytest.mark.parametrize(
    ("fails", "restarts"),
    [(1, {1, 4, 5}), (2, {2, 4, 5}), (3, {3, 6}), (4, {4}), (5, {5}), (6, {6})],
)
def test_blocking_results_that_are_there(fails, restarts):
    assert regions_to_restart([fails], facts(*range(1, 7)), blocking(*ALL_TO_ALL)) == restarts


def test_a_consumer_that_fails_because_a_result_is_gone_takes_the_producer_and_its_consumers_along():
    assert regions_to_restart([4], facts(*range(1, 7)), blocking(*ALL_TO_ALL, lost=[1])) == {1, 4, 5}


@pytest.mark.parametrize(("fails", "restarts"), [(1, {1, 3}), (2, {1, 2, 3}), (3, {1, 3})])
def test_one_of_two_results_lost(fails, restarts):
    channels = blocking((1, 3), (2, 3), lost=[1])
    assert regions_to_restart([fails], facts(1, 2, 3), channels) == restarts


@pytest.mark.parametrize(("lost", "restarts"), [((), {34, 56}), ((12,), {12, 34, 56})])
def test_a_chain_of_pipelined_pairs(lost, restarts):
    """(1–2) ‖ (3–4) ‖ (5–6), each pair one region."""
    channels = blocking((12, 34), (34, 56), lost=lost)
    assert regions_to_restart([34], facts(12, 34, 56), channels) == restarts


def test_nothing_started_nothing_restarts():
    assert regions_to_restart([1], facts(1, 2, started=False), blocking((1, 2))) == frozenset()


def test_a_consumer_that_has_not_started_is_left_alone_but_its_lost_input_is_made_again():
    regions = facts(1, 2) | facts(3, started=False)
    assert regions_to_restart([2], regions, blocking((1, 3), (2, 3), lost=[1])) == {1, 2}


P, C = 1, 2


@pytest.mark.parametrize(("fails", "restarts"), [([P], {P, C}), ([C], {C}), ([P, C], {P, C})])
def test_durable(fails, restarts):
    assert regions_to_restart(fails, facts(P, C), [RegionChannel(P, C, DURABLE)]) == restarts


def test_durable_whose_producer_is_gone_with_its_executor():
    channels = [RegionChannel(P, C, DURABLE, available=False)]
    assert regions_to_restart([C], facts(P, C), channels) == {P, C}


@pytest.mark.parametrize("fails", [P, C])
def test_committed_restarts_only_what_failed(fails):
    assert regions_to_restart([fails], facts(P, C), [RegionChannel(P, C, COMMITTED)]) == {fails}


def test_memory_while_whole():
    assert regions_to_restart([C], facts(P, C), [RegionChannel(P, C, MEMORY)]) == {C}


def test_memory_over_its_budget_since_the_checkpoint():
    assert regions_to_restart([C], facts(P, C), [RegionChannel(P, C, MEMORY, available=False)]) == {P, C}


@pytest.mark.parametrize("exchange", [MEMORY, DURABLE])
def test_a_deterministic_producer_restarts_alone(exchange):
    regions = {P: RegionFacts(deterministic=True), C: RegionFacts()}
    assert regions_to_restart([P], regions, [RegionChannel(P, C, exchange)]) == {P}


def test_a_deterministic_producer_of_a_blocking_result_does_not():
    regions = {P: RegionFacts(deterministic=True), C: RegionFacts()}
    assert regions_to_restart([P], regions, [RegionChannel(P, C, BLOCKING)]) == {P, C}


def test_a_deterministic_producer_whose_input_is_made_anew_takes_its_consumers_along():
    """A ‖ P ‖ C: A restarts and is not deterministic, so P reads something else and C cannot go on."""
    regions = {0: RegionFacts(), P: RegionFacts(deterministic=True), C: RegionFacts()}
    channels = [RegionChannel(0, P, DURABLE), RegionChannel(P, C, DURABLE)]
    assert regions_to_restart([0], regions, channels) == {0, P, C}
    assert regions_to_restart([0, P], regions, channels) == {0, P, C}
    assert regions_to_restart([P], regions, channels) == {P}


def test_a_chain_of_deterministic_producers_repeats_itself():
    regions = dict.fromkeys((0, P), RegionFacts(deterministic=True)) | {C: RegionFacts()}
    channels = [RegionChannel(0, P, DURABLE), RegionChannel(P, C, DURABLE)]
    assert regions_to_restart([0, P], regions, channels) == {0, P}


def test_what_comes_through_a_committed_cut_is_the_same_again():
    regions = {0: RegionFacts(), P: RegionFacts(deterministic=True), C: RegionFacts()}
    channels = [RegionChannel(0, P, COMMITTED), RegionChannel(P, C, DURABLE)]
    assert regions_to_restart([0, P], regions, channels) == {0, P}


def test_determinism_is_the_producers_not_the_consumers():
    regions = {P: RegionFacts(), C: RegionFacts(deterministic=True)}
    assert regions_to_restart([P], regions, [RegionChannel(P, C, DURABLE)]) == {P, C}


def test_the_rules_are_repeated_until_nothing_is_added():
    """3 fails, its input is lost, so 2 restarts, whose input is lost too, and 1's other consumer follows."""
    channels = [
        RegionChannel(1, 2, DURABLE, available=False),
        RegionChannel(2, 3, DURABLE, available=False),
        RegionChannel(1, 4, DURABLE),
        RegionChannel(4, 5, COMMITTED),
    ]
    assert regions_to_restart([3], facts(1, 2, 3, 4, 5), channels) == {1, 2, 3, 4}


def test_two_regions_that_fail_at_once_are_one_decision():
    channels = [RegionChannel(1, 2, DURABLE), RegionChannel(3, 4, DURABLE)]
    assert regions_to_restart([1, 4], facts(1, 2, 3, 4), channels) == {1, 2, 4}


def test_strategy_all_restarts_whatever_has_started():
    regions = facts(1, 2) | facts(3, started=False)
    assert regions_to_restart([1], regions, [], Strategy.ALL) == {1, 2}
    assert regions_to_restart([], regions, [], Strategy.ALL) == frozenset()


def test_individual_is_refused_with_the_edge_or_region_that_forbids_it():
    regions = {1: RegionFacts(slots=2), 2: RegionFacts(), 3: RegionFacts()}
    channels = [
        RegionChannel(1, 2, COMMITTED, edge="parse → count"),
        RegionChannel(2, 3, DURABLE, edge="count → sink"),
    ]
    reasons = why_not_individual(regions, channels)
    assert len(reasons) == 2
    assert "region 1 spans 2 slots" in reasons[0]
    assert "count → sink is durable" in reasons[1]


def test_individual_applies_where_every_slot_is_its_own_region():
    regions = {1: RegionFacts(deterministic=True), 2: RegionFacts()}
    channels = [RegionChannel(1, 2, DURABLE)]
    assert why_not_individual(regions, channels) == []
    assert regions_to_restart([1], regions, channels, Strategy.INDIVIDUAL) == {1}
