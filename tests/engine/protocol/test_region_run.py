import pytest

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.protocol.region_run import TRANSITIONS, RegionRun, RegionState
from snapshot_engine.protocol.transitions import IllegalTransitionError

S = RegionState


def started(slots=(0, 1), generation=3):
    run = RegionRun(7, slots, generation)
    run.schedule(0.0)
    for slot in slots:
        run.slot_registered(slot, run.attempt, 1.0)
    for slot in slots:
        run.slot_running(slot, run.attempt, 2.0)
    assert run.state is S.RUNNING
    return run


def test_every_state_is_in_the_table():
    assert set(TRANSITIONS) == set(RegionState)


def test_a_region_takes_each_step_with_its_last_slot():
    run = RegionRun(7, [0, 1], 3)
    attempt = run.schedule(0.0)
    assert attempt == Attempt(3, 1)
    assert not run.slot_registered(0, attempt, 1.0)
    assert not run.slot_registered(0, attempt, 1.0)
    assert run.slot_registered(1, attempt, 1.0)
    assert not run.slot_running(0, attempt, 2.0)
    assert run.slot_running(1, attempt, 2.0)
    assert not run.slot_finished(1, attempt, 3.0)
    assert run.slot_finished(0, attempt, 3.0)
    assert run.state is S.FINISHED


def test_messages_of_an_older_attempt_are_refused():
    run = started()
    old = run.attempt
    run.failed(old, "killed", 3.0)
    run.abandon_slots(4.0)
    new = run.schedule(5.0)
    assert new > old
    assert not run.slot_registered(0, old, 6.0)
    assert not run.failed(old, "killed", 6.0)
    assert not run.slot_gone(0, old, 6.0)
    assert run.state is S.SCHEDULING


def test_one_failure_is_handled_once():
    run = started()
    assert run.failed(run.attempt, "connection closed", 3.0)
    assert not run.failed(run.attempt, "Spark says so too", 3.1)


def test_a_cancellation_ends_when_all_slots_are_gone():
    run = started()
    assert run.cancel("its producer restarts", 3.0)
    assert not run.slot_gone(0, run.attempt, 3.1)
    assert run.slot_gone(1, run.attempt, 3.2)
    assert run.state is S.WAITING


def test_slots_that_do_not_stop_are_left_to_the_fence():
    run = started()
    run.failed(run.attempt, "killed", 3.0)
    run.slot_gone(0, run.attempt, 3.1)
    assert run.alive == {1}
    assert run.abandon_slots(9.0)
    assert run.state is S.WAITING


def test_a_failure_after_all_slots_are_gone_needs_no_cancellation():
    run = started(slots=(0,))
    run.slot_gone(0, run.attempt, 3.0)
    assert run.failed(run.attempt, "connection closed", 3.0)
    assert run.state is S.WAITING


def test_a_region_that_fails_while_it_starts_is_handled_too():
    run = RegionRun(7, [0], 1)
    run.schedule(0.0)
    assert run.failed(run.attempt, "cannot import", 1.0)
    run.abandon_slots(1.0)
    run.schedule(2.0)
    assert run.attempt.number == 2


def test_a_slot_may_finish_before_its_peers_run():
    run = RegionRun(7, [0, 1], 1)
    attempt = run.schedule(0.0)
    run.slot_registered(0, attempt, 1.0)
    run.slot_registered(1, attempt, 1.0)
    assert not run.slot_finished(0, attempt, 2.0)
    assert run.slot_finished(1, attempt, 2.0)
    assert run.state is S.FINISHED


def test_a_finished_region_can_be_needed_again():
    run = started(slots=(0,))
    run.slot_finished(0, run.attempt, 3.0)
    assert not run.cancel("its result is lost", 4.0)
    assert run.state is S.WAITING
    assert run.schedule(5.0).number == 2


def test_what_never_started_has_nothing_to_cancel():
    run = RegionRun(7, [0], 1)
    assert not run.cancel("another one failed", 0.0)
    assert run.state is S.CREATED
    assert not run.started


def test_an_illegal_step_tells_the_history():
    run = started()
    with pytest.raises(IllegalTransitionError) as error:
        run.schedule(9.0)
    assert "region 7 cannot go from RUNNING to SCHEDULING" in str(error.value)
    assert "SCHEDULING -> DEPLOYING" in str(error.value)
