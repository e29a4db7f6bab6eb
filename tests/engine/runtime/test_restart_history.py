"""The phases of a restart follow each other without a gap, and every failure leaves exactly one entry."""

from __future__ import annotations

from snapshot_engine.protocol.checkpoints import Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.restart_history import CHECKPOINTS_FAILED, TAKEN_ALONG, RestartHistory
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire.status import RestartEntry


class Told:
    def __init__(self) -> None:
        self.begun: list[RestartEntry] = []
        self.settled: list[RestartEntry] = []
        self.history = RestartHistory([self.begun.append], [self.settled.append])


def running_region() -> RegionRun:
    run = RegionRun(0, [0], generation=1)
    attempt = run.schedule(0.0)
    run.slot_registered(0, attempt, 1.0)
    run.slot_running(0, attempt, 2.0)
    return run


def fail(told: Told, run: RegionRun, now: float, silent: float) -> None:
    told.history.region_failed(run, "SlotLost", "gone", "", silent)
    run.failed(run.attempt, "gone", now)


def restart(told: Told, run: RegionRun, gone: float, due: float) -> Attempt:
    run.slot_gone(0, run.attempt, gone)
    attempt = run.schedule(due)
    told.history.starting({0: attempt}, 7)
    return attempt


def come_up(told: Told, run: RegionRun, attempt: Attempt, there: float, restored: float) -> None:
    run.slot_registered(0, attempt, there)
    run.slot_running(0, attempt, restored)
    told.history.region_running(run)


def complete_checkpoint(told: Told, triggered_at: float) -> None:
    outcome = Completed(7, True, triggered_at, triggered_at + 0.1, {})
    manifest = Manifest(7, 1, "orders", "uid", triggered_at, triggered_at + 0.1, 128, {})
    told.history.checkpoint_completed(manifest, outcome, CriticalPath(0.0, ()), "uri", 0)


def test_a_recovery_has_six_phases_that_sum_up_to_its_time() -> None:
    told, run = Told(), running_region()
    fail(told, run, now=10.0, silent=0.5)
    attempt = restart(told, run, gone=10.25, due=11.25)
    come_up(told, run, attempt, there=13.25, restored=17.25)
    told.history.region_delivers(run, 8.0)
    [entry] = told.settled
    assert list(entry.phases.items()) == [
        ("detect", 0.5),
        ("cancel", 0.25),
        ("wait", 1.0),
        ("schedule", 2.0),
        ("restore", 4.0),
        ("first_output", 8.0),
    ]
    assert entry.seconds == 15.75
    assert (entry.region, entry.cause, entry.attempt, entry.checkpoint_id) == ("0", "SlotLost", 2, 7)


def test_a_region_that_has_nothing_to_put_out_has_recovered_when_a_checkpoint_completes() -> None:
    told, run = Told(), running_region()
    fail(told, run, now=10.0, silent=0.0)
    come_up(told, run, restart(told, run, 10.0, 10.0), 11.0, 12.0)
    complete_checkpoint(told, triggered_at=13.0)
    [entry] = told.settled
    assert "first_output" not in entry.phases
    assert entry.seconds == 2.0


def test_a_checkpoint_that_completes_after_a_failure_ends_no_recovery() -> None:
    """It was Completing when the region failed; the decision which regions restart waits for it."""
    told, run = Told(), running_region()
    fail(told, run, now=10.0, silent=0.0)
    complete_checkpoint(told, triggered_at=9.0)
    assert not told.settled
    come_up(told, run, restart(told, run, 10.0, 10.0), 11.0, 12.0)
    complete_checkpoint(told, triggered_at=9.5)
    assert not told.settled
    told.history.region_delivers(run, 1.0)
    assert [entry.cause for entry in told.begun] == ["SlotLost"]
    assert [entry.seconds for entry in told.settled] == [3.0]


def test_failing_again_on_the_way_up_leaves_two_entries() -> None:
    told, run = Told(), running_region()
    fail(told, run, now=10.0, silent=0.0)
    restart(told, run, gone=10.5, due=12.0)
    fail(told, run, now=20.0, silent=3.0)
    come_up(told, run, restart(told, run, 21.0, 21.0), 22.0, 23.0)
    told.history.region_delivers(run, 0.0)
    first, second = told.settled
    assert first.phases == {"detect": 0.0, "cancel": 0.5, "wait": 1.5}
    assert first.seconds is None
    assert second.seconds == 6.0
    assert second.phases["detect"] == 3.0
    assert len(told.begun) == 2


def test_who_restarts_with_another_region_says_so() -> None:
    told = Told()
    told.history.starting({1: Attempt(1, 2)}, 7)
    assert told.begun[0].cause == TAKEN_ALONG


def test_when_checkpoints_fail_too_often_every_region_says_so() -> None:
    told = Told()
    told.history.all_failed("4 checkpoints in a row")
    told.history.starting({0: Attempt(1, 2), 1: Attempt(1, 2)}, 7)
    assert [entry.cause for entry in told.begun] == [CHECKPOINTS_FAILED, CHECKPOINTS_FAILED]


def test_the_first_start_is_no_restart() -> None:
    told = Told()
    told.history.starting({0: Attempt(3, 1)}, 7)
    assert not told.begun
