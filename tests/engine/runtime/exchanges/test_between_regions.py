"""What the JobMaster knows of cut edges: who pauses for a full log, and what failover is told."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from unittest.mock import Mock

import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.planning import PlanOptions, plan_graph
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.exchanges.failover_facts import FailoverFacts, Keeper
from snapshot_engine.runtime.exchanges.region_cuts import RegionCuts
from snapshot_engine.runtime.exchanges.source_pauses import SourcePauses
from snapshot_engine.runtime.region_shell import RegionShell
from snapshot_engine.runtime.slot_task import channel_key

SOURCE, MIDDLE, LAST = 0, 1, 2


def cuts_of(exchange: str) -> RegionCuts:
    """Three regions, one behind the other."""
    env = Environment(parallelism=1)
    rows = env.from_collection([{"n": 1}], uid="rows").exchange(exchange).rebalance()
    rows = rows.filter(lambda row: True).uid("middle").exchange(exchange).rebalance()
    rows.filter(lambda row: True).uid("last").sink_to(CollectSink("unused"), uid="out")
    return RegionCuts(ExecutionGraph(plan_graph(env.graph, PlanOptions(parallelism=1))))


class Listening:
    """The connection of a slot: what it was told."""

    def __init__(self) -> None:
        self.told: list[m.PauseSources] = []

    def send(self, message: m.Message) -> None:
        assert isinstance(message, m.PauseSources)
        self.told.append(message)

    @property
    def paused(self) -> list[bool]:
        """Each change of it."""
        before = [False, *(message.paused for message in self.told)]
        return [paused for was, paused in pairwise(before) if paused != was]

    @property
    def feeds_who_catches_up(self) -> bool:
        return bool(self.told) and self.told[-1].feeds_who_catches_up


class Regions:
    def __init__(self) -> None:
        self.shells = {region: RegionShell(RegionRun(region, [0], 1)) for region in (SOURCE, MIDDLE, LAST)}
        self.pauses = SourcePauses(cuts_of("durable"), self.shells)
        for region in self.shells:
            self.come_up(region)

    def come_up(self, region: int) -> Listening:
        slot = Listening()
        self.shells[region].connections = {0: slot}  # type: ignore[dict-item]
        self.pauses.slots_came(self.shells[region])
        return slot

    def slot(self, region: int) -> Listening:
        slot = self.shells[region].connections[0]
        assert isinstance(slot, Listening)
        return slot

    def heard(self, region: int) -> list[bool]:
        return self.slot(region).paused

    def falls_behind(self, region: int) -> None:
        """It restarts alone."""
        self.shells[region].behind = {0}
        self.pauses.region_starts(self.shells[region])
        self.come_up(region)


def test_sources_pause_for_a_full_log_further_down_and_go_on_when_it_has_room() -> None:
    it = Regions()
    it.pauses.log_full(it.shells[MIDDLE], 0, True)
    assert (it.heard(SOURCE), it.heard(MIDDLE), it.heard(LAST)) == ([True], [True], [])
    it.pauses.log_full(it.shells[MIDDLE], 0, False)
    assert (it.heard(SOURCE), it.heard(MIDDLE)) == ([True, False], [True, False])


def test_sources_go_on_when_the_region_with_the_full_log_starts_again() -> None:
    """Its new slots have no full log, and nothing to say: without new rows they never will."""
    it = Regions()
    it.pauses.log_full(it.shells[MIDDLE], 0, True)
    it.pauses.region_starts(it.shells[MIDDLE])
    assert it.come_up(MIDDLE).paused == []
    assert it.heard(SOURCE) == [True, False]


def test_a_slot_that_comes_after_the_word_hears_it_all_the_same() -> None:
    it = Regions()
    it.pauses.region_starts(it.shells[SOURCE])
    it.pauses.log_full(it.shells[MIDDLE], 0, True)
    assert it.come_up(SOURCE).paused == [True]


def test_sources_do_not_pause_while_what_they_feed_catches_up() -> None:
    """The checkpoint that would empty the log waits for it."""
    it = Regions()
    it.pauses.log_full(it.shells[LAST], 0, True)
    it.falls_behind(MIDDLE)
    assert it.heard(MIDDLE) == []
    assert (it.heard(SOURCE), it.heard(LAST)) == ([True, False], [True])
    it.pauses.slot_caught_up(it.shells[MIDDLE], 0)
    assert (it.heard(SOURCE), it.heard(MIDDLE)) == ([True, False, True], [True])


def test_sources_pause_while_one_that_catches_up_still_has_a_full_log_to_read_from() -> None:
    """That is what it needs. It may need more only when all is read, and then the log is not called full any more."""
    it = Regions()
    it.pauses.log_full(it.shells[MIDDLE], 0, True)
    it.falls_behind(LAST)
    assert it.heard(SOURCE) == [True]
    assert it.slot(SOURCE).feeds_who_catches_up
    assert it.slot(MIDDLE).feeds_who_catches_up
    it.pauses.log_full(it.shells[MIDDLE], 0, False)
    assert it.heard(SOURCE) == [True, False]
    it.pauses.slot_caught_up(it.shells[LAST], 0)
    assert not it.slot(MIDDLE).feeds_who_catches_up


@pytest.mark.parametrize(("exchange", "available"), [("committed", True), ("blocking", False)])
def test_a_producer_restarts_for_an_unreadable_input_only_where_it_would_make_it_again(exchange, available) -> None:
    cuts = cuts_of(exchange)
    facts = FailoverFacts(cuts, lambda: (), patience=1.0)
    facts.unreadable(channel_key(cuts.channels[0].id))
    found = asyncio.run(facts.gather(checkpoint=3))
    assert [fact.available for fact in found] == [available, True]


class Silent(SlotConnection):
    """A slot that is told things and does not answer."""

    def __init__(self, region: int) -> None:
        super().__init__(m.Hello(region, 1, 1, 0, "1", None, "host", 1, [], b""), Mock())
        self.told: list[m.Message] = []

    def send(self, message: m.Message) -> None:
        self.told.append(message)


@pytest.mark.parametrize(
    ("restoring", "whole"), [(3, True), (2, False)], ids=["from this checkpoint", "from another one"]
)
def test_a_slot_that_is_being_restored_is_told_to_pin_but_not_waited_for(restoring: int, whole: bool) -> None:
    cuts, slot = cuts_of("durable"), Silent(SOURCE)
    facts = FailoverFacts(cuts, lambda: [Keeper(slot, restoring)], patience=1000.0)
    found = asyncio.run(asyncio.wait_for(facts.gather(checkpoint=3), 10.0))
    assert [(fact.producer, fact.available) for fact in found] == [(SOURCE, whole), (MIDDLE, False)]
    assert slot.told == [m.Pin(3, 1)]


def test_a_slot_that_could_answer_and_does_not_keeps_nothing() -> None:
    facts = FailoverFacts(cuts_of("durable"), lambda: [Keeper(Silent(SOURCE))], patience=0.01)
    found = asyncio.run(facts.gather(checkpoint=3))
    assert [fact.available for fact in found] == [False, False]
