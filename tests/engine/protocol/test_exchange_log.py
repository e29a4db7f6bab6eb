import pytest

from snapshot_engine.protocol.elements import Barrier, ChannelId, EndOfInput, Watermark
from snapshot_engine.protocol.exchange_log import (
    ChannelLog,
    LogOverflowError,
    NotWholeError,
    SendControl,
    SendRecords,
)
from snapshot_engine.protocol.exchange_receiver import ChannelReceiver, GapError

CHANNEL = ChannelId(0, 0, 0)


def log(durable=False, budget=1000, limit=2000, **restored):
    return ChannelLog(CHANNEL, durable, budget, limit, **restored)


def drain(reader):
    """Record numbers as ints, barriers as 'b<n>', watermarks as 'w<t>', the end as 'end'."""
    out = []
    while (send := reader.next_send()) is not None:
        if isinstance(send, SendRecords):
            assert send.payload[send.skip : send.skip + send.count] == list(range(send.first, send.first + send.count))
            out += range(send.first, send.first + send.count)
        else:
            out.append(_name(send))
    return out


def _name(send: SendControl):
    match send.element:
        case Barrier(checkpoint=n):
            return f"b{n}"
        case Watermark(timestamp=t):
            return f"w{t}"
        case EndOfInput():
            return "end"


def records(target, count, size=10):
    numbers = list(range(target.next_number, target.next_number + count))
    target.append_records(count, size, numbers)


def barrier(target, number):
    target.append_control(Barrier(number, 0.0))


class TestWhatIsUnread:
    def test_all_that_is_kept_is_unread_until_a_consumer_is_there(self):
        it = log(durable=True)
        assert not it.unread
        records(it, 2)
        assert it.unread

    def test_what_the_consumer_was_sent_is_read_though_it_is_kept(self):
        it = log(durable=True)
        reader = it.attach(0, [])
        records(it, 2)
        assert it.unread
        drain(reader)
        assert not it.unread
        it.detach()
        assert it.unread


class TestReplay:
    def test_a_barrier_still_to_be_aligned_is_sent_if_it_lies_right_where_the_consumer_begins(self):
        """Both were restored from checkpoint 4, and 5 was triggered before the consumer had dialled in. Without the
        barrier, the end of the channel would be taken for it, and what lies before the end for part of checkpoint 5.
        """
        it = log(start=7, restored=4)
        barrier(it, 5)
        records(it, 2)
        it.append_control(EndOfInput())
        assert drain(it.attach(7, pending=[5])) == ["b5", 7, 8, "end"]

    def test_a_consumer_that_comes_late_to_a_log_that_has_its_checkpoint_gets_the_next_barrier_too(self):
        it = log()
        records(it, 3)
        barrier(it, 1)
        barrier(it, 2)
        records(it, 1)
        assert drain(it.attach(3, pending=[2])) == ["b2", 3]
        assert drain(it.attach(3, pending=[])) == [3]

    def test_a_connected_consumer_gets_everything_once_and_in_order(self):
        it = log()
        reader = it.attach(0, [])
        records(it, 3)
        barrier(it, 1)
        records(it, 2)
        assert drain(reader) == [0, 1, 2, "b1", 3, 4]
        it.append_control(EndOfInput())
        assert drain(reader) == ["end"]

    def test_control_elements_are_not_counted(self):
        it = log()
        barrier(it, 1)
        it.append_control(Watermark(5))
        records(it, 1)
        assert it.next_number == 1

    def test_a_restored_consumer_reads_from_behind_its_barrier(self):
        it = log()
        drain(it.attach(0, []))
        records(it, 3)
        it.append_control(Watermark(1))
        barrier(it, 1)
        it.append_control(Watermark(2))
        records(it, 3)
        it.completed(1)
        assert it.position_of(1) == 3
        assert drain(it.attach(3, [])) == ["w2", 3, 4, 5]

    def test_barriers_of_checkpoints_that_are_not_pending_are_skipped_in_a_replay(self):
        it = log()
        records(it, 1)
        barrier(it, 1)
        records(it, 1)
        barrier(it, 2)
        records(it, 1)
        barrier(it, 3)
        reader = it.attach(1, pending=[3])
        assert drain(reader) == [1, 2, "b3"]
        barrier(it, 4)
        assert drain(reader) == ["b4"]  # live again

    def test_a_batch_is_sliced_when_the_position_lies_inside_it(self):
        it = log()
        records(it, 5)
        records(it, 5)
        assert drain(it.attach(7, [])) == [7, 8, 9]

    def test_nothing_is_sent_to_a_consumer_that_is_ahead_until_the_producer_has_caught_up(self):
        it = log(durable=True, start=10, restored=4)
        reader = it.attach(13, [])
        records(it, 2)
        it.append_control(Watermark(7))
        barrier(it, 5)  # nobody should trigger it; it lies behind the consumer's state
        assert drain(reader) == []
        assert not it.caught_up
        records(it, 3)
        assert it.caught_up
        assert drain(reader) == ["w7", 13, 14]

    def test_a_watermark_that_a_producer_says_earlier_than_before_is_not_lost_while_it_catches_up(self):
        """The consumer had five records, and was to get the watermark behind them when the producer died."""
        it = log()
        reader = it.attach(5, [])
        records(it, 2)
        it.append_control(Watermark(6))
        records(it, 1)
        it.append_control(Watermark(7))
        records(it, 1)
        assert drain(reader) == []
        records(it, 1)
        assert drain(reader) == ["w7"]
        records(it, 1)
        assert drain(reader) == [5]

    def test_a_watermark_that_was_passed_over_comes_before_what_is_news(self):
        it = log()
        reader = it.attach(3, [])
        records(it, 1)
        it.append_control(Watermark(7))
        records(it, 3)
        barrier(it, 1)
        assert drain(reader) == ["w7", 3, "b1"]


class TestKeeping:
    def test_a_completed_checkpoint_cleans_what_lies_before_its_barrier(self):
        it = log()
        reader = it.attach(0, [])
        records(it, 2)
        barrier(it, 1)
        records(it, 2)
        drain(reader)
        it.completed(1)
        assert it.size == 10
        assert it.is_whole_for(1)
        with pytest.raises(NotWholeError, match="record 1, but its log begins at 2"):
            it.attach(1, [])

    def test_what_is_unread_stays(self):
        it = log()
        reader = it.attach(0, [])
        records(it, 2)
        barrier(it, 1)
        it.completed(1)
        assert drain(reader) == [0, 1, "b1"]

    def test_what_is_pinned_stays(self):
        it = log()
        reader = it.attach(0, [])
        barrier(it, 1)
        records(it, 2)
        barrier(it, 2)
        drain(reader)
        it.pin(1)
        it.completed(2)
        assert it.is_whole_for(1)
        it.unpin(1)
        it.completed(2)
        assert not it.is_whole_for(1)

    def test_a_checkpoint_whose_barrier_never_passed_cleans_nothing(self):
        it = log()
        drain(it.attach(0, []))
        records(it, 2)
        it.completed(9)
        assert it.size == 10

    def test_a_restored_producer_starts_a_log_that_is_whole_for_its_checkpoint(self):
        it = log(start=10, restored=4)
        assert it.is_whole_for(4)
        assert not it.is_whole_for(3)
        records(it, 1)
        assert drain(it.attach(10, [])) == [10]

    def test_a_channel_that_ended_is_whole_for_later_checkpoints(self):
        it = log()
        reader = it.attach(0, [])
        records(it, 2)
        barrier(it, 1)
        it.append_control(EndOfInput())
        drain(reader)
        assert it.position_of(2) == 2
        assert it.is_whole_for(2)

    def test_a_checkpoint_behind_the_end_cleans_all(self):
        """No barrier passes any more, but whoever took part has read the end."""
        it = log(durable=True, budget=20)
        reader = it.attach(0, [])
        barrier(it, 1)
        records(it, 2, size=30)
        it.append_control(EndOfInput())
        drain(reader)
        assert it.full
        it.completed(1)
        assert it.size == 30
        it.completed(2)
        assert (it.size, it.full, it.under_pressure) == (0, False, False)
        assert it.is_whole_for(2)
        assert it.is_whole_for(3)
        assert not it.is_whole_for(1)

    def test_a_consumer_that_had_read_the_end_may_restart_any_number_of_times(self):
        """Each time it says that it needs nothing."""
        it = log(durable=True)
        drain(it.attach(0, []))
        records(it, 2)
        barrier(it, 1)
        it.append_control(EndOfInput())
        it.completed(2)
        it.consumer_finished()
        assert it.is_whole_for(2)
        assert not it.is_whole_for(1)

    def test_nothing_is_kept_for_a_consumer_that_has_finished(self):
        it = log(durable=True, budget=20, start=5, restored=2)
        records(it, 1)
        it.consumer_finished()
        for _ in range(5):
            records(it, 1)
        barrier(it, 3)
        assert it.size == 0
        assert not it.full
        assert not it.is_whole_for(2)

    def test_a_producer_has_caught_up_with_a_finished_consumer_when_it_has_come_to_its_end_again(self):
        it = log(durable=True)
        it.consumer_finished()
        records(it, 1)
        assert not it.caught_up
        it.append_control(EndOfInput())
        assert it.caught_up


class TestBudget:
    def test_a_memory_log_forgets_what_was_read_and_is_not_whole_any_more(self):
        it = log(budget=25)
        reader = it.attach(0, [])
        for _ in range(3):
            records(it, 1)
            drain(reader)
        assert not it.is_whole_for(0)
        assert not it.full

    def test_it_never_forgets_what_is_unread(self):
        it = log(budget=25)
        reader = it.attach(0, [])
        for _ in range(4):
            records(it, 1)
        assert it.full
        assert it.is_whole_for(0)
        assert drain(reader) == [0, 1, 2, 3]

    def test_it_forgets_nothing_while_its_consumer_is_away_or_it_is_pinned(self):
        it = log(budget=25)
        reader = it.attach(0, [])
        records(it, 1)
        drain(reader)
        it.detach()
        for _ in range(3):
            records(it, 1)
        assert it.is_whole_for(0)
        assert it.full

    def test_a_durable_log_stays_whole_and_makes_its_producer_wait(self):
        it = log(durable=True, budget=25)
        reader = it.attach(0, [])
        for _ in range(3):
            records(it, 1)
            drain(reader)
        assert it.full
        assert it.is_whole_for(0)

    def test_barriers_are_taken_even_when_it_is_full_and_then_empty_it(self):
        it = log(durable=True, budget=20)
        reader = it.attach(0, [])
        records(it, 1)
        records(it, 1)
        assert it.full
        barrier(it, 1)
        assert drain(reader) == [0, 1, "b1"]
        it.completed(1)
        assert not it.full
        assert it.size == 0

    def test_pressure_asks_for_a_checkpoint_before_it_is_full(self):
        it = log(budget=40)
        records(it, 1)
        assert not it.under_pressure
        records(it, 1)
        assert it.under_pressure
        assert not it.full

    def test_beyond_the_limit_is_a_clear_failure(self):
        it = log(durable=True, budget=20, limit=25)
        records(it, 1)
        records(it, 1)
        with pytest.raises(LogOverflowError, match="more than its limit of 25"):
            records(it, 1)


class TestReceiver:
    def test_records_seen_before_are_left_out_one_by_one(self):
        receiver = ChannelReceiver(CHANNEL, expected=5)
        assert receiver.records(2, 2) == (2, 0)
        assert receiver.records(3, 4) == (2, 2)
        assert receiver.records(7, 3) == (0, 3)
        assert receiver.expected == 10

    def test_a_gap_is_an_error(self):
        with pytest.raises(GapError, match="record 6 came, but 5 was expected"):
            ChannelReceiver(CHANNEL, expected=5).records(6, 1)
