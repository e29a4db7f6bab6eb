from snapshot_engine.protocol.committed_exchange import (
    SegmentPosition,
    SegmentReader,
    SegmentWriter,
    segments_of_manifest,
    unneeded,
)
from snapshot_engine.protocol.elements import ChannelId

CHANNEL = ChannelId(0, 0, 0)


def sealed(*epochs, last=False):
    writer = SegmentWriter(CHANNEL)
    for epoch in epochs:
        writer.seal(epoch, 5, f"file {epoch}", last=last and epoch == epochs[-1])
    return writer


class TestWriter:
    def test_segments_are_numbered_without_a_gap(self):
        assert [segment.number for segment in sealed(1, 3, 4).named()] == [0, 1, 2]

    def test_what_is_not_known_to_be_visible_is_named_by_every_snapshot(self):
        writer = sealed(1, 2)
        writer.completed(1)
        assert [segment.epoch for segment in writer.named()] == [2]

    def test_an_aborted_checkpoint_drops_nothing(self):
        """There is no event for it: the next completed one makes the segment visible."""
        writer = sealed(1, 2)
        writer.completed(2)
        assert writer.named() == ()

    def test_a_restored_writer_goes_on_with_its_numbers(self):
        before = sealed(1, 2)
        writer = SegmentWriter(CHANNEL, before.next_number, before.named())
        assert writer.seal(3, 1, "file").number == 2
        assert len(writer.named()) == 3


class TestReader:
    def test_it_sees_only_what_is_published(self):
        reader = SegmentReader(CHANNEL)
        assert reader.current() is None
        reader.publish(sealed(1).named())
        assert reader.current().epoch == 1

    def test_it_reads_each_segment_once_and_in_order_however_often_it_is_told(self):
        segments = sealed(1, 2).named()
        reader = SegmentReader(CHANNEL)
        reader.publish([segments[1]])
        assert reader.current() is None
        reader.publish(segments)
        reader.finish_segment()
        reader.publish(segments)
        assert reader.current().epoch == 2

    def test_its_position_is_inside_a_segment_or_before_the_next(self):
        reader = SegmentReader(CHANNEL)
        reader.publish(sealed(1, 2).named())
        reader.advance(3)
        assert reader.position == (0, 3)
        reader.advance(2)
        assert not reader.finish_segment()
        assert reader.position == (1, 0)

    def test_the_last_segment_ends_the_channel(self):
        reader = SegmentReader(CHANNEL, SegmentPosition(1, 0))
        reader.publish(sealed(1, 2, last=True).named())
        assert reader.finish_segment()


class TestManifest:
    def test_it_names_what_its_readers_still_need(self):
        first, second, third = sealed(1, 2, 3).named()
        named = segments_of_manifest({CHANNEL: (first, second)}, {CHANNEL: (third,)}, {CHANNEL: SegmentPosition(1, 2)})
        assert named == {CHANNEL: (second, third)}

    def test_what_a_finished_writer_named_for_ever_is_named_only_while_it_is_needed(self):
        segments = sealed(1).named()
        named = segments_of_manifest({}, {CHANNEL: segments}, {CHANNEL: SegmentPosition(1, 0)})
        assert named == {CHANNEL: ()}

    def test_a_segment_is_deleted_when_no_retained_manifest_names_it(self):
        first, second = sealed(1, 2).named()
        before = [{CHANNEL: (first, second)}]
        assert unneeded(before, [{CHANNEL: (second,)}]) == [first]
        assert unneeded(before, [{CHANNEL: (second,)}, {CHANNEL: (first,)}]) == []
