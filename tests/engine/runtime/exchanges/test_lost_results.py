"""Segments that are gone after a checkpoint: made again where that is exact, told at once elsewhere."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from snapshot_engine.api import Environment, KeyedProcessFunction
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.protocol.committed_exchange import BEGINNING
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.runtime.exchanges.segment_reading import UnreadableInput, failed_read
from snapshot_engine.runtime.exchanges.stored_segments import READ, ReadState
from snapshot_engine.runtime.job_result import JobResult
from snapshot_engine.storage.errors import CorruptCheckpoint
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

pytestmark = pytest.mark.jobs

COUNT = 100_000  # several batches, between which a barrier comes
COLUMNS = {
    "n": lambda offsets: offsets.astype(np.int64),
    "key": lambda offsets: (offsets % 10).astype(np.int64),
}


@dataclass
class Row:
    n: int
    key: int


class Slowly(KeyedProcessFunction):
    """Waits a little with every row, as long as it is not told to go on."""

    def __init__(self, go_on: Path) -> None:
        self._go_on = go_on

    def process(self, row, context):
        if not self._go_on.exists():
            time.sleep(0.00005)
        yield Row(row.n, row.key)


def numbers(env: Environment):
    source = GeneratorSource(COLUMNS, count=COUNT, splits=1)
    return env.from_source(source, uid="numbers", parallelism=1)


def slowly(stream, folder: Path) -> None:
    through = stream.key_by("key").process(Slowly(folder / "go on"), schema=Row).uid("through")
    through.sink_to(CollectSink(folder / "out"), uid="out")


def part_is_read(manifest: Manifest | None) -> bool:
    """Whether the checkpoint has something of the stored exchange in its state, and something not."""
    for _, _, snapshot in manifest.subtasks() if manifest is not None else ():
        for state in snapshot.operators:
            if state.kind == READ and not snapshot.finished:
                read = ReadState.from_state(state, 0)
                return any(at.position != BEGINNING for at in read.positions) and any(read.segments.values())
    return False


def region_of(job: RunningJob, vertex: str) -> int:
    return next(region.id for region in job.master.graph.regions if vertex in region.vertices())


def run_and_lose(tmp_path: Path, pipeline: Callable[[Environment, Path], None]) -> tuple[JobResult, dict[str, int]]:
    """All that stored exchanges keep is deleted, and the consumer restarted. The result, and the attempts by vertex."""
    attempts: dict[str, int] = {}

    async def lose(job: RunningJob) -> None:
        while not part_is_read(job.master.checkpoints.latest):
            await asyncio.sleep(0.005)
        for segment in (tmp_path / "ck/test/test/shared").rglob("*segment*"):
            segment.unlink()
        reader = job.master.regions[region_of(job, "through")]
        os.kill(next(iter(reader.connections.values())).hello.pid, signal.SIGKILL)
        (tmp_path / "go on").touch()
        while True:
            for region in job.master.graph.regions:
                attempts.update(dict.fromkeys(region.vertices(), job.master.regions[region.id].run.attempt.number))
            await asyncio.sleep(0.01)

    result = run_pipeline(
        pipeline,
        storage=tmp_path / "ck",
        args={"folder": tmp_path},
        interval=0.05,
        meanwhile=lose,
        heartbeat_timeout=60.0,
    )
    return result, attempts


def deterministic(env: Environment, folder: Path) -> None:
    slowly(numbers(env).deterministic().exchange("blocking"), folder)


def test_a_result_that_was_read_in_part_is_made_again_by_a_deterministic_producer(tmp_path: Path) -> None:
    result, attempts = run_and_lose(tmp_path, deterministic)
    assert result.outcome is Outcome.FINISHED, result.message
    assert sorted(row["n"] for row in CollectSink(tmp_path / "out").read_committed()) == list(range(COUNT))
    assert (attempts["numbers"], attempts["through"]) == (2, 3)


def reads_a_part(env: Environment, folder: Path) -> None:
    slowly(numbers(env).exchange("blocking"), folder)


def shows_rows_itself(env: Environment, folder: Path) -> None:
    source = numbers(env).deterministic()
    source.sink_to(DiscardSink(), uid="raw")
    slowly(source.exchange("blocking"), folder)


def feeds_another(env: Environment, folder: Path) -> None:
    source = numbers(env).deterministic()
    source.exchange("durable").rebalance().filter(lambda row: True).uid("other").sink_to(DiscardSink(), uid="raw")
    slowly(source.exchange("blocking"), folder)


def committed(env: Environment, folder: Path) -> None:
    slowly(numbers(env).exchange("committed"), folder)


@pytest.mark.parametrize(
    ("pipeline", "reason"),
    [
        (reads_a_part, "'through' had read a part of it, and what its producer makes again may come in another order"),
        (shows_rows_itself, "which has shown its rows already"),
        (feeds_another, "send twice what goes through"),
    ],
)
def test_a_result_that_cannot_be_made_again_ends_the_job_at_once(
    tmp_path: Path, pipeline: Callable[[Environment, Path], None], reason: str
) -> None:
    result, attempts = run_and_lose(tmp_path, pipeline)
    assert result.outcome is Outcome.FAILED
    assert result.unreadable_state
    assert "the blocking result numbers->" in result.message and reason in result.message
    assert attempts["numbers"] == 1 and attempts["through"] <= 2


def test_segments_of_a_committed_exchange_that_are_gone_end_the_job_at_once(tmp_path: Path) -> None:
    result, attempts = run_and_lose(tmp_path, committed)
    assert result.outcome is Outcome.FAILED
    assert result.unreadable_state
    assert "cannot read the input numbers->" in result.message
    assert attempts == {"numbers": 1, "through": 2}


@pytest.mark.parametrize(
    ("error", "gone"),
    [(TimeoutError("storage takes a break"), False), (CorruptCheckpoint("a/segment", "8 bytes", "no such file"), True)],
)
def test_only_what_is_gone_or_damaged_is_said_to_be_unreadable(error: Exception, gone: bool) -> None:
    failure = failed_read("a->b", ChannelId(1, 0, 0), error)
    assert isinstance(failure, UnreadableInput) is gone
    assert "cannot read the input a->b" in str(failure)
