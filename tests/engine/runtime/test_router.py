"""What leaves a subtask leaves in order: no control element overtakes rows, also not those that are being combined."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from snapshot_engine.channels.frames import Element
from snapshot_engine.graph.job_graph import Exchange, JobEdge, Partitioning
from snapshot_engine.operators.aggregates import Count, Sum
from snapshot_engine.operators.combining import combining_for
from snapshot_engine.operators.stream_type import EventTime, StreamType
from snapshot_engine.operators.weights import rows_counted
from snapshot_engine.operators.windows import TumblingWindow
from snapshot_engine.protocol.elements import Barrier, ChannelId, Control, EndOfInput, Idle, Watermark
from snapshot_engine.runtime.router import EdgeOutput, Router

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64()), ("time", pa.timestamp("ms"))])
MANY = 2048
"""Rows of a batch that is worth combining."""


class Sent:
    """A channel's sending end that keeps what it was given."""

    def __init__(self, consumer: int) -> None:
        self.channel = ChannelId(0, 0, consumer)
        self.elements: list[Element] = []

    def has_room(self) -> bool:
        return True

    def send(self, element: Element) -> None:
        self.elements.append(element)

    def close(self) -> None:
        pass

    @property
    def controls(self) -> list[Control]:
        return [element for element in self.elements if not isinstance(element, pa.RecordBatch)]

    @property
    def rows(self) -> int:
        return sum(rows_counted(element) for element in self.elements if isinstance(element, pa.RecordBatch))

    def rows_before(self, control: Control) -> int:
        before = self.elements[: self.elements.index(control)]
        return sum(rows_counted(element) for element in before if isinstance(element, pa.RecordBatch))


def routed(consumers: int = 1) -> tuple[Router, list[Sent]]:
    given = StreamType(SCHEMA, EventTime("time"))
    combining = combining_for(("key",), TumblingWindow(1000), {"n": Count(), "total": Sum("value")}, given)
    assert combining is not None
    edge = JobEdge(
        0, "rows", "windows", Partitioning.HASH, Exchange.PIPELINED, SCHEMA, key_columns=("key",), combining=combining
    )
    channels = [Sent(index) for index in range(consumers)]
    return Router([EdgeOutput(edge, channels, 16)]), channels


def batch(rows: int = MANY, second: int = 0) -> pa.RecordBatch:
    numbers = list(range(rows))
    time = dt.datetime(1970, 1, 1, second=second)
    return pa.RecordBatch.from_arrays(
        [pa.array([n % 4 for n in numbers]), pa.array(numbers), pa.array([time] * rows, pa.timestamp("ms"))],
        schema=SCHEMA,
    )


def test_a_watermark_waits_for_the_rows_that_are_combined_and_goes_behind_them() -> None:
    router, (channel,) = routed()
    router.emit(batch())
    router.watermark(500)
    assert channel.elements == []
    router.emit(batch())
    router.watermark(600)
    assert channel.elements == []
    router.flush()
    assert channel.controls == [Watermark(600)], "of several the newest says it all"
    assert channel.rows_before(Watermark(600)) == 2 * MANY
    assert len(channel.elements) == 2, "the rows of both batches are one batch"


@pytest.mark.parametrize("control", [Barrier(1, 0.0), Idle(), EndOfInput()])
def test_other_control_elements_go_out_at_once_behind_rows_and_watermark(control: Control) -> None:
    router, (channel,) = routed()
    router.emit(batch())
    router.watermark(500)
    router.broadcast(control)
    assert channel.controls == [Watermark(500), control]
    assert channel.rows_before(Watermark(500)) == MANY
    assert not router.holds_rows


def test_a_watermark_with_no_rows_before_it_goes_out_at_once() -> None:
    router, (channel,) = routed()
    router.watermark(500)
    assert channel.elements == [Watermark(500)]
    router.emit(batch(rows=10))
    router.watermark(600)
    assert channel.controls == [Watermark(500), Watermark(600)]
    assert channel.rows_before(Watermark(600)) == 10


def test_a_watermark_is_sent_once() -> None:
    router, (channel,) = routed()
    router.emit(batch())
    router.watermark(500)
    router.flush()
    router.emit(batch())
    router.flush()
    assert channel.controls == [Watermark(500)]


def test_rows_count_as_sent_only_when_they_are() -> None:
    """Who asks whether all that was sent has arrived must not be told that nothing is under way."""
    router, channels = routed(consumers=2)
    router.emit(batch())
    assert router.holds_rows
    assert router.rows_sent_inside == 0
    router.flush()
    assert not router.holds_rows
    assert sum(channel.rows for channel in channels) == MANY
    assert router.rows_sent_inside == sum(e.num_rows for c in channels for e in c.elements)


def test_each_consumer_gets_the_watermark_behind_its_own_rows() -> None:
    router, channels = routed(consumers=2)
    router.emit(batch())
    router.watermark(500)
    router.emit(batch(second=2))
    router.watermark(1500)
    router.broadcast(EndOfInput())
    for channel in channels:
        assert channel.controls[-2:] == [Watermark(1500), EndOfInput()]
    assert sum(channel.rows_before(Watermark(1500)) for channel in channels) == 2 * MANY


def test_what_is_gathered_may_wait_longer_and_is_not_forgotten() -> None:
    router, (channel,) = routed()
    router.emit(batch())
    router.watermark(500)
    router.flush(gathered=False)
    assert (channel.elements, router.dirty) == ([], True)
    router.flush()
    assert (channel.controls, router.dirty) == ([Watermark(500)], False)
    assert channel.rows_before(Watermark(500)) == MANY
