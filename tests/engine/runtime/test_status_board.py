"""What the status API tells of checkpoints, savepoints and slots, and what of it at once."""

from __future__ import annotations

from unittest.mock import Mock

from snapshot_engine.api import Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.control_server import SlotConnection
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


def _slot(region: int, attempt: int, pid: int) -> SlotConnection:
    return SlotConnection(m.Hello(region, 1, attempt, 0, "2", "orders-exec-2", "host", pid, [], b""), Mock())


async def test_the_processes_of_slots_are_told_until_they_are_gone() -> None:
    board = _board()
    for region, pid in ((0, 10), (1, 11)):
        board.starting({region: Attempt(1, 1)}, None)
        board.heartbeat(_slot(region, 1, pid), {})
    assert [(place.region, place.slot, place.pid) for place in board.status.slot_places] == [("0", 0, 10), ("1", 0, 11)]
    assert (board.status.slot_places[0].executor_id, board.status.slot_places[0].pod_name) == ("2", "orders-exec-2")
    board.starting({0: Attempt(1, 2)}, 1)
    assert [place.pid for place in board.status.slot_places] == [11]
    board.heartbeat(_slot(0, 2, 12), {})
    assert sorted((place.pid, place.attempt) for place in board.status.slot_places) == [(11, 1), (12, 2)]


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


async def test_an_executor_whose_regions_have_finished_is_not_counted_on() -> None:
    """Its pod may go while other regions run on, and nobody has lost anything."""
    board = _board()
    for region, pid in ((0, 10), (1, 11)):
        board.starting({region: Attempt(1, 1)}, None)
        board.heartbeat(_slot(region, 1, pid), {})
    run = Mock()
    for region in (0, 1):
        run.region = region
        board.region_finished(run)
    board.executors_changed([])
    assert board.status.executors == []


async def test_why_a_checkpoint_was_aborted_is_told_at_a_length_that_can_be_read() -> None:
    """It may be what a user's class says of itself when it cannot be pickled, with all that it holds."""
    board = _board()
    board.savepoint_requested("the-end")
    board.checkpoint_aborted(Abort(1, "cannot pickle " + "state " * 10**6, {}, "the-end", stop=True))
    known = board.savepoint("the-end")
    assert known is not None and known.error is not None and known.error.startswith("cannot pickle")
    assert len(board.status.model_dump_json()) < 20_000
