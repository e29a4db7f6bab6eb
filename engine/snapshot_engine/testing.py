"""The test kit: run a pipeline to its end in a test, with failures at chosen places, and without Spark.

    def test_counts(tmp_path):
        out = CollectSink(tmp_path / "out")
        result = run_pipeline(lambda env: my_pipeline(env, out), storage=tmp_path / "checkpoints", parallelism=2)
        assert result.outcome is Outcome.FINISHED
        assert out.read_committed() == ...

Slots are forked processes here; regions, snapshots, recovery and commits are the same as on Spark. What a connector's
author needs besides: `connectors.failing` (a source that fails at a given record, a sink that fails in prepare or
commit) and `ManualClock`: processing time that stands still until the test moves it.

    clock = ManualClock(tmp_path)
    run_pipeline(..., clock=clock, meanwhile=lambda job: clock.advance(60_000))
"""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from snapshot_engine.consistent_cuts import ConsistentCuts
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.protocol.failover import Strategy
from snapshot_engine.protocol.restarts import RestartConfig
from snapshot_engine.runtime.clocks import ManualClock
from snapshot_engine.runtime.embedded import RunningJob, run_to_end
from snapshot_engine.runtime.forked import ForkedLauncher, ship_by_value
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_result import JobResult, Outcome
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.pieces import PieceOptions, StorageConfig

__all__ = ["JobResult", "ManualClock", "Outcome", "RunningJob", "kill_a_slot", "run_pipeline", "slot_pids"]

IMPATIENT = RestartConfig(first_delay=0.0, max_delay=0.1, per_region=None, per_job=None)
"""Restarts at once, as often as it takes: a test is not a production system."""


def run_pipeline(
    pipeline: Callable[..., Any],
    *,
    storage: Path | str,
    parallelism: int = 1,
    args: Mapping[str, Any] | None = None,
    interval: float | None = 0.1,
    mode: Mode = Mode.EXACTLY_ONCE,
    job: str = "test",
    uid: str = "test-uid",
    strategy: Strategy = Strategy.REGION,
    checkpoint: CheckpointConfig | None = None,
    restarts: RestartConfig = IMPATIENT,
    launcher: SlotLauncher | None = None,
    observers: tuple[JobEvents, ...] = (),
    meanwhile: Callable[[RunningJob], Any] | None = None,
    **settings: Any,
) -> JobResult:
    """Plan and run `pipeline` until it ends. A second call with the same storage goes on where the first one ended.

    `meanwhile` is called with the running job (and awaited if it is a coroutine function): to kill, stop, look.
    Raises InconsistentCut if a checkpoint on the way was none. `settings` are further fields of JobSettings, such as
    `restore_from`, `incremental`, `retained`, `clock`.
    """
    graph = plan_pipeline(
        pipeline, args, parallelism, PlanOptions(job=job, parallelism=parallelism, mode=mode, strategy=strategy)
    )
    backend = PieceOptions(all_inline=settings.pop("backend", "filesystem") == "memory")
    chosen = JobSettings(
        name=job,
        namespace="test",
        uid=uid,
        storage=StorageConfig(str(storage), Layout("test", job), {}, backend),
        checkpoint=checkpoint or CheckpointConfig(interval=interval, tolerable_failures=100, mode=mode),
        restarts=restarts,
        strategy=strategy,
        **settings,
    )
    ship_by_value(sys.modules[pipeline.__module__])
    own = launcher or ForkedLauncher()
    cuts = ConsistentCuts()
    try:
        result = run_to_end(chosen, ExecutionGraph(graph), own, cuts, *observers, meanwhile=meanwhile)
    finally:
        if launcher is None:
            own.close()
    cuts.verify()
    return result


def slot_pids(job: RunningJob) -> list[int]:
    """The processes of the slots that are connected now."""
    return [connection.hello.pid for shell in job.master.regions.values() for connection in shell.connections.values()]


def kill_a_slot(job: RunningJob, choose: random.Random) -> int | None:
    """kill -9 of one slot, as a crash would; its pid, or None if no slot was there."""
    pids = slot_pids(job)
    if not pids:
        return None
    pid = choose.choice(pids)
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return None
    return pid
