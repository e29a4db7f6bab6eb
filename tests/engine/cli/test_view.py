"""What `run` shows while a job runs."""

from __future__ import annotations

import asyncio
import json

import pytest

from snapshot_engine.api import Environment
from snapshot_engine.cli import view
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import Abort
from snapshot_engine.runtime.job_result import JobResult, Outcome
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.status_board import StatusBoard
from snapshot_engine.runtime.vertex_figures import VertexFigures
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.pieces import StorageConfig


def straight(env: Environment) -> None:
    env.from_source(bids(keys=10, count=10, rate=None), uid="source").sink_to(CollectSink("unused"), uid="sink")


@pytest.fixture
async def board() -> StatusBoard:
    graph = ExecutionGraph(plan_pipeline(straight, None, 2, PlanOptions(job="orders", parallelism=2)))
    settings = JobSettings("orders", "default", "uid", StorageConfig("unused", Layout("default", "orders"), {}))
    return StatusBoard(settings, graph, VertexFigures(graph.graph), 1, None)


async def test_the_live_table_is_drawn_again_and_again_and_ends_with_the_end(board, monkeypatch) -> None:
    drawn: list[str] = []
    monkeypatch.setattr(view, "REFRESH_SECONDS", 0.01)
    monkeypatch.setattr(
        view, "status_table", lambda status, url: drawn.append(status.phase.value) or status.phase.value
    )
    with view.LiveView().showing(board, 1):
        while drawn.count("Starting") < 3:
            await asyncio.sleep(0.01)
        board.ended(JobResult(Outcome.STOPPED))
    assert drawn[-1] == "Stopped"
    before = len(drawn)
    await asyncio.sleep(0.05)
    assert len(drawn) == before


async def test_json_lines_can_all_be_parsed(board, capsys) -> None:
    lines = view.JsonView()
    lines.say("begins")
    with lines.showing(board, 1):
        lines.starting({}, None)
        lines.checkpoint_aborted(Abort(7, 'not "complete"\nafter 600 s', {}, failed=True))
        board.ended(JobResult(Outcome.FAILED, "it broke"))
    lines.say("ended badly", good=False)
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["event"] for event in events] == [
        "said",
        "listening",
        "starting",
        "checkpointAborted",
        "ended",
        "error",
    ]
    assert all("at" in event for event in events)
    assert events[4]["status"]["phase"] == "Failed"


def test_no_colours_in_a_pipe(capsys) -> None:
    view.view_for("text", plain=False).say("stopped", good=False)
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err


@pytest.mark.parametrize("output", ["text", "json"])
def test_why_the_whole_job_restarts_is_told_before_it_does(output: str, capsys) -> None:
    view.view_for(output, plain=True).all_failed("sink 'Table' failed to commit 8 times")
    assert "sink 'Table' failed to commit 8 times" in capsys.readouterr().out


@pytest.mark.parametrize("output", ["text", "json"])
def test_a_commit_that_is_tried_again_is_told_with_its_reason(output: str, capsys) -> None:
    view.view_for(output, plain=True).commit_failed("out", "sink 'Table' did not commit (try 1 of 8): it is locked")
    assert "sink 'Table' did not commit (try 1 of 8): it is locked" in capsys.readouterr().out


async def test_above_the_live_table_stands_why_the_whole_job_restarts(board, capsys) -> None:
    live = view.LiveView()
    with live.showing(board, 1):
        live.commit_failed("out", "sink 'Table' did not commit (try 1 of 8): it is locked")
        live.all_failed("it could not commit")
    said = capsys.readouterr().out
    assert "try 1 of 8" in said
    assert "all regions failed: it could not commit" in said


async def test_the_start_says_which_savepoint_it_is_from(capsys) -> None:
    manifest = Manifest(8, 1, "orders", "uid", 0.0, 1.0, 128, savepoint="before")
    for shown in (view.LineView(), view.JsonView()):
        shown.restoring(manifest)
        shown.starting({}, 8)
        shown.starting({}, 9)
    first, second, third, fourth = capsys.readouterr().out.splitlines()
    assert first.endswith("from savepoint before (checkpoint 8)") and second.endswith("from checkpoint 9")
    assert [json.loads(line)["savepoint"] for line in (third, fourth)] == ["before", None]
