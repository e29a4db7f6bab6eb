"""Checkpoints and graphs whose chains are not the same: with another parallelism, operators come together or part."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_graph import JobGraph, JobVertex, OperatorNode, SourceLocation
from snapshot_engine.operators.operator import Operator
from snapshot_engine.protocol.elements import Attempt, SubtaskId
from snapshot_engine.runtime.restore import Restore, UnmatchedState
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot, VertexSnapshot

SOURCE, TIMES = SubtaskId("source", 0), SubtaskId("times", 0)


def _graph(*chains: Sequence[str], parallelism: int = 1) -> ExecutionGraph:
    def node(uid: str) -> OperatorNode:
        return OperatorNode(uid, uid, Operator, SourceLocation("job.py", 1))

    vertices = {
        chain[0]: JobVertex(chain[0], chain[0], parallelism, tuple(map(node, chain)), False) for chain in chains
    }
    return ExecutionGraph(JobGraph("test", vertices, ()))


def _restore(graph: ExecutionGraph, stored: dict[str, tuple[bool, Sequence[str]]]) -> Restore:
    vertices = {
        uid: VertexSnapshot(1, {0: SubtaskSnapshot(Attempt(1, 1), tuple(map(_state, operators)), finished)})
        for uid, (finished, operators) in stored.items()
    }
    return Restore(Manifest(1, 1, "test", "uid", 0.0, 0.0, graph.graph.key_groups, vertices), graph)


def test_a_savepoint_that_does_not_fit_is_called_by_the_name_its_owner_gave_it() -> None:
    graph = _graph(["source"])
    manifest = Manifest(5, 1, "test", "uid", 0.0, 0.0, graph.graph.key_groups + 1, {}, savepoint="before-upgrade")
    with pytest.raises(UnmatchedState, match="savepoint before-upgrade has"):
        Restore(manifest, graph)


def _state(uid: str) -> OperatorState:
    return OperatorState(uid, "kind")


def test_a_chain_that_has_ended_as_a_whole_is_not_run_again() -> None:
    final = _restore(_graph(["source", "times"]), {"source": (True, ["source", "times"])}).finished(SOURCE)
    assert final is not None
    assert [state.uid for state in final.operators] == ["source", "times"]


def test_a_chain_that_has_ended_in_several_is_run_again_with_all_its_state() -> None:
    restore = _restore(_graph(["source", "times"]), {"source": (True, ["source"]), "times": (True, ["times"])})
    assert restore.finished(SOURCE) is None
    entry = restore.for_subtask(SOURCE)
    assert entry is not None
    assert all(entry["operators"][uid] for uid in ("source", "times"))


def test_an_operator_without_state_may_join_a_chain_that_has_ended() -> None:
    assert _restore(_graph(["source", "map"]), {"source": (True, ["source"])}).finished(SOURCE) is not None


def test_what_has_left_a_chain_that_has_ended_has_its_state_in_its_own_vertex_only() -> None:
    restore = _restore(_graph(["source"], ["times"]), {"source": (True, ["source", "times"])})
    final = restore.finished(SOURCE)
    assert final is not None
    assert [state.uid for state in final.operators] == ["source"]
    assert restore.finished(TIMES) is None
    entry = restore.for_subtask(TIMES)
    assert entry is not None
    assert len(entry["operators"]["times"]) == 1


def _stored(parallelism: int, *operators: str) -> VertexSnapshot:
    one = SubtaskSnapshot(Attempt(1, 1), tuple(map(_state, operators)))
    return VertexSnapshot(parallelism, dict.fromkeys(range(parallelism), one))


@pytest.mark.parametrize(
    ("vertices", "rescaled", "operators"),
    [
        ({"source": _stored(2, "source", "times")}, False, {"source": 1, "times": 1}),
        ({"source": _stored(4, "source", "times")}, True, {"source": 4, "times": 4}),
        ({"source": _stored(2, "source"), "times": _stored(4, "times")}, False, {"source": 1, "times": 4}),
        ({"source": _stored(4, "source"), "times": _stored(2, "times")}, True, {"source": 4, "times": 1}),
        ({"times": _stored(2, "times")}, True, {"source": 0, "times": 1}),
    ],
)
def test_an_operator_that_is_given_the_states_of_all_is_told_so_whatever_became_of_its_chain(
    vertices: dict[str, VertexSnapshot], rescaled: bool, operators: dict[str, int]
) -> None:
    graph = _graph(["source", "times"], parallelism=2)
    entry = Restore(Manifest(1, 1, "test", "uid", 0.0, 0.0, graph.graph.key_groups, vertices), graph).for_subtask(
        SOURCE
    )
    assert entry is not None
    assert entry["rescaled"] == rescaled
    assert {uid: len(states) for uid, states in entry["operators"].items()} == operators
    assert entry["rescaled_operators"] == [uid for uid, count in operators.items() if count == 4]
