"""A subtask whose chain needs several portions for one event: everything else waits its turn."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.graph.job_graph import OperatorNode, SourceLocation
from snapshot_engine.operators.operator import Operator, SourceOperator, SourceStatus
from snapshot_engine.protocol.alignment import Alignment
from snapshot_engine.protocol.elements import (
    MAX_WATERMARK,
    Barrier,
    ChannelId,
    EndOfInput,
    Mode,
    SubtaskId,
    Watermark,
)
from snapshot_engine.protocol.watermarks import WatermarkMerge
from snapshot_engine.runtime.chain import Chain
from snapshot_engine.runtime.exchanges.subtask_exchanges import SubtaskExchanges
from snapshot_engine.runtime.router import Router
from snapshot_engine.runtime.subtask import Subtask

INPUT = ChannelId(0, 0, 0)
PORTIONS = 3


class Patient(Operator):
    """Takes three portions for a watermark; says what it did."""

    def __init__(self, did: list[Any]) -> None:
        self.did = did
        self.left = 0
        self.timestamp = 0

    def process(self, port: int, data: Any) -> None:
        self.did.append(len(data))

    def on_watermark(self, timestamp: int) -> None:
        self.timestamp, self.left = timestamp, PORTIONS
        self.go_on()

    @property
    def unfinished(self) -> bool:
        return self.left > 0

    def go_on(self) -> None:
        self.left -= 1
        self.did.append("portion")
        if not self.left:
            self.did.append(self.timestamp)
            self.output.watermark(self.timestamp)

    def next_deadline(self) -> int | None:
        return 0

    def snapshot(self, checkpoint: int) -> None:
        self.did.append(f"snapshot {checkpoint}")

    def end_input(self) -> None:
        self.did.append("end")


class Once(SourceOperator):
    """One watermark, then the end."""

    def __init__(self) -> None:
        self.polls = 0

    def poll(self, most_rows: int) -> SourceStatus:
        self.polls += 1
        if self.polls > 1:
            return SourceStatus.ENDED
        self.output.watermark(7)
        return SourceStatus.MORE


def subtask(did: list[Any], *, source: bool = False) -> tuple[Subtask, InboundQueue]:
    router, queue = Router([]), InboundQueue(INPUT, 0)
    channels = [] if source else [INPUT]
    location = SourceLocation("job.py", 1)
    nodes = [OperatorNode("patient", "patient", lambda: Patient(did), location)]
    if source:
        nodes.insert(0, OperatorNode("once", "once", Once, location))
    made = Subtask(
        SubtaskId("v", 0),
        Chain(nodes, router),
        router,
        [queue] if channels else [],
        (),
        SubtaskExchanges(),
        Alignment(channels, Mode.EXACTLY_ONCE),
        WatermarkMerge(channels),
        lambda job: did.append(f"handed in {job.checkpoint}"),
        lambda subtask, action: None,
        lambda subtask: None,
    )
    return made, queue


def test_what_lies_behind_a_watermark_waits_until_the_chain_is_through_with_it() -> None:
    did: list[Any] = []
    it, queue = subtask(did)
    for element in (Watermark(5), pa.record_batch({"n": [1]}), Barrier(3, 0.0)):
        queue.put(element)
    assert it.step(0) and did == ["portion"]
    assert it.deadline() is None
    while it.step(0):
        pass
    assert did == ["portion"] * PORTIONS + [5, 1, "snapshot 3", "handed in 3"]
    assert it.deadline() == 0


def test_the_end_of_the_input_comes_behind_the_end_of_time() -> None:
    did: list[Any] = []
    it, queue = subtask(did)
    queue.put(EndOfInput())
    assert it.step(0) and not it.ended
    assert not it.loop_counts().quiet
    while it.step(0):
        pass
    assert did == ["portion"] * PORTIONS + [MAX_WATERMARK, "end", "snapshot -1", "handed in None"]
    assert it.ended


def test_a_source_that_is_triggered_meanwhile_takes_its_snapshot_behind_it() -> None:
    did: list[Any] = []
    it, _ = subtask(did, source=True)
    it.step(0)
    it.trigger(Barrier(3, 0.0), False)
    assert did == ["portion"]
    it.step(0)
    it.step(0)
    assert did == ["portion"] * PORTIONS + [7, "snapshot 3", "handed in 3"]


def test_a_trigger_that_is_taken_back_meanwhile_stops_nothing() -> None:
    did: list[Any] = []
    it, _ = subtask(did, source=True)
    it.step(0)
    it.trigger(Barrier(3, 0.0), True)
    it.abort(3)
    while it.step(0):
        pass
    assert it.ended
    assert "snapshot 3" not in did
