"""A whole chain, driven as its subtask drives it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.graph.job_graph import OperatorNode, SourceLocation
from snapshot_engine.operators.operator import Operator, OperatorContext, Origin, SourceStatus
from snapshot_engine.operators.source import SourceReaderOperator
from snapshot_engine.operators.stream_type import EventTime, StreamType
from snapshot_engine.operators.watermarks import WatermarkOperator
from snapshot_engine.protocol.elements import MIN_WATERMARK
from snapshot_engine.runtime.chain import Chain


class Clock:
    now = 1_000_000


class Slow(Operator):
    """A function that takes ten seconds for a batch."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    def process(self, port: int, data: Any) -> None:
        self.clock.now += 10_000
        self.output.emit(data)


class Counted:
    """What comes out of the chain."""

    def __init__(self) -> None:
        self.rows = self.late = 0
        self._watermark = MIN_WATERMARK

    def emit(self, data: Any) -> None:
        self.rows += data.num_rows
        self.late += int(np.count_nonzero(data.column("at").to_numpy() <= self._watermark))

    def watermark(self, timestamp: int) -> None:
        self._watermark = timestamp


def run(operators: Sequence[Operator], clock: Clock) -> Counted:
    nodes = [
        OperatorNode(str(number), str(number), lambda operator=operator: operator, SourceLocation("job.py", 1))
        for number, operator in enumerate(operators)
    ]
    out, origin = Counted(), Origin()
    chain = Chain(nodes, out)  # type: ignore[arg-type]
    chain.open(
        [
            OperatorContext(
                node.uid,
                node.name,
                subtask=0,
                parallelism=1,
                key_groups=128,
                attempt=(1, 1),
                restored=(),
                rescaled=False,
                reader=None,  # type: ignore[arg-type]
                clock=lambda: clock.now,
                origin=origin,
            )
            for node in nodes
        ]
    )
    while chain.source.poll(1 << 60) == SourceStatus.MORE:
        deadline = chain.next_deadline()
        if deadline is not None and deadline <= clock.now:
            chain.on_deadline(clock.now)
    return out


@pytest.mark.parametrize("idle_timeout_ms", [None, 30_000])
def test_no_row_is_late_because_its_split_waited_longer_than_the_idle_timeout_for_slow_ones(
    idle_timeout_ms: int | None,
) -> None:
    """Four splits side by side in event time: each is asked every 40 seconds."""
    source = GeneratorSource({"at": lambda offsets: offsets.astype(np.int64) * 1000}, count=4000, splits=4)
    watermarks = WatermarkOperator(EventTime("at"), 5000, idle_timeout_ms, StreamType(source.schema))
    clock = Clock()
    out = run([SourceReaderOperator(source, batch_rows=100), watermarks, Slow(clock)], clock)
    assert (out.rows, out.late) == (4000, 0)
