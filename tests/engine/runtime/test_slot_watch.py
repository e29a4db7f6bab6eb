"""What is said of an executor that is lost: only what follows from it."""

from __future__ import annotations

from unittest.mock import Mock

from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.messages import Hello
from snapshot_engine.runtime.region_shell import RegionShell
from snapshot_engine.runtime.slot_watch import SlotWatch


def region_on(executor: str, number: int, *, finished: bool = False) -> RegionShell:
    """One that runs, with one slot."""
    run = RegionRun(number, [0], generation=1)
    attempt = run.schedule(0.0)
    run.slot_registered(0, attempt, 0.0)
    run.slot_running(0, attempt, 0.0)
    if finished:
        run.slot_finished(0, attempt, 1.0)
    hello = Hello(number, attempt.generation, attempt.number, 0, executor, None, "host", 1, [], b"")
    return RegionShell(run, {0: SlotConnection(hello, Mock())})


def watch_over(*shells: RegionShell) -> tuple[SlotWatch, Mock]:
    failed = Mock()
    regions = {shell.run.region: shell for shell in shells}
    return SlotWatch(regions, Mock(), Mock(), Mock(), lambda: 2.0, failed), failed


def test_only_regions_with_slots_there_are_said_to_restart() -> None:
    watch, failed = watch_over(region_on("1", 0), region_on("2", 1))
    assert watch.executor_lost("1", "PodGone", "") == [0]
    assert [call.args[0].run.region for call in failed.call_args_list] == [0]


def test_a_region_that_has_finished_is_not_said_to_restart() -> None:
    watch, _ = watch_over(region_on("1", 0, finished=True), region_on("1", 1))
    assert watch.executor_lost("1", "PodGone", "") == [1]
