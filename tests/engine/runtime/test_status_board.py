"""What the status API tells of checkpoints and savepoints, and what of it at once."""

from __future__ import annotations

from snapshot_engine.api import Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.status_board import StatusBoard
from snapshot_engine.runtime.vertex_figures import VertexFigures
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.pieces import StorageConfig
from snapshot_engine.wire.status import SavepointState


def _straight(env: Environment) -> None:
    env.from_source(bids(keys=10, count=10, rate=None), uid="source").sink_to(CollectSink("unused"), uid="sink")


def _board() -> StatusBoard:
    graph = ExecutionGraph(plan_pipeline(_straight, None, 2, PlanOptions(job="orders", parallelism=2)))
    settings = JobSettings("orders", "default", "uid", StorageConfig("unused", Layout("default", "orders"), {}))
    return StatusBoard(settings, graph, VertexFigures(graph.graph), 1, None)


def _complete(board: StatusBoard, number: int) -> None:
    manifest = Manifest(
        checkpoint=number,
        generation=1,
        job="orders",
        job_uid="uid",
        triggered_at=0.0,
        completed_at=1.0,
        key_groups=128,
        vertices={},
        critical_path=(),
    )
    board.checkpoint_completed(manifest, Completed(number, True, 0.0, 1.0, {}), CriticalPath(1.0, ()), "somewhere", 10)


async def test_the_first_completed_checkpoint_is_told_at_once_and_the_others_are_mere_progress() -> None:
    board = _board()
    for number in (1, 2, 3):
        before = board.revision
        _complete(board, number)
        assert board.revision > before
        assert (board.transition > before) == (number == 1)


async def test_a_savepoint_that_failed_and_is_asked_for_again_is_pending_again() -> None:
    """A stop that a failover cut off is asked for again under the same name."""
    board = _board()
    board.savepoint_requested("the-end")
    board.checkpoint_aborted(Abort(1, "a slot was lost", {}, "the-end", stop=True))
    board.savepoint_requested("the-end")
    assert [each.state for each in board.status.savepoints] == [SavepointState.PENDING]
    known = board.savepoint("the-end")
    assert known is not None and known.state is SavepointState.PENDING
