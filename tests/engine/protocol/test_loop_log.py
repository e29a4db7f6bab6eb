from snapshot_engine.protocol.alignment import DeclineCheckpoint
from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.loop_log import AcknowledgeLoop, LoopContents, LoopEntry, LoopLog

A, B = ChannelId(9, 0, 0), ChannelId(9, 1, 0)


def payloads(action):
    return {channel: [entry.payload for entry in entries] for channel, entries in action.contents.entries.items()}


def drain(loop):
    taken = []
    while (next_one := loop.take()) is not None:
        taken.append(next_one[1])
    return taken


def test_the_log_is_the_queue_at_the_barrier_plus_what_arrives_until_it_returns():
    loop = LoopLog([A])
    loop.arrived(A, "processed before")
    loop.take()
    loop.arrived(A, "in the queue")
    assert loop.snapshot_taken(1) == []
    loop.take()  # processed after the barrier, but it lay in the queue at the barrier
    loop.arrived(A, "on its way")
    (done,) = loop.returned(A, 1)
    assert isinstance(done, AcknowledgeLoop)
    assert payloads(done) == {A: ["in the queue", "on its way"]}
    loop.arrived(A, "after the barrier")
    assert drain(loop) == ["on its way", "after the barrier"]


def test_each_feedback_channel_logs_until_its_own_barrier():
    loop = LoopLog([A, B])
    loop.snapshot_taken(1)
    assert loop.returned(A, 1) == []
    loop.arrived(A, "behind the barrier of A")
    loop.arrived(B, "before the barrier of B")
    (done,) = loop.returned(B, 1)
    assert payloads(done) == {A: [], B: ["before the barrier of B"]}


def test_every_pending_checkpoint_has_its_own_log():
    loop = LoopLog([A])
    loop.snapshot_taken(1)
    loop.arrived(A, "x")
    loop.snapshot_taken(2)
    loop.arrived(A, "y")
    assert loop.pending == (1, 2)
    assert payloads(loop.returned(A, 1)[0]) == {A: ["x", "y"]}
    loop.arrived(A, "z")
    assert payloads(loop.returned(A, 2)[0]) == {A: ["x", "y", "z"]}


def test_an_abort_drops_the_log_but_not_the_queue():
    loop = LoopLog([A])
    loop.arrived(A, "x")
    loop.snapshot_taken(1)
    loop.abort(1)
    assert loop.returned(A, 1) == []
    assert drain(loop) == ["x"]


def test_a_newer_barrier_that_returns_first_declines_the_older():
    loop = LoopLog([A])
    loop.snapshot_taken(1)
    loop.snapshot_taken(2)
    actions = loop.returned(A, 2)
    assert [type(action) for action in actions] == [DeclineCheckpoint, AcknowledgeLoop]
    assert actions[0].checkpoint == 1


def test_a_restored_log_enters_the_queue_first_and_counts_for_the_next_barrier():
    loop = LoopLog([A], LoopContents({A: [LoopEntry(0, "old")]}))
    loop.arrived(A, "new")
    loop.snapshot_taken(5)
    (done,) = loop.returned(A, 5)
    assert payloads(done) == {A: ["old", "new"]}
    assert drain(loop) == ["old", "new"]


def test_an_ended_channel_has_nothing_to_wait_for():
    loop = LoopLog([A, B])
    loop.ended(A)
    loop.snapshot_taken(1)
    (done,) = loop.ended(B)
    assert done.checkpoint == 1
    assert loop.all_ended


def test_channels_are_taken_in_turn():
    loop = LoopLog([A, B])
    for payload in ("a1", "a2"):
        loop.arrived(A, payload)
    loop.arrived(B, "b1")
    assert drain(loop) == ["a1", "b1", "a2"]


class TestEarlyBarriers:
    """Another head has taken its snapshot already, and its barrier comes back before this one has."""

    def test_what_comes_behind_it_waits_and_is_not_in_the_log(self):
        loop = LoopLog([A, B])
        loop.arrived(A, "before")
        loop.returned(A, 1)
        loop.arrived(A, "behind")
        assert drain(loop) == ["before"]
        assert not loop.quiet
        assert loop.snapshot_taken(1) == []
        assert drain(loop) == ["behind"]
        loop.arrived(B, "on its way")
        (done,) = loop.returned(B, 1)
        assert payloads(done) == {A: [], B: ["on its way"]}

    def test_what_lies_in_front_of_it_is_in_the_log(self):
        loop = LoopLog([A])
        loop.arrived(A, "before")
        loop.returned(A, 1)
        loop.arrived(A, "behind")
        (done,) = loop.snapshot_taken(1)
        assert payloads(done) == {A: ["before"]}
        assert drain(loop) == ["before", "behind"]

    def test_an_abort_sets_free_what_waits(self):
        loop = LoopLog([A])
        loop.returned(A, 1)
        loop.arrived(A, "behind")
        loop.abort(1)
        assert drain(loop) == ["behind"]

    def test_of_an_aborted_checkpoint_it_holds_nothing(self):
        loop = LoopLog([A])
        loop.abort(1)
        loop.returned(A, 1)
        loop.arrived(A, "behind")
        assert drain(loop) == ["behind"]

    def test_a_newer_snapshot_ends_the_wait_for_an_older_one(self):
        loop = LoopLog([A])
        loop.returned(A, 1)
        loop.arrived(A, "x")
        loop.snapshot_taken(2)
        (done,) = loop.returned(A, 2)
        assert payloads(done) == {A: ["x"]}

    def test_a_newer_one_declines_the_older(self):
        loop = LoopLog([A, B])
        loop.returned(A, 2)
        (declined,) = loop.snapshot_taken(1)
        assert declined == DeclineCheckpoint(1, declined.reason)
        assert loop.pending == ()

    def test_two_of_them_hold_in_their_order(self):
        loop = LoopLog([A, B])
        loop.returned(A, 1)
        loop.arrived(A, "between")
        loop.returned(A, 2)
        loop.arrived(A, "last")
        loop.snapshot_taken(1)
        assert drain(loop) == ["between"]
        assert payloads(loop.returned(B, 1)[0]) == {A: [], B: []}
        loop.snapshot_taken(2)
        assert payloads(loop.returned(B, 2)[0]) == {A: [], B: []}
        assert drain(loop) == ["last"]


class TestRounds:
    def test_what_arrives_in_a_round_waits_for_the_next(self):
        loop = LoopLog([A], rounds=True)
        loop.arrived(A, "x")
        assert not loop.has_work
        assert loop.quiet
        assert loop.take() is None
        loop.next_round(1)
        assert drain(loop) == ["x"]

    def test_what_the_end_of_a_round_makes_the_body_emit_is_for_the_next_however_late_it_comes(self):
        """It may have gone round an inner loop first."""
        loop = LoopLog([A], rounds=True)
        loop.round_ended(A, 0)
        loop.arrived(A, "for 1")
        loop.next_round(1)
        assert drain(loop) == ["for 1"]

    def test_once_a_round_is_open_what_arrives_was_sent_in_it(self):
        """Another head has heard of the beginning before this one, and what it sent came round already."""
        loop = LoopLog([A], rounds=True)
        loop.arrived(A, "for 1")
        loop.open_round(1)
        loop.arrived(A, "for 2")
        assert not loop.has_work
        loop.next_round(1)
        assert drain(loop) == ["for 1"]
        loop.next_round(2)
        assert drain(loop) == ["for 2"]

    def test_a_round_is_over_when_its_end_is_back_on_every_channel(self):
        loop = LoopLog([A, B], rounds=True)
        loop.round_ended(A, 0)
        assert loop.round_over == -1
        loop.round_ended(B, 0)
        assert loop.round_over == 0

    def test_the_log_keeps_the_rounds(self):
        loop = LoopLog([A], rounds=True)
        loop.arrived(A, "for 1")
        loop.round_ended(A, 0)
        loop.next_round(1)
        loop.arrived(A, "for 2")
        loop.snapshot_taken(7)
        (done,) = loop.returned(A, 7)
        restored = LoopLog([A], done.contents, rounds=True)
        assert drain(restored) == ["for 1"]
        restored.arrived(A, "also for 2")
        restored.next_round(2)
        assert drain(restored) == ["for 2", "also for 2"]

    def test_a_round_that_was_open_is_open_when_restored(self):
        loop = LoopLog([A], rounds=True)
        loop.arrived(A, "for 1")
        loop.open_round(1)
        loop.snapshot_taken(7)
        (done,) = loop.returned(A, 7)
        restored = LoopLog([A], done.contents, rounds=True)
        restored.arrived(A, "for 2")
        restored.next_round(1)
        assert drain(restored) == ["for 1"]

    def test_a_round_that_is_told_again_changes_nothing(self):
        loop = LoopLog([A], LoopContents(round=3), rounds=True)
        loop.next_round(2)
        assert loop.round == 3
