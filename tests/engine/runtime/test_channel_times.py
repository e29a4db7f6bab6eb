"""What channels have said about event time, over a restart into a graph that has changed."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import (
    Exchange,
    JobEdge,
    JobGraph,
    JobVertex,
    OperatorNode,
    Partitioning,
    SourceLocation,
)
from snapshot_engine.operators.operator import Operator
from snapshot_engine.protocol.elements import MIN_WATERMARK, Attempt, ChannelId, SubtaskId
from snapshot_engine.protocol.watermarks import ChannelTime, WatermarkState
from snapshot_engine.runtime import channel_times
from snapshot_engine.runtime.restore import Restore
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot, VertexSnapshot

ENDED = ChannelTime(2**63 - 1, False, True)


def _graph(parallelism: Mapping[str, int], *edges: str) -> ExecutionGraph:
    """Edges as `a>b`, all by key."""
    pairs = [edge.split(">") for edge in edges]
    vertices = {
        name: JobVertex(name, name, count, (OperatorNode(name, name, Operator, SourceLocation("job.py", 1)),), False)
        for name, count in parallelism.items()
    }
    made = tuple(
        JobEdge(number, producer, consumer, Partitioning.HASH, Exchange.PIPELINED, pa.schema({"x": pa.int64()}))
        for number, (producer, consumer) in enumerate(pairs)
    )
    return ExecutionGraph(JobGraph("test", vertices, made))


def _carried_over(
    old: ExecutionGraph, new: ExecutionGraph, said: Mapping[SubtaskId, WatermarkState], subtask: SubtaskId
) -> WatermarkState:
    """What `subtask` of the new graph goes on from, if the old graph's subtasks had heard what was `said`."""
    vertices = {
        uid: VertexSnapshot(vertex.parallelism, {i: _snapshot(old, said, uid, i) for i in range(vertex.parallelism)})
        for uid, vertex in old.graph.vertices.items()
    }
    manifest = Manifest(1, 1, "test", "uid", 0.0, 0.0, old.graph.key_groups, vertices)
    entry = Restore(manifest, new).for_subtask(subtask)
    assert entry is not None
    edges = new.graph.inputs_of(subtask.vertex)
    state = channel_times.restore(entry["channels"], new.inputs[subtask], entry["rescaled"], edges)
    assert state is not None
    return state


def _snapshot(graph: ExecutionGraph, said: Mapping[SubtaskId, WatermarkState], uid: str, index: int) -> SubtaskSnapshot:
    state = said.get(SubtaskId(uid, index), WatermarkState())
    return SubtaskSnapshot(Attempt(1, 1), channels=channel_times.to_json(state, graph.edges))


def test_a_subtask_of_the_same_graph_goes_on_from_its_own_times() -> None:
    graph = _graph({"a": 2, "b": 2}, "a>b")
    me = SubtaskId("b", 1)
    state = WatermarkState(50, {ChannelId(0, 0, 1): ChannelTime(100), ChannelId(0, 1, 1): ChannelTime(50, True)})
    assert _carried_over(graph, graph, {me: state}, me) == state


def test_fewer_producers_have_come_no_further_than_the_last_of_the_old_ones() -> None:
    """The new producer 0 goes on with rows that the old producer 2, which was behind, has not sent yet."""
    old, new = _graph({"a": 3, "b": 1}, "a>b"), _graph({"a": 2, "b": 1}, "a>b")
    times = [ChannelTime(100), ChannelTime(90), ChannelTime(50)]
    said = WatermarkState(50, {ChannelId(0, producer, 0): time for producer, time in enumerate(times)})
    state = _carried_over(old, new, {SubtaskId("b", 0): said}, SubtaskId("b", 0))
    assert state.current == 50
    assert state.channels == {ChannelId(0, 0, 0): ChannelTime(50), ChannelId(0, 1, 0): ChannelTime(50)}


def test_a_producer_that_had_ended_has_not_if_its_number_is_anothers_now() -> None:
    """An ended channel is not aligned: the snapshot would miss what it still brings."""
    old, new = _graph({"a": 2, "b": 1}, "a>b"), _graph({"a": 3, "b": 1}, "a>b")
    said = WatermarkState(70, {ChannelId(0, 0, 0): ENDED, ChannelId(0, 1, 0): ChannelTime(70)})
    state = _carried_over(old, new, {SubtaskId("b", 0): said}, SubtaskId("b", 0))
    assert set(state.channels.values()) == {ChannelTime(70)}


def test_times_follow_their_edge_when_the_pipeline_has_another_one_before_it() -> None:
    old = _graph({"a": 1, "b": 1, "c": 1}, "a>c", "b>c")
    new = _graph({"n": 1, "a": 1, "b": 1, "c": 1}, "n>a", "a>c", "b>c")
    said = WatermarkState(70, {ChannelId(0, 0, 0): ChannelTime(70), ChannelId(1, 0, 0): ENDED})
    state = _carried_over(old, new, {SubtaskId("c", 0): said}, SubtaskId("c", 0))
    assert state.channels == {ChannelId(1, 0, 0): ChannelTime(70), ChannelId(2, 0, 0): ENDED}


def test_an_input_that_is_new_has_said_nothing_yet() -> None:
    old = _graph({"a": 1, "c": 1}, "a>c")
    new = _graph({"n": 1, "a": 1, "c": 1}, "n>c", "a>c")
    said = WatermarkState(70, {ChannelId(0, 0, 0): ChannelTime(70)})
    state = _carried_over(old, new, {SubtaskId("c", 0): said}, SubtaskId("c", 0))
    assert state.channels == {ChannelId(0, 0, 0): ChannelTime(MIN_WATERMARK), ChannelId(1, 0, 0): ChannelTime(70)}
