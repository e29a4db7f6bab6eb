from snapshot_engine.protocol.elements import Attempt, SubtaskId
from snapshot_engine.protocol.loop_end import (
    AskWave,
    BeginRound,
    EndLoop,
    EndRound,
    FinalWatermark,
    LoopCounts,
    LoopEnd,
    OpenRound,
)

HEAD, BODY = SubtaskId("head", 0), SubtaskId("body", 0)
ATTEMPT = Attempt(1, 1)


class Loop:
    def __init__(self):
        self.end = LoopEnd([HEAD, BODY], ATTEMPT, pause=1.0, patience=10.0)
        assert self.end.tick(0.0) == []  # nobody is asked before a head's inputs have ended
        self.end.inputs_ended(0.0)
        self.wave = 0

    def note(self, actions):
        for action in actions:
            if isinstance(action, AskWave):
                self.wave = action.wave
        return actions

    def ask(self, now):
        return self.note(self.end.tick(now))

    def answer(self, head, body, now=0.0):
        first = self.note(self.end.report(HEAD, ATTEMPT, self.wave, head, now))
        return first + self.note(self.end.report(BODY, ATTEMPT, self.wave, body, now))


def counts(sent, received, quiet=True, **more):
    return LoopCounts(sent, received, quiet, **more)


def test_two_equal_quiet_waves_end_the_loop():
    loop = Loop()
    assert loop.ask(0.0) == [AskWave(1)]
    assert loop.answer(counts(5, 3), counts(3, 5)) == [AskWave(2)]
    assert loop.answer(counts(5, 3), counts(3, 5)) == [EndLoop()]
    assert loop.end.done
    assert loop.end.tick(1.0) == [EndLoop()]  # the word may be lost


def test_one_wave_proves_nothing():
    """A record was received behind the wave's back: the totals agree, but not twice."""
    loop = Loop()
    loop.ask(0.0)
    assert loop.answer(counts(5, 3), counts(3, 5)) == [AskWave(2)]
    assert loop.answer(counts(6, 4), counts(4, 6)) == [AskWave(3)]
    assert loop.answer(counts(6, 4), counts(4, 6)) == [EndLoop()]


def test_a_record_on_its_way_is_waited_for():
    loop = Loop()
    loop.ask(0.0)
    assert loop.answer(counts(5, 3), counts(4, 5)) == []
    assert loop.end.next_wakeup() == 1.0
    assert loop.ask(1.0) == [AskWave(2)]


def test_whoever_is_not_quiet_makes_it_wait():
    loop = Loop()
    loop.ask(0.0)
    assert loop.answer(counts(5, 5), counts(0, 0, quiet=False)) == []


def test_time_runs_out_before_the_end_and_is_told_until_every_head_has_heard():
    loop = Loop()
    loop.ask(0.0)
    loop.answer(counts(1, 1, time_is_over=False), counts(0, 0))
    assert loop.answer(counts(1, 1, time_is_over=False), counts(0, 0)) == [FinalWatermark()]
    loop.ask(1.0)
    loop.answer(counts(1, 1, time_is_over=False), counts(0, 0))
    assert loop.answer(counts(1, 1, time_is_over=False), counts(0, 0)) == [FinalWatermark()]
    loop.ask(2.0)
    loop.answer(counts(2, 2), counts(0, 0))
    assert loop.answer(counts(2, 2), counts(0, 0)) == [EndLoop()]


def test_answers_of_older_waves_and_other_attempts_are_ignored():
    loop = Loop()
    loop.ask(0.0)
    assert loop.end.report(HEAD, Attempt(1, 0), 1, counts(0, 0), 0.0) == []
    loop.ask(10.0)
    assert loop.end.report(HEAD, ATTEMPT, 1, counts(0, 0), 1.0) == []
    assert loop.end.report(BODY, ATTEMPT, 2, counts(0, 0), 1.0) == []


def test_a_lost_answer_is_asked_for_again():
    loop = Loop()
    loop.ask(0.0)
    loop.end.report(HEAD, ATTEMPT, 1, counts(0, 0), 0.0)
    assert loop.end.tick(5.0) == []  # not before it is likely to be lost
    assert loop.ask(10.0) == [AskWave(2)]


class TestRounds:
    """Heads and body say which round is over here; without rounds they say None."""

    def rest(self, loop, head, body, now=0.0):
        loop.ask(now)
        loop.answer(head, body, now)
        return loop.answer(head, body, now)

    def test_a_round_ends_everywhere_before_the_next_begins(self):
        loop = Loop()
        waits = counts(1, 1, waiting=4, round=2, round_over=1)
        assert self.rest(loop, waits, counts(0, 0, round_over=1)) == [EndRound(2)]
        back = waits._replace(round_over=2)
        assert self.rest(loop, back, counts(0, 0, round_over=1), 1.0) == [EndRound(2)]  # the word may be lost
        assert self.rest(loop, back, counts(0, 0, round_over=2), 2.0) == [BeginRound(3)]

    def test_a_round_begins_when_every_head_knows_that_it_is_open(self):
        loop = Loop()
        body = counts(0, 0, round_over=2)
        waits = counts(1, 1, waiting=4, round=2, round_over=2, arriving=3)
        opened = self.rest(loop, waits, body)
        assert opened == [OpenRound(3), AskWave(loop.wave)]
        assert self.rest(loop, waits, body, 1.0) == [OpenRound(3), AskWave(loop.wave)]  # the word may be lost
        assert self.rest(loop, waits._replace(arriving=4), body, 2.0) == [BeginRound(3)]

    def test_heads_in_different_rounds_are_brought_together_first(self):
        loop = Loop()
        loop.ask(0.0)
        assert loop.answer(counts(1, 1, round=2), counts(0, 0, round=3)) == [BeginRound(3)]

    def test_when_a_round_is_over_and_nothing_waits_the_loop_is_done(self):
        loop = Loop()
        assert self.rest(loop, counts(1, 1, round=2, round_over=2), counts(0, 0, round_over=2)) == [EndLoop()]


def test_the_end_waits_for_checkpoints_that_were_going_round_when_rest_was_found_and_for_no_newer_ones():
    """What is in their logs may go to a head that has ended without its part of them."""
    loop = Loop()
    loop.ask(0.0)
    loop.answer(counts(1, 1, going_round=[7]), counts(0, 0))
    assert loop.answer(counts(1, 1, going_round=[7]), counts(0, 0)) == []
    loop.ask(1.0)
    assert loop.answer(counts(1, 1, going_round=[7, 8]), counts(0, 0), now=1.0) == []
    loop.ask(2.0)
    assert loop.answer(counts(1, 1, going_round=[8]), counts(0, 0), now=2.0) == [EndLoop()]
