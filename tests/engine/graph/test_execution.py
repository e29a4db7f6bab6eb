"""Channels, and what is shipped to the slots."""

from __future__ import annotations

import pickle

from snapshot_engine.graph.execution import ExecutionGraph, channels_of
from snapshot_engine.protocol.elements import ChannelId, SubtaskId


def test_a_forward_edge_connects_equal_indexes(graph_of):
    graph = graph_of({"a": 3, "b": 3}, ["a forward b"])
    assert channels_of(graph.edges[0], graph) == [ChannelId(0, i, i) for i in range(3)]


def test_other_edges_connect_all_to_all(graph_of):
    graph = graph_of({"a": 2, "b": 3}, ["a hash b"])
    assert channels_of(graph.edges[0], graph) == [ChannelId(0, p, c) for p in range(2) for c in range(3)]


def test_each_subtask_knows_its_own_channels_over_all_its_edges(graph_of):
    graph = graph_of({"a": 2, "b": 2, "c": 2}, ["a hash c", "b forward c"])
    execution = ExecutionGraph(graph)
    inputs = execution.inputs[SubtaskId("c", 1)]
    assert inputs == [ChannelId(0, 0, 1), ChannelId(0, 1, 1), ChannelId(1, 1, 1)]
    assert execution.outputs[SubtaskId("b", 1)] == [ChannelId(1, 1, 1)]
    assert execution.inputs[SubtaskId("a", 0)] == []
    assert str(execution.producer_of(inputs[1])) == "a[1]"
    assert str(execution.consumer_of(inputs[2])) == "c[1]"


def test_inputs_and_outputs_list_the_same_channels(graph_of):
    graph = graph_of({"a": 3, "b": 2, "c": 2}, ["a rebalance b", "b forward c", "a broadcast c"])
    execution = ExecutionGraph(graph)
    entering = [channel for subtask in execution.subtasks for channel in execution.inputs[subtask]]
    leaving = [channel for subtask in execution.subtasks for channel in execution.outputs[subtask]]
    assert sorted(entering) == sorted(leaving) and len(set(entering)) == 3 * 2 + 2 + 3 * 2


def test_checkpoints_begin_at_the_subtasks_without_inputs(graph_of):
    execution = ExecutionGraph(graph_of({"a": 2, "b": 1}, ["a rebalance b"]))
    assert [str(subtask) for subtask in execution.triggered()] == ["a[0]", "a[1]"]


def test_snapshots_wait_for_barriers_neither_of_stored_exchanges_nor_of_a_loops_way_back(graph_of):
    edges = ["a forward b", "b forward c committed", "c forward d", "d forward c feedback"]
    execution = ExecutionGraph(graph_of({"a": 1, "b": 1, "c": 1, "d": 1}, edges))
    waits = {
        subtask.vertex: [other.vertex for other in execution.barriers_from(subtask)] for subtask in execution.subtasks
    }
    assert waits == {"a": [], "b": ["a"], "c": [], "d": ["c"]}


def test_a_shipped_graph_is_the_same_graph_and_small(graph_of):
    execution = ExecutionGraph(graph_of({"a": 128, "b": 128}, ["a hash b"]))
    for subtask in execution.subtasks:
        assert len(execution.inputs[subtask]) == (128 if subtask.vertex == "b" else 0)
    data = pickle.dumps(execution)
    shipped = pickle.loads(data)
    assert [region.subtasks for region in shipped.regions] == [region.subtasks for region in execution.regions]
    assert shipped.inputs[SubtaskId("b", 7)] == execution.inputs[SubtaskId("b", 7)]
    assert len(data) < 10_000
