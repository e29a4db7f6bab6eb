"""Silence is the slot's, not the driver's: who did not listen may not say that nothing was said."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snapshot_engine.api import Environment, KeyedProcessFunction
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.protocol.restarts import RestartConfig
from snapshot_engine.runtime import slot_watch
from snapshot_engine.storage.pieces import PieceReader
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline

TIMEOUT_SECONDS = 2.0


def pipeline(env: Environment) -> None:
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, rate=100)
    env.from_source(numbers, uid="numbers").sink_to(DiscardSink(), uid="out")


def test_a_driver_that_was_stopped_for_a_while_does_not_take_its_slots_for_dead(tmp_path: Path) -> None:
    async def stall(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 1:
            await asyncio.sleep(0.02)
        time.sleep(2 * TIMEOUT_SECONDS)  # the whole event loop stands still
        await asyncio.sleep(1.0)
        restarts.append(job.board.status.restarts)
        job.master.stop()

    restarts: list[int] = []
    result = run_pipeline(pipeline, storage=tmp_path, heartbeat_timeout=TIMEOUT_SECONDS, meanwhile=stall)
    assert result.outcome is Outcome.STOPPED
    assert restarts == [0]


def test_slots_that_were_stopped_together_with_the_driver_are_not_taken_for_dead(tmp_path: Path) -> None:
    """The machine was paused: nobody could have said anything."""

    async def pause(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 1:
            await asyncio.sleep(0.02)
        pids = [slot.hello.pid for shell in job.master.regions.values() for slot in shell.connections.values()]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(2 * TIMEOUT_SECONDS)
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        await asyncio.sleep(1.0)
        restarts.append(job.board.status.restarts)
        job.master.stop()

    restarts: list[int] = []
    result = run_pipeline(pipeline, storage=tmp_path, heartbeat_timeout=TIMEOUT_SECONDS, meanwhile=pause)
    assert result.outcome is Outcome.STOPPED
    assert restarts == [0]


def slowly(row: Any) -> tuple[int]:
    time.sleep(0.004)
    return (row.n,)


def slow_pipeline(env: Environment, out: CollectSink, rows: int, exchange: str | None) -> None:
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, count=rows, splits=1)
    stream = env.from_source(numbers, uid="numbers")
    if exchange is not None:
        stream = stream.rebalance().exchange(exchange)
    stream.map(slowly, schema="n bigint").uid("slowly").sink_to(out, uid="out")


@pytest.mark.parametrize("exchange", [None, "pipelined", "memory", "committed"])
def test_a_slow_function_is_not_a_silent_slot(tmp_path: Path, exchange: str | None) -> None:
    """All its rows fit into one batch, which takes more than twice the heartbeat timeout."""
    out, rows = CollectSink(tmp_path / "out"), 1200
    result = run_pipeline(
        slow_pipeline,
        args={"out": out, "rows": rows, "exchange": exchange},
        storage=tmp_path / "storage",
        heartbeat_timeout=TIMEOUT_SECONDS,
        restarts=RestartConfig(per_region=0, per_job=0),
    )
    assert (result.outcome, result.message) == (Outcome.FINISHED, "all sources have ended and all output is committed")
    assert sorted(row["n"] for row in out.read_committed()) == list(range(rows))


class RingsSlowly(KeyedProcessFunction):
    def process(self, record: Any, context: Any) -> None:
        context.timers.register_event_time(10_000_000)

    def on_timer(self, timestamp: int, context: Any) -> Iterator[tuple[int]]:
        time.sleep(0.004)
        yield (context.current_key,)


def ringing_pipeline(env: Environment, out: CollectSink, rows: int) -> None:
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, count=rows, splits=1)
    timed = env.from_source(numbers, uid="numbers").with_watermark("n", delay="1s")
    timed.key_by("n").process(RingsSlowly(), schema="n bigint").uid("rings").sink_to(out, uid="out")


def test_many_timers_at_once_are_not_a_silent_slot(tmp_path: Path) -> None:
    out, rows = CollectSink(tmp_path / "out"), 1200
    result = run_pipeline(
        ringing_pipeline,
        args={"out": out, "rows": rows},
        storage=tmp_path / "storage",
        heartbeat_timeout=TIMEOUT_SECONDS,
        restarts=RestartConfig(per_region=0, per_job=0),
    )
    assert (result.outcome, result.message) == (Outcome.FINISHED, "all sources have ended and all output is committed")
    assert sorted(row["n"] for row in out.read_committed()) == list(range(rows))


def hanging_pipeline(env: Environment) -> None:
    stream = env.from_source(GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, count=1), uid="one")
    stream.map(lambda row: time.sleep(60), schema="n bigint").uid("hangs").sink_to(DiscardSink(), uid="out")


def test_a_slot_that_hangs_is_told_with_what_to_do(tmp_path: Path) -> None:
    never = RestartConfig(per_region=0, per_job=0)
    result = run_pipeline(hanging_pipeline, storage=tmp_path, heartbeat_timeout=TIMEOUT_SECONDS, restarts=never)
    assert result.outcome is Outcome.FAILED
    assert "has said nothing for 2 s" in result.message
    assert "raise recovery.heartbeatTimeout" in result.message


class KeepsLast:
    """In the slots that it comes to, a piece of state takes a second to read."""

    def __call__(self, one: Any, other: Any) -> Any:
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return _slow_reads, ()


def _slow_reads() -> KeepsLast:
    read = PieceReader.read_bytes

    def slow(reader: PieceReader, handle: Any) -> bytes:
        time.sleep(1.0)
        return read(reader, handle)

    PieceReader.read_bytes = slow  # type: ignore[method-assign]
    return KeepsLast()


def keyed_pipeline(env: Environment) -> None:
    numbers = GeneratorSource({"n": lambda offsets: offsets.astype(np.int64)}, rate=1000)
    env.from_source(numbers, uid="numbers").key_by("n").reduce(KeepsLast()).uid("last").sink_to(
        DiscardSink(), uid="out"
    )


def test_a_long_restore_is_not_a_silent_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One slot reads what eight subtasks have left: twice as long as it may be silent."""

    async def stop(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 2:
            await asyncio.sleep(0.02)
        job.master.stop()

    timing = {"storage": tmp_path, "interval": 0.2, "meanwhile": stop, "heartbeat_timeout": 2 * TIMEOUT_SECONDS}
    assert run_pipeline(keyed_pipeline, parallelism=8, **timing).outcome is Outcome.STOPPED
    monkeypatch.setattr(slot_watch, "DEPLOY_PATIENCE", 1)
    began = time.monotonic()
    result = run_pipeline(keyed_pipeline, restarts=RestartConfig(per_region=0, per_job=0), **timing)
    assert (result.outcome, result.history) == (Outcome.STOPPED, ())
    assert time.monotonic() - began > 3 * TIMEOUT_SECONDS, "the restore was not long"
