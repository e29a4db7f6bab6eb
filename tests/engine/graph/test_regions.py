"""Which subtasks restart together."""

from __future__ import annotations

import pytest

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.regions import regions_of, strongly_connected


def regions(graph):
    """Each region as the set of its subtasks' names."""
    return [{str(subtask) for subtask in region.subtasks} for region in regions_of(graph)]


@pytest.mark.parametrize("parallelism", [1, 2, 7])
def test_a_forward_only_pipeline_has_a_region_per_parallel_instance(graph_of, parallelism):
    graph = graph_of({"a": parallelism, "b": parallelism, "c": parallelism}, ["a forward b", "b forward c"])
    assert regions(graph) == [{f"a[{i}]", f"b[{i}]", f"c[{i}]"} for i in range(parallelism)]


@pytest.mark.parametrize("partitioning", ["hash", "rebalance", "broadcast"])
def test_an_all_to_all_edge_makes_one_region(graph_of, partitioning):
    graph = graph_of({"a": 3, "b": 2}, [f"a {partitioning} b"])
    assert regions(graph) == [{"a[0]", "a[1]", "a[2]", "b[0]", "b[1]"}]


@pytest.mark.parametrize("exchange", ["memory", "durable", "committed", "blocking"])
def test_every_exchange_but_the_pipelined_cuts(graph_of, exchange):
    graph = graph_of({"a": 2, "b": 2}, [f"a hash b {exchange}"])
    assert regions(graph) == [{"a[0]"}, {"a[1]"}, {"b[0]"}, {"b[1]"}]


def test_a_cut_in_the_middle_leaves_a_region_on_either_side(graph_of):
    graph = graph_of(
        {"source": 2, "parse": 2, "window": 2, "sink": 2},
        ["source hash parse", "parse hash window committed", "window rebalance sink"],
    )
    assert regions(graph) == [
        {"source[0]", "source[1]", "parse[0]", "parse[1]"},
        {"window[0]", "window[1]", "sink[0]", "sink[1]"},
    ]


def test_regions_that_depend_on_each_other_in_a_cycle_are_one(graph_of):
    """a cuts to b, b cuts to c, and c is pipelined with a: neither side could ever restart without the other."""
    graph = graph_of({"a": 1, "b": 1, "c": 1}, ["a hash b committed", "b hash c committed", "a hash c"])
    assert regions(graph) == [{"a[0]", "b[0]", "c[0]"}]


def test_a_cycle_through_all_to_all_cuts_takes_all_parallel_instances_in(graph_of):
    graph = graph_of({"a": 2, "b": 2, "c": 2}, ["a hash b committed", "b hash c committed", "a forward c"])
    assert regions(graph) == [{"a[0]", "a[1]", "b[0]", "b[1]", "c[0]", "c[1]"}]


def test_a_cycle_along_forward_cuts_stays_within_its_instance(graph_of):
    graph = graph_of({"a": 2, "b": 2, "c": 2}, ["a forward b memory", "b forward c memory", "a forward c"])
    assert regions(graph) == [{"a[0]", "b[0]", "c[0]"}, {"a[1]", "b[1]", "c[1]"}]


def test_a_diamond_of_cuts_has_no_cycle(graph_of):
    graph = graph_of(
        {"a": 1, "b": 1, "c": 1, "d": 1},
        ["a hash b committed", "a hash c committed", "b hash d committed", "c hash d committed"],
    )
    assert len(regions(graph)) == 4


def test_a_loop_is_one_region_whatever_its_exchange(graph_of):
    graph = graph_of({"a": 1, "b": 1}, ["a hash b", "b hash a committed feedback"])
    assert regions(graph) == [{"a[0]", "b[0]"}]


def test_the_recovery_scenarios_have_the_regions_they_are_told_with(graph_of):
    """v1,v2 all-to-all v4,v5 and v3 to v6, every result blocking: six regions."""
    graph = graph_of({"v12": 2, "v45": 2, "v3": 1, "v6": 1}, ["v12 hash v45 blocking", "v3 forward v6 blocking"])
    assert regions(graph) == [{"v12[0]"}, {"v12[1]"}, {"v45[0]"}, {"v45[1]"}, {"v3[0]"}, {"v6[0]"}]


def test_three_pipelined_pairs_with_cuts_between_them(graph_of):
    """(1-2) cut (3-4) cut (5-6)."""
    graph = graph_of(
        {f"v{i}": 1 for i in range(1, 7)},
        ["v1 forward v2", "v2 forward v3 blocking", "v3 forward v4", "v4 forward v5 blocking", "v5 forward v6"],
    )
    assert regions(graph) == [{"v1[0]", "v2[0]"}, {"v3[0]", "v4[0]"}, {"v5[0]", "v6[0]"}]


def test_regions_are_numbered_by_their_first_subtask_and_know_their_slots(graph_of):
    graph = graph_of({"a": 2, "b": 3, "c": 3}, ["a hash b memory", "b hash c"])
    execution = ExecutionGraph(graph)
    assert [region.id for region in execution.regions] == [0, 1, 2]
    last = execution.regions[2]
    assert last.slots() == [0, 1, 2]
    assert [str(subtask) for subtask in last.hosted_by(1)] == ["b[1]", "c[1]"]
    assert last.vertices() == ["b", "c"]
    assert all(execution.region_of[subtask] is region for region in execution.regions for subtask in region.subtasks)


def test_ten_thousand_subtasks_are_planned_without_listing_their_channels(graph_of):
    """25 million channels, of which a slot asks for its own only."""
    graph = graph_of({"a": 5000, "b": 5000}, ["a hash b"])
    execution = ExecutionGraph(graph)
    assert len(execution.regions) == 1 and len(execution.regions[0].subtasks) == 10_000
    assert not execution.inputs and not execution.outputs


def test_ten_thousand_subtasks_behind_cuts_are_ten_thousand_regions(graph_of):
    graph = graph_of({"a": 5000, "b": 5000}, ["a hash b committed"])
    assert len(regions_of(graph)) == 10_000


def test_strong_components_are_found_whole():
    arcs = {1: [2], 2: [3], 3: [1, 4], 4: [5], 5: [4], 6: [1]}
    assert sorted(sorted(component) for component in strongly_connected(arcs)) == [[1, 2, 3], [4, 5]]


def test_a_long_chain_does_not_run_out_of_stack():
    assert strongly_connected({number: [number + 1] for number in range(50_000)}) == []
