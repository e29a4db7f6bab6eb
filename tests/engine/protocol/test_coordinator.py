import pytest

from snapshot_engine.protocol.checkpoints import (
    Abort,
    CheckpointConfig,
    Completed,
    Discard,
    FailOver,
    Finished,
    Trigger,
    WriteManifest,
)
from snapshot_engine.protocol.coordinator import Coordinator
from snapshot_engine.protocol.critical_path import Timings
from snapshot_engine.protocol.elements import Attempt, Barrier, SubtaskId

SOURCE, OTHER_SOURCE, SINK = SubtaskId("source", 0), SubtaskId("source", 1), SubtaskId("sink", 0)
ALL = (SOURCE, OTHER_SOURCE, SINK)
FIRST, SECOND = Attempt(1, 1), Attempt(1, 2)
TIMES = Timings()


def running(config=None, next_id=1, **settings):
    settings = {"interval": 10.0, "timeout": 60.0} | settings
    coordinator = Coordinator(config or CheckpointConfig(**settings), ALL, [SOURCE, OTHER_SOURCE], next_id)
    assert coordinator.resume(dict.fromkeys(ALL, FIRST), 0.0) == []
    return coordinator


def of(kind, actions):
    return [action for action in actions if isinstance(action, kind)]


def acknowledge_all(coordinator, checkpoint, now, subtasks=ALL, attempt=FIRST):
    actions = []
    for subtask in subtasks:
        actions += coordinator.acknowledge(checkpoint, subtask, attempt, f"{subtask}@{checkpoint}", TIMES, now)
    return actions


def complete(coordinator, checkpoint, now):
    actions = acknowledge_all(coordinator, checkpoint, now)
    assert [a.checkpoint for a in of(WriteManifest, actions)] == [checkpoint]
    return coordinator.manifest_written(checkpoint, now)


class TestTriggering:
    def test_nothing_is_triggered_before_everything_runs(self):
        coordinator = Coordinator(CheckpointConfig(interval=1.0), ALL, [SOURCE])
        assert coordinator.tick(100.0) == []
        assert coordinator.next_wakeup() is None

    def test_a_checkpoint_is_triggered_at_every_source_by_time(self):
        coordinator = running()
        assert coordinator.next_wakeup() == 10.0
        assert coordinator.tick(9.9) == []
        assert coordinator.tick(10.0) == [Trigger(Barrier(1, 10.0), (SOURCE, OTHER_SOURCE))]

    def test_no_more_than_the_allowed_number_at_once(self):
        coordinator = running(max_concurrent=2)
        assert of(Trigger, coordinator.tick(10.0))
        assert of(Trigger, coordinator.tick(20.0))
        assert coordinator.tick(30.0) == []
        assert coordinator.next_wakeup() == 70.0  # the first one's timeout
        actions = complete(coordinator, 1, 31.0)
        assert [t.barrier.checkpoint for t in of(Trigger, actions)] == [3]

    def test_the_pause_after_the_last_one_is_kept(self):
        coordinator = running(min_pause=5.0)
        coordinator.tick(10.0)
        complete(coordinator, 1, 18.0)
        assert coordinator.next_wakeup() == 23.0
        assert coordinator.tick(20.0) == []
        assert of(Trigger, coordinator.tick(23.0))

    def test_numbers_are_never_used_twice(self):
        coordinator = running(next_id=7, tolerable_failures=10)
        coordinator.tick(10.0)
        coordinator.decline(7, SINK, FIRST, "disk full", 11.0)
        (trigger,) = of(Trigger, coordinator.tick(30.0))
        assert trigger.barrier.checkpoint == 8
        assert coordinator.next_id == 9

    def test_a_log_under_pressure_gets_its_checkpoint_at_once(self):
        coordinator = running(min_pause=100.0)
        assert of(Trigger, coordinator.request_checkpoint(1.0))
        complete(coordinator, 1, 2.0)
        assert of(Trigger, coordinator.request_checkpoint(3.0))

    def test_nothing_is_triggered_while_a_producer_catches_up(self):
        coordinator = running()
        coordinator.hold("region 3")
        assert coordinator.tick(50.0) == []
        assert coordinator.next_wakeup() is None
        assert of(Trigger, coordinator.release("region 3", 51.0))

    def test_without_an_interval_only_what_is_asked_for_is_triggered(self):
        coordinator = running(interval=None)
        assert coordinator.next_wakeup() is None
        assert coordinator.tick(1000.0) == []
        assert of(Trigger, coordinator.request_savepoint("mine", 1001.0))


class TestCompleting:
    def test_when_every_subtask_has_acknowledged_the_manifest_is_written(self):
        coordinator = running()
        coordinator.tick(10.0)
        assert acknowledge_all(coordinator, 1, 11.0, [SOURCE, SINK]) == []
        assert coordinator.waiting_for(1) == {OTHER_SOURCE}
        (write,) = acknowledge_all(coordinator, 1, 11.0, [OTHER_SOURCE])
        assert isinstance(write, WriteManifest)
        assert write.states == {subtask: f"{subtask}@1" for subtask in ALL}
        assert write.retained
        assert coordinator.completing == 1

    def test_completion_commits_and_tells_the_times(self):
        coordinator = running()
        coordinator.tick(10.0)
        (done,) = of(Completed, complete(coordinator, 1, 12.0))
        assert (done.commits, done.triggered_at, done.completed_at) == (True, 10.0, 12.0)
        assert done.timings.keys() == set(ALL)
        assert coordinator.latest_completed == 1

    def test_one_manifest_is_written_after_the_other(self):
        coordinator = running(max_concurrent=2)
        coordinator.tick(10.0)
        coordinator.tick(20.0)
        acknowledge_all(coordinator, 1, 21.0)
        assert acknowledge_all(coordinator, 2, 22.0) == []
        actions = coordinator.manifest_written(1, 23.0)
        assert [type(a) for a in actions][:2] == [Completed, WriteManifest]
        assert of(WriteManifest, actions)[0].checkpoint == 2

    def test_a_newer_one_subsumes_older_pending_ones(self):
        coordinator = running(max_concurrent=2)
        coordinator.tick(10.0)
        coordinator.tick(20.0)
        acknowledge_all(coordinator, 1, 21.0, [SINK])
        actions = complete(coordinator, 2, 22.0)
        assert of(Completed, actions)[0].subsumed == (1,)
        (abort,) = of(Abort, actions)
        assert (abort.checkpoint, abort.discard) == (1, {SINK: f"{SINK}@1"})

    def test_an_outcome_nobody_waits_for_is_an_error_that_tells_the_story(self):
        coordinator = running()
        with pytest.raises(ValueError, match="checkpoint 1, which is not Completing"):
            coordinator.manifest_written(1, 5.0)

    def test_resuming_while_a_manifest_is_being_written_is_refused(self):
        coordinator = running()
        coordinator.tick(10.0)
        acknowledge_all(coordinator, 1, 11.0)
        coordinator.suspend("a slot was lost", 12.0)
        with pytest.raises(ValueError, match="checkpoint 1 is Completing"):
            coordinator.resume(dict.fromkeys(ALL, SECOND), 13.0)


class TestIgnoring:
    def test_an_acknowledgement_of_another_attempt_is_discarded_not_counted(self):
        coordinator = running()
        coordinator.tick(10.0)
        stale = coordinator.acknowledge(1, SINK, Attempt(0, 9), "old", TIMES, 11.0)
        assert stale == [Discard(1, SINK, "old")]
        assert SINK in coordinator.waiting_for(1)
        assert coordinator.ignored["acknowledgement of another attempt"] == 1

    def test_an_acknowledgement_that_comes_twice_is_ignored_and_its_files_stay(self):
        coordinator = running()
        coordinator.tick(10.0)
        acknowledge_all(coordinator, 1, 11.0, [SINK])
        assert coordinator.acknowledge(1, SINK, FIRST, f"{SINK}@1", TIMES, 11.5) == []

    def test_a_late_one_for_an_aborted_checkpoint_is_discarded(self):
        coordinator = running(tolerable_failures=5)
        coordinator.tick(10.0)
        coordinator.tick(70.0)
        assert coordinator.acknowledge(1, SINK, FIRST, "s", TIMES, 71.0) == [Discard(1, SINK, "s")]

    def test_a_late_one_for_a_completed_checkpoint_deletes_nothing(self):
        coordinator = running()
        coordinator.tick(10.0)
        complete(coordinator, 1, 12.0)
        assert coordinator.acknowledge(1, SINK, FIRST, f"{SINK}@1", TIMES, 13.0) == []

    def test_unknown_numbers_and_stale_declines_do_nothing(self):
        coordinator = running()
        coordinator.tick(10.0)
        assert coordinator.acknowledge(99, SINK, FIRST, "s", TIMES, 11.0) == []
        assert coordinator.decline(1, SINK, Attempt(0, 1), "old", 11.0) == []
        assert coordinator.decline(99, SINK, FIRST, "unknown", 11.0) == []
        assert coordinator.pending == (1,)


class TestAborting:
    def test_a_timeout_aborts_and_names_who_was_missing(self):
        coordinator = running(tolerable_failures=1)
        coordinator.tick(10.0)
        acknowledge_all(coordinator, 1, 11.0, [SOURCE, OTHER_SOURCE])
        assert coordinator.next_wakeup() == 70.0
        (abort,) = of(Abort, coordinator.tick(70.0))
        assert "waiting for sink[0]" in abort.reason
        assert abort.discard.keys() == {SOURCE, OTHER_SOURCE}

    def test_a_checkpoint_that_is_completing_does_not_time_out(self):
        coordinator = running()
        coordinator.tick(10.0)
        acknowledge_all(coordinator, 1, 11.0)
        assert of(Abort, coordinator.tick(1000.0)) == []

    def test_a_decline_aborts(self):
        coordinator = running(tolerable_failures=1)
        coordinator.tick(10.0)
        (abort,) = of(Abort, coordinator.decline(1, SINK, FIRST, "disk full", 11.0))
        assert abort.reason == "declined by sink[0]: disk full"

    def test_a_manifest_known_not_to_have_landed_aborts(self):
        coordinator = running(tolerable_failures=1)
        coordinator.tick(10.0)
        acknowledge_all(coordinator, 1, 11.0)
        (abort,) = of(Abort, coordinator.manifest_failed(1, "disk full", 12.0))
        assert abort.discard.keys() == set(ALL)

    def test_too_many_in_a_row_fail_the_job_over(self):
        coordinator = running(tolerable_failures=1)
        coordinator.tick(10.0)
        assert of(FailOver, coordinator.decline(1, SINK, FIRST, "no", 11.0)) == []
        coordinator.tick(21.0)
        (failover,) = of(FailOver, coordinator.decline(2, SINK, FIRST, "no again", 22.0))
        assert "no again" in failover.reason
        assert coordinator.suspended

    def test_a_completed_one_makes_the_count_begin_again(self):
        coordinator = running(tolerable_failures=1)
        coordinator.tick(10.0)
        coordinator.decline(1, SINK, FIRST, "no", 11.0)
        coordinator.tick(21.0)
        complete(coordinator, 2, 22.0)
        coordinator.tick(31.0)
        assert of(FailOver, coordinator.decline(3, SINK, FIRST, "no", 32.0)) == []

    def test_aborts_of_a_failover_do_not_count(self):
        coordinator = running(tolerable_failures=0)
        coordinator.tick(10.0)
        actions = coordinator.suspend("a slot was lost", 11.0)
        assert [type(a) for a in actions] == [Abort]
        assert coordinator.tick(500.0) == []

    def test_after_a_failover_the_old_attempts_are_refused(self):
        coordinator = running()
        coordinator.tick(10.0)
        coordinator.suspend("a slot was lost", 11.0)
        coordinator.resume({SOURCE: FIRST, OTHER_SOURCE: FIRST, SINK: SECOND}, 12.0)
        coordinator.tick(22.0)
        acknowledge_all(coordinator, 2, 23.0)
        assert coordinator.waiting_for(2) == {SINK}
        assert of(WriteManifest, acknowledge_all(coordinator, 2, 24.0, [SINK], SECOND))


class TestSavepoints:
    def test_a_savepoint_neither_commits_nor_subsumes(self):
        coordinator = running(max_concurrent=1)
        coordinator.tick(10.0)
        (trigger,) = coordinator.request_savepoint("mine", 11.0)
        assert (trigger.barrier.checkpoint, trigger.savepoint, trigger.stop) == (2, "mine", False)
        (write,) = of(WriteManifest, acknowledge_all(coordinator, 2, 12.0))
        assert not write.retained
        (done,) = coordinator.manifest_written(2, 13.0)
        assert (done.savepoint, done.commits, done.subsumed) == ("mine", False, ())
        assert coordinator.pending == (1,)
        assert coordinator.latest_completed is None

    def test_a_pending_savepoint_is_not_subsumed(self):
        coordinator = running()
        coordinator.request_savepoint("mine", 1.0)
        coordinator.tick(10.0)
        actions = complete(coordinator, 2, 12.0)
        assert of(Abort, actions) == []
        assert coordinator.pending == (1,)
        assert coordinator.oldest_active == 1

    def test_a_failed_savepoint_is_told_and_does_not_count(self):
        coordinator = running(tolerable_failures=0)
        coordinator.request_savepoint("mine", 1.0)
        actions = coordinator.decline(1, SINK, FIRST, "disk full", 2.0)
        assert [a.savepoint for a in of(Abort, actions)] == ["mine"]
        assert of(FailOver, actions) == []

    def test_a_request_during_a_failover_waits_for_its_end(self):
        coordinator = running()
        coordinator.suspend("a slot was lost", 1.0)
        assert coordinator.request_savepoint("mine", 2.0) == []
        (trigger,) = of(Trigger, coordinator.resume(dict.fromkeys(ALL, SECOND), 3.0))
        assert trigger.savepoint == "mine"

    def test_stop_with_savepoint_commits_and_nothing_is_triggered_after_it(self):
        coordinator = running()
        (trigger,) = coordinator.request_savepoint("last", 1.0, stop=True)
        assert trigger.stop
        assert coordinator.tick(50.0) == []
        (write,) = of(WriteManifest, acknowledge_all(coordinator, 1, 51.0))
        assert write.retained
        (done,) = coordinator.manifest_written(1, 52.0)
        assert (done.commits, done.stop) == (True, True)
        assert coordinator.tick(500.0) == []

    def test_an_older_stop_is_subsumed_since_it_would_become_the_latest_after_a_newer_one_has_committed(self):
        coordinator = running()
        coordinator.request_savepoint("first", 1.0, stop=True)
        coordinator.request_savepoint("second", 2.0, stop=True)
        (write,) = of(WriteManifest, acknowledge_all(coordinator, 2, 3.0))
        assert write.savepoint == "second"
        actions = coordinator.manifest_written(2, 4.0)
        assert [abort.savepoint for abort in of(Abort, actions)] == ["first"]
        assert of(WriteManifest, acknowledge_all(coordinator, 1, 5.0)) == []

    def test_a_stop_that_fails_lets_the_job_go_on(self):
        coordinator = running()
        coordinator.request_savepoint("last", 1.0, stop=True)
        (abort,) = of(Abort, coordinator.decline(1, SINK, FIRST, "no", 2.0))
        assert abort.stop
        assert of(Trigger, coordinator.tick(12.0))


def test_what_could_not_be_triggered_is_aborted_and_the_next_one_is_tried():
    coordinator = running(tolerable_failures=1)
    coordinator.tick(10.0)
    (abort,) = of(Abort, coordinator.not_triggered(1, "no number", 10.0))
    assert (abort.checkpoint, abort.reason) == (1, "no number")
    assert coordinator.not_triggered(1, "no number", 11.0) == []
    assert of(Trigger, coordinator.tick(20.0))


class TestFinishing:
    def test_a_finished_subtask_counts_as_acknowledged_with_its_final_state(self):
        coordinator = running()
        coordinator.tick(10.0)
        coordinator.finished(SOURCE, FIRST, "final", 0, 11.0)
        (write,) = of(WriteManifest, acknowledge_all(coordinator, 1, 12.0, [OTHER_SOURCE, SINK]))
        assert write.states[SOURCE] == "final"
        assert write.finished == {SOURCE}

    def test_but_not_for_a_checkpoint_it_has_already_taken(self):
        """It finished after its barrier: its consumers' snapshots lie before its final state."""
        coordinator = running()
        coordinator.tick(10.0)
        coordinator.finished(SOURCE, FIRST, "final", 1, 11.0)
        assert of(WriteManifest, acknowledge_all(coordinator, 1, 12.0, [OTHER_SOURCE, SINK])) == []
        (write,) = of(WriteManifest, acknowledge_all(coordinator, 1, 12.0, [SOURCE]))
        assert write.states[SOURCE] == f"{SOURCE}@1"
        assert write.finished == frozenset()

    def test_a_finished_source_is_not_triggered(self):
        coordinator = running()
        coordinator.finished(SOURCE, FIRST, "final", 0, 5.0)
        (trigger,) = of(Trigger, coordinator.tick(10.0))
        assert trigger.subtasks == (OTHER_SOURCE,)

    def test_nothing_is_triggered_when_only_the_rest_drains(self):
        coordinator = running()
        coordinator.finished(SOURCE, FIRST, "final", 0, 5.0)
        coordinator.finished(OTHER_SOURCE, FIRST, "final", 0, 5.0)
        assert coordinator.tick(100.0) == []
        assert coordinator.next_wakeup() is None

    def test_a_last_checkpoint_of_final_states_ends_the_job(self):
        coordinator = running()
        actions = []
        for subtask in ALL:
            actions += coordinator.finished(subtask, FIRST, f"final {subtask}", 0, 5.0)
        (write,) = actions
        assert isinstance(write, WriteManifest)
        assert write.finished == set(ALL)
        done = coordinator.manifest_written(write.checkpoint, 6.0)
        assert [type(a) for a in done] == [Completed, Finished]
        assert done[0].commits
        assert coordinator.tick(1000.0) == []

    def test_a_last_checkpoint_that_fails_is_tried_again(self):
        coordinator = running(tolerable_failures=3)
        for subtask in ALL:
            coordinator.finished(subtask, FIRST, "final", 0, 5.0)
        coordinator.manifest_failed(1, "disk full", 6.0)
        wakeup = coordinator.next_wakeup()
        assert wakeup is not None
        assert of(WriteManifest, coordinator.tick(wakeup))

    def test_an_older_pending_one_does_not_end_the_job(self):
        """Checkpoint 1 holds a snapshot that is not the final state."""
        coordinator = running()
        coordinator.tick(10.0)
        acknowledge_all(coordinator, 1, 11.0, [SOURCE])
        for subtask in ALL:
            coordinator.finished(subtask, FIRST, "final", 1 if subtask == SOURCE else 0, 12.0)
        done = coordinator.manifest_written(1, 13.0)
        assert of(Finished, done) == []
        (write,) = of(WriteManifest, done)
        assert of(Finished, coordinator.manifest_written(write.checkpoint, 14.0))

    def test_a_restarted_subtask_has_not_finished(self):
        coordinator = running()
        coordinator.finished(SOURCE, FIRST, "final", 0, 5.0)
        coordinator.suspend("lost", 6.0)
        coordinator.resume(dict.fromkeys(ALL, SECOND), 7.0)
        assert coordinator.finished_subtasks == frozenset()

    def test_a_finish_before_the_others_run_is_remembered(self):
        coordinator = running()
        coordinator.suspend("lost", 6.0)
        coordinator.finished(SOURCE, SECOND, "final", 0, 6.5)
        coordinator.finished(SOURCE, FIRST, "an old word that comes late", 0, 6.6)
        coordinator.resume(dict.fromkeys(ALL, SECOND), 7.0)
        assert coordinator.finished_subtasks == {SOURCE}
        (trigger,) = of(Trigger, coordinator.tick(17.0))
        assert trigger.subtasks == (OTHER_SOURCE,)

    def test_the_word_of_a_zombie_that_it_finished_is_ignored(self):
        coordinator = running()
        coordinator.suspend("lost", 6.0)
        coordinator.resume(dict.fromkeys(ALL, SECOND), 7.0)
        coordinator.finished(SOURCE, FIRST, "final", 0, 8.0)
        assert coordinator.finished_subtasks == frozenset()


class TestLoops:
    def test_a_head_without_open_inputs_is_triggered_like_a_source(self):
        coordinator = running()
        coordinator.inputs_ended(SINK, FIRST, 5.0)
        (trigger,) = of(Trigger, coordinator.tick(10.0))
        assert trigger.subtasks == (SINK, SOURCE, OTHER_SOURCE)

    def test_also_for_what_is_pending(self):
        coordinator = running()
        coordinator.tick(10.0)
        assert coordinator.inputs_ended(SINK, FIRST, 11.0) == [Trigger(Barrier(1, 10.0), (SINK,))]

    def test_not_after_it_was_restarted(self):
        coordinator = running()
        coordinator.inputs_ended(SINK, FIRST, 5.0)
        coordinator.suspend("lost", 6.0)
        coordinator.resume(dict.fromkeys(ALL, SECOND), 7.0)
        (trigger,) = of(Trigger, coordinator.tick(20.0))
        assert SINK not in trigger.subtasks
