from snapshot_engine.protocol.elements import ChannelId
from snapshot_engine.protocol.round_ends import PassOn, RoundEnds

A, B = ChannelId(1, 0, 0), ChannelId(1, 1, 0)


def test_a_round_is_over_when_every_channel_says_so():
    ends = RoundEnds([A, B])
    assert ends.ended(A, 0) is None
    assert ends.ended(B, 0) == PassOn(0, is_news=True)
    assert ends.over == 0


def test_what_is_told_again_in_the_same_attempt_is_not_passed_on_twice():
    ends = RoundEnds([A])
    ends.ended(A, 0)
    assert ends.ended(A, 0) is None


def test_after_a_restore_the_end_is_passed_on_but_is_no_news():
    ends = RoundEnds([A], over=3)
    assert ends.ended(A, 3) == PassOn(3, is_news=False)
    assert ends.ended(A, 4) == PassOn(4, is_news=True)
