from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.protocol.elements import MAX_WATERMARK, MIN_WATERMARK, ChannelId
from snapshot_engine.protocol.watermarks import ChannelTime, WatermarkMerge, WatermarkState, rescaled

A, B, C = ChannelId(0, 0, 0), ChannelId(0, 1, 0), ChannelId(1, 0, 0)


def test_the_minimum_over_the_channels_counts():
    merge = WatermarkMerge([A, B])
    assert merge.watermark(A, 10) is None
    assert merge.watermark(B, 5) == 5
    assert merge.watermark(B, 20) == 10


def test_a_silent_channel_holds_the_watermark_back():
    merge = WatermarkMerge([A, B])
    assert merge.watermark(A, 10) is None
    assert merge.watermark(A, 1000) is None


def test_the_watermark_never_goes_back():
    merge = WatermarkMerge([A])
    merge.watermark(A, 10)
    assert merge.watermark(A, 5) is None
    assert merge.current == 10


def test_an_idle_channel_is_not_waited_for():
    merge = WatermarkMerge([A, B])
    merge.watermark(A, 10)
    assert merge.idle(B) == 10
    assert merge.watermark(A, 12) == 12
    assert not merge.all_idle


def test_a_record_ends_idleness_and_the_channel_holds_back_again():
    merge = WatermarkMerge([A, B])
    merge.watermark(B, 3)
    merge.watermark(A, 10)
    merge.idle(B)
    merge.active(B)
    assert merge.watermark(A, 20) is None
    assert merge.current == 10
    assert merge.watermark(B, 15) == 15


def test_all_idle_is_told_and_does_not_depend_on_the_order():
    for order in ([A, B], [B, A]):
        merge = WatermarkMerge([A, B])
        merge.watermark(A, 10)
        merge.watermark(B, 20)
        for channel in order:
            merge.idle(channel)
        assert merge.all_idle
        assert merge.current == 20


def test_an_ended_channel_holds_nothing_back_and_is_not_idle():
    merge = WatermarkMerge([A, B])
    merge.watermark(A, 10)
    assert merge.end(B) == 10
    assert not merge.all_idle
    merge.idle(A)
    assert merge.all_idle
    assert merge.current == 10


def test_the_end_of_time_on_one_channel_is_not_that_of_an_idle_one():
    merge = WatermarkMerge([A, B])
    merge.watermark(A, 10)
    merge.watermark(B, 5)
    merge.idle(A)
    assert merge.watermark(B, MAX_WATERMARK) == 10  # its end follows
    assert merge.end(B) is None
    assert merge.watermark(A, 12) == 12


def test_the_end_of_all_is_the_end_of_time():
    merge = WatermarkMerge([A, B])
    merge.watermark(A, 10)
    assert merge.end(A) is None
    assert merge.end(B) == MAX_WATERMARK
    assert not merge.all_idle


def test_a_restored_merge_goes_on_where_it_was():
    merge = WatermarkMerge([A, B])
    merge.watermark(A, 10)
    merge.watermark(B, 7)
    merge.idle(B)
    restored = WatermarkMerge([A, B], merge.snapshot())
    assert restored.current == merge.current == 10
    assert restored.watermark(A, 9) is None
    assert restored.watermark(A, 11) == 11


def test_a_snapshot_holds_what_a_channel_said_before_its_barrier():
    merge = WatermarkMerge([A, B])
    merge.watermark(A, 10)
    merge.watermark(B, 10)
    merge.barrier(A, 1)
    merge.watermark(A, 20)  # read on in at-least-once mode
    merge.end(A)
    merge.watermark(B, 12)
    merge.barrier(B, 1)
    state = merge.snapshot(1)
    assert state.channels == {A: ChannelTime(10), B: ChannelTime(12)}
    assert state.current == 10
    assert merge.current == 12
    assert merge.snapshot(2).channels[A].ended


def test_another_parallelism_takes_the_most_cautious_time_of_each_edge():
    states = [
        WatermarkState(5, {A: ChannelTime(5), C: ChannelTime(9, idle=True)}),
        WatermarkState(6, {B: ChannelTime(6, idle=True), C: ChannelTime(8, ended=True)}),
    ]
    new = ChannelId(0, 2, 1)
    state = rescaled(states, [new, C])
    assert state.current == 5
    assert state.channels[new] == ChannelTime(5, idle=False)
    assert state.channels[C] == ChannelTime(8, idle=True)


def test_nothing_to_take_over_is_a_fresh_start():
    assert rescaled([], [A]) == WatermarkState(MIN_WATERMARK, {A: ChannelTime()})


events = st.lists(
    st.tuples(
        st.sampled_from([A, B, C]),
        st.sampled_from(["watermark", "idle", "active", "end"]),
        st.integers(0, 50),
    )
)


@given(events, st.integers(0, 30))
def test_a_restore_anywhere_changes_nothing(steps, cut):
    def run(restore_at):
        merge = WatermarkMerge([A, B, C])
        out = []
        for position, (channel, kind, value) in enumerate(steps):
            if position == restore_at:
                merge = WatermarkMerge([A, B, C], merge.snapshot())
            if kind == "active":
                merge.active(channel)
            else:
                arguments = (channel, value) if kind == "watermark" else (channel,)
                out.append(getattr(merge, kind)(*arguments))
        return out, merge.all_idle

    plain = run(None)
    assert run(cut) == plain
    advanced = [watermark for watermark in plain[0] if watermark is not None]
    assert advanced == sorted(set(advanced))
