"""The head of a loop by itself, without a slot around it."""

from __future__ import annotations

import pyarrow as pa

from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.graph.job_graph import OperatorNode, SourceLocation
from snapshot_engine.operators.operator import Operator
from snapshot_engine.protocol.alignment import Alignment
from snapshot_engine.protocol.elements import MAX_WATERMARK, ChannelId, Mode, SubtaskId, Watermark
from snapshot_engine.protocol.loop_log import LoopLog
from snapshot_engine.protocol.watermarks import WatermarkMerge
from snapshot_engine.runtime.chain import Chain
from snapshot_engine.runtime.exchanges.subtask_exchanges import SubtaskExchanges
from snapshot_engine.runtime.loops.head import HeadSubtask, Loop
from snapshot_engine.runtime.loops.held_records import RecordStore
from snapshot_engine.runtime.router import Router

INPUT, FEEDBACK = ChannelId(0, 0, 0), ChannelId(1, 0, 0)


def head() -> tuple[HeadSubtask, InboundQueue]:
    """With one regular input and one feedback channel; its router knows the last watermark."""
    router, queue = Router([]), InboundQueue(INPUT, 0)
    chain = Chain([OperatorNode("head", "head", Operator, SourceLocation("job.py", 1))], router)
    loop = Loop("head", [InboundQueue(FEEDBACK, 0)], LoopLog([FEEDBACK]), RecordStore(pa.schema({"n": pa.int64()}), 1))
    subtask = HeadSubtask(
        SubtaskId("head", 0),
        chain,
        router,
        [queue],
        (),
        SubtaskExchanges(),
        Alignment([INPUT, FEEDBACK], Mode.EXACTLY_ONCE, [FEEDBACK]),
        WatermarkMerge([INPUT]),
        lambda job: None,
        lambda subtask, action: None,
        lambda subtask: None,
        loop=loop,
    )
    return subtask, queue


def test_time_runs_out_in_a_loop_only_after_it_has_before_it() -> None:
    """All loops of a region are told at once. What the end of time makes another one put out must not be late here."""
    it, queue = head()
    queue.put(Watermark(7))
    it.step(0)
    it.let_time_run_out()
    assert it.router.last_watermark == 7
    assert not it.loop_counts().time_is_over
    queue.put(Watermark(MAX_WATERMARK))
    it.step(0)
    assert it.router.last_watermark == 7
    it.let_time_run_out()
    assert it.router.last_watermark == MAX_WATERMARK
    assert it.loop_counts().time_is_over
