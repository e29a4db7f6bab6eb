"""What is said of an executor that is lost: only what follows from it."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest

from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import UNREACHABLE, SlotConnection
from snapshot_engine.runtime.messages import Hello
from snapshot_engine.runtime.region_shell import RegionShell
from snapshot_engine.runtime.slot_watch import GIVEN_UP_SECONDS, SlotWatch


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


def lose(watch: SlotWatch, shell: RegionShell, how: str) -> float:
    """Returns when."""
    (connection,) = shell.connections.values()
    connection.end = how
    connection.last_heard = time.monotonic() - 1.0
    watch.slot_ended(shell, connection)
    return time.monotonic()


@pytest.mark.parametrize("others_are_heard", [True, False])
def test_an_executor_that_stays_out_of_reach_is_replaced_while_others_are_heard(others_are_heard: bool) -> None:
    cut_off, other = region_on("1", 0), region_on("2", 1)
    watch, _ = watch_over(cut_off, other)
    lost_at = lose(watch, cut_off, UNREACHABLE)
    later = lost_at + GIVEN_UP_SECONDS + 0.1
    other.connections[0].last_heard = later if others_are_heard else lost_at
    watch._give_up_unreachable(lost_at + 1.0)
    assert not watch.is_fenced("1"), "it may be heard again"
    watch._give_up_unreachable(later)
    assert watch.is_fenced("1") is others_are_heard, "a driver that hears nobody is cut off itself"


def test_an_executor_that_is_heard_again_is_not_replaced() -> None:
    blinked, other = region_on("1", 0), region_on("2", 1)
    watch, _ = watch_over(blinked, other)
    lost_at = lose(watch, blinked, UNREACHABLE)
    again = region_on("1", 0)
    blinked.connections = again.connections
    later = lost_at + GIVEN_UP_SECONDS + 0.1
    for shell in (blinked, other):
        shell.connections[0].last_heard = later
    watch._give_up_unreachable(later)
    assert not watch.is_fenced("1")


def test_an_executor_whose_slot_has_died_is_not_out_of_reach() -> None:
    died, other = region_on("1", 0), region_on("2", 1)
    watch, _ = watch_over(died, other)
    lost_at = lose(watch, died, "closed its connection")
    other.connections[0].last_heard = lost_at + 10.0
    watch._give_up_unreachable(lost_at + 10.0)
    assert not watch.is_fenced("1")
