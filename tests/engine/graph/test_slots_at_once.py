"""How many slots a job needs at the same time."""

import pytest

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.slots_at_once import slots_at_once


def needed(graph):
    return slots_at_once(ExecutionGraph(graph))


def test_a_region_needs_a_slot_for_each_of_its_widest_operators_subtasks(graph_of):
    assert needed(graph_of({"a": 3, "b": 2}, ["a hash b"])) == 3
    assert needed(graph_of({"a": 3, "b": 3}, ["a forward b"])) == 3


@pytest.mark.parametrize("exchange", ["memory", "durable", "committed"])
def test_regions_on_both_sides_of_an_exchange_run_at_the_same_time(graph_of, exchange):
    assert needed(graph_of({"a": 3, "b": 2}, [f"a hash b {exchange}"])) == 5


def test_what_reads_a_blocking_result_has_the_slots_of_those_that_made_it(graph_of):
    assert needed(graph_of({"a": 3, "b": 2}, ["a hash b blocking"])) == 3
    assert needed(graph_of({"a": 3, "b": 2, "c": 4}, ["a hash b blocking", "b hash c blocking"])) == 4


def test_what_runs_besides_keeps_its_slots(graph_of):
    edges = ["table hash join blocking", "live hash join durable"]
    assert needed(graph_of({"table": 2, "live": 3, "join": 2}, edges)) == 5
    assert needed(graph_of({"a": 4, "b": 1, "c": 4}, ["b hash c blocking"])) == 8
    assert needed(graph_of({"a": 4, "b1": 1, "b2": 8, "c": 1}, ["b1 hash b2 blocking", "b2 hash c blocking"])) == 12


def test_what_feeds_a_blocking_result_through_a_log_ends_with_it(graph_of):
    assert needed(graph_of({"a": 3, "b": 2, "c": 5}, ["a hash b memory", "b hash c blocking"])) == 5
    edges = ["t hash b blocking", "a hash b memory", "b hash c blocking"]
    assert needed(graph_of({"t": 4, "a": 3, "b": 6, "c": 1}, edges)) == 9, "and not before"
