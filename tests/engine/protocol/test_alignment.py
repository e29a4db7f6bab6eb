from snapshot_engine.protocol.alignment import Alignment, DeclineCheckpoint, TakeSnapshot
from snapshot_engine.protocol.elements import Barrier, ChannelId, Mode

A, B, C = ChannelId(0, 0, 0), ChannelId(0, 1, 0), ChannelId(1, 0, 0)


def barrier(number: int, at: float = 0.0) -> Barrier:
    return Barrier(number, at)


def taken(actions: list[object]) -> list[int]:
    return [action.barrier.checkpoint for action in actions if isinstance(action, TakeSnapshot)]


def declined(actions: list[object]) -> list[int]:
    return [action.checkpoint for action in actions if isinstance(action, DeclineCheckpoint)]


class TestExactlyOnce:
    def test_a_channel_is_blocked_from_its_barrier_until_all_have_come(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        assert alignment.barrier(A, barrier(1), 1.0) == []
        assert alignment.blocked == {A}
        assert taken(alignment.barrier(B, barrier(1), 2.0)) == [1]
        assert alignment.blocked == set()

    def test_a_single_channel_is_aligned_at_once(self):
        alignment = Alignment([A], Mode.EXACTLY_ONCE)
        assert taken(alignment.barrier(A, barrier(1), 1.0)) == [1]
        assert alignment.blocked == set()

    def test_start_delay_and_alignment_time_are_measured(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        alignment.barrier(A, barrier(1, at=10.0), 10.5)
        assert alignment.barrier(B, barrier(1, at=10.0), 12.0) == [TakeSnapshot(barrier(1, 10.0), 0.5, 1.5)]

    def test_a_newer_barrier_ends_an_older_alignment_and_declines_it(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        alignment.barrier(A, barrier(1), 0)
        assert declined(alignment.barrier(B, barrier(2), 1)) == [1]
        assert alignment.blocked == {B}
        assert taken(alignment.barrier(A, barrier(2), 2)) == [2]

    def test_a_barrier_that_was_overtaken_is_ignored(self):
        alignment = Alignment([A, B, C], Mode.EXACTLY_ONCE)
        alignment.barrier(A, barrier(2), 0)
        assert alignment.barrier(B, barrier(1), 1) == []
        assert alignment.blocked == {A}

    def test_an_abort_releases_the_channels_and_the_checkpoint_is_never_aligned_again(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        alignment.barrier(A, barrier(1), 0)
        alignment.abort(1, 1)
        assert alignment.blocked == set()
        assert alignment.barrier(B, barrier(1), 2) == []
        assert alignment.barrier(A, barrier(1), 3) == []
        assert alignment.blocked == set()

    def test_an_abort_that_comes_before_any_barrier_counts_too(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        alignment.abort(1, 0)
        alignment.barrier(A, barrier(1), 1)
        assert alignment.blocked == set()

    def test_an_abort_of_a_newer_checkpoint_leaves_the_current_alignment_alone(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        alignment.barrier(A, barrier(1), 0)
        alignment.abort(2, 1)
        assert alignment.blocked == {A}
        assert taken(alignment.barrier(B, barrier(1), 2)) == [1]
        alignment.barrier(A, barrier(2), 3)
        assert alignment.blocked == set()

    def test_a_late_abort_of_a_taken_checkpoint_does_nothing(self):
        alignment = Alignment([A], Mode.EXACTLY_ONCE)
        alignment.barrier(A, barrier(3), 0)
        assert alignment.abort(3, 1) == []
        assert alignment.settled == 3

    def test_an_ended_channel_counts_as_aligned(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        alignment.end(B, 0)
        assert taken(alignment.barrier(A, barrier(1), 1)) == [1]

    def test_the_end_of_the_last_missing_channel_completes_the_alignment(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE)
        alignment.barrier(A, barrier(1), 0)
        assert taken(alignment.end(B, 1)) == [1]
        assert alignment.blocked == set()
        assert alignment.ended == {B}

    def test_channels_that_had_ended_in_the_restored_snapshot_are_not_waited_for(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE, ended=[B], restored=4)
        assert taken(alignment.barrier(A, barrier(4), 0)) == []
        assert taken(alignment.barrier(A, barrier(5), 1)) == [5]

    def test_feedback_channels_are_neither_aligned_nor_blocked(self):
        alignment = Alignment([A, B], Mode.EXACTLY_ONCE, feedback=[B])
        assert alignment.barrier(B, barrier(1), 0) == []
        assert alignment.blocked == set()
        assert taken(alignment.barrier(A, barrier(1), 1)) == [1]


class TestAtLeastOnce:
    def test_nothing_is_ever_blocked(self):
        alignment = Alignment([A, B], Mode.AT_LEAST_ONCE)
        alignment.barrier(A, barrier(1), 0)
        assert alignment.blocked == set()

    def test_several_checkpoints_are_counted_side_by_side(self):
        alignment = Alignment([A, B], Mode.AT_LEAST_ONCE)
        alignment.barrier(A, barrier(1), 0)
        alignment.barrier(A, barrier(2), 1)
        assert taken(alignment.barrier(B, barrier(1), 2)) == [1]
        assert taken(alignment.barrier(B, barrier(2), 3)) == [2]

    def test_a_newer_one_that_is_taken_first_declines_the_older(self):
        alignment = Alignment([A, B], Mode.AT_LEAST_ONCE)
        alignment.barrier(A, barrier(1), 0)
        alignment.barrier(A, barrier(2), 1)
        actions = alignment.barrier(B, barrier(2), 2)
        assert (declined(actions), taken(actions)) == ([1], [2])
        assert alignment.barrier(B, barrier(1), 3) == []

    def test_an_end_may_complete_several(self):
        alignment = Alignment([A, B], Mode.AT_LEAST_ONCE)
        alignment.barrier(A, barrier(1), 0)
        alignment.barrier(A, barrier(2), 1)
        assert taken(alignment.end(B, 2)) == [1, 2]

    def test_an_aborted_one_is_forgotten(self):
        alignment = Alignment([A, B], Mode.AT_LEAST_ONCE)
        alignment.barrier(A, barrier(1), 0)
        alignment.abort(1, 1)
        assert alignment.barrier(B, barrier(1), 2) == []


class TestTrigger:
    def test_a_source_takes_its_snapshot_once(self):
        alignment = Alignment([], Mode.EXACTLY_ONCE)
        assert taken(alignment.trigger(barrier(1, at=1.0), 1.5)) == [1]
        assert alignment.trigger(barrier(1, at=1.0), 1.6) == []

    def test_a_trigger_after_its_abort_does_nothing(self):
        alignment = Alignment([], Mode.EXACTLY_ONCE)
        alignment.abort(2, 0)
        assert alignment.trigger(barrier(2), 1) == []
        assert taken(alignment.trigger(barrier(3), 2)) == [3]

    def test_an_older_trigger_that_comes_late_does_nothing(self):
        alignment = Alignment([], Mode.EXACTLY_ONCE)
        alignment.trigger(barrier(2), 0)
        assert alignment.trigger(barrier(1), 1) == []

    def test_a_trigger_does_nothing_while_an_input_is_open(self):
        alignment = Alignment([A], Mode.EXACTLY_ONCE)
        assert alignment.trigger(barrier(1), 0) == []
        alignment.end(A, 1)
        assert alignment.all_ended
        assert taken(alignment.trigger(barrier(1), 2)) == [1]
